"""Files that two distributions installed: the later one wrote over the earlier one.

Package managers do not look: what each distribution owns stands in its RECORD, and nobody compares
them. An environment of 200 distributions has 55,000 lines of RECORD, so lines are looked at as
bytes, and only those of distributions that have a top-level name in common with another.

Source: PyPA, "Recording installed projects", RECORD; numbers measured on an environment for vLLM.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution, record_bytes
from mlbackends.model.patterns import bytes_pattern

_LINE = bytes_pattern(rb'^("[^"\n]*"|[^,\n]+),([^\n]*)', re.MULTILINE)
# Takes all the lines in a row that begin alike as one: half the time of looking at each line.
_RUN = re.compile(rb'^"?([^/,\n]+[/,])(?:[^\n]*+\n\1)*+', re.MULTILINE)
_IGNORED_TOPS = {b"./", b"../", b"__pycache__/"}


class SharedFiles(Struct, frozen=True):
    """Two distributions that both say that they own some files.

    shared: how many files both list. differing: how many of those have other contents in the one
    than in the other, by their RECORDs. example: one that differs, from the import folder on.
    on_disk: the name of the distribution that the example is from, by its size; "" where the sizes
    do not tell.
    """

    first: Distribution
    second: Distribution
    shared: int
    differing: int
    example: str
    on_disk: str = ""


def shared_files(host: Host, dists: Sequence[Distribution]) -> list[SharedFiles]:
    """Return the pairs of distributions that have files with different contents in common.

    Files that are the same in both are harmless (many wheels bring the same empty __init__.py), and
    so are two installations of one name, which is another trouble. A RECORD that is missing or makes
    no sense owns nothing.
    """
    found = []
    by_folder: dict[str, list[Distribution]] = {}
    for dist in dists:
        by_folder.setdefault(dist.folder, []).append(dist)
    for folder, here in by_folder.items():
        if len(here) > 1:
            found += _shared_in(host, folder, here)
    return found


def _shared_in(host: Host, folder: str, dists: list[Distribution]) -> list[SharedFiles]:
    records = {dist: record_bytes(host, dist) for dist in dists}
    suspects: dict[Distribution, dict[bytes, bytes]] = {}
    for dist in _with_tops_in_common(records):
        lines = dict(_LINE.findall(records[dist]))
        suspects[dist] = {path.strip(b'"'): rest for path, rest in lines.items()}
    owners: dict[bytes, list[Distribution]] = {}
    for dist, lines in suspects.items():
        for path in lines:
            owners.setdefault(path, []).append(dist)
    pairs: dict[tuple[Distribution, Distribution], list[bytes]] = {}
    for path, owning in owners.items():
        if len(owning) > 1 and _is_counted(path):
            for i, second in enumerate(owning):
                for first in owning[:i]:
                    if first.name != second.name:
                        pairs.setdefault((first, second), []).append(path)
    found = []
    for (first, second), paths in pairs.items():
        one, other = suspects[first], suspects[second]
        differing = [path for path in paths if not _is_same(one[path], other[path])]
        if differing:
            told = _told_by_size(host, folder, differing, (first, one), (second, other))
            found.append(SharedFiles(first, second, len(paths), len(differing), *told))
    return found


def _with_tops_in_common(records: dict[Distribution, bytes]) -> list[Distribution]:
    owners: dict[bytes, list[Distribution]] = {}
    for dist, data in records.items():
        for top in _tops(data):
            owners.setdefault(top, []).append(dist)
    suspects = {dist for owning in owners.values() if len(owning) > 1 for dist in owning}
    return [dist for dist in records if dist in suspects]


def _tops(data: bytes) -> set[bytes]:
    """Return the first parts of the paths in a RECORD, with the "/" or "," that ends them."""
    return set(_RUN.findall(data)) - _IGNORED_TOPS


def _is_counted(path: bytes) -> bool:
    """Leave out what lies outside the folder, what Python makes itself, and metadata."""
    top = path.partition(b"/")[0]
    return not (
        path.startswith((b"../", b"/")) or b"__pycache__/" in path or top.endswith(b".dist-info")
    )


def _is_same(one: bytes, other: bytes) -> bool:
    """Compare "sha256=HASH,SIZE"; without a hash nothing is known, and a difference is likely."""
    return one.strip() == other.strip() and b"=" in one


def _told_by_size(
    host: Host,
    folder: str,
    paths: list[bytes],
    *owners: tuple[Distribution, dict[bytes, bytes]],
) -> tuple[str, str]:
    """Return a file whose size on disk is that of one owner alone, and the owner's name."""
    for path in paths[:20]:
        name = path.decode(errors="replace")
        size = host.size(f"{folder}/{name}")
        fits = [dist.name for dist, lines in owners if _size(lines[path]) == size]
        if len(fits) == 1:
            return name, fits[0]
    return paths[0].decode(errors="replace"), ""


def _size(rest: bytes) -> int | None:
    text = rest.strip().rpartition(b",")[2]
    return int(text) if text.isdigit() and len(text) < 19 else None
