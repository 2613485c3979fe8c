"""Files that two distributions installed: the later one wrote over the earlier one.

Package managers do not look: what each distribution owns stands in its RECORD, and nobody compares
them. An environment of 200 distributions has 55,000 lines of RECORD, so lines are looked at as
bytes, and only those of distributions that have a top-level name in common with another.

Source: PyPA, "Recording installed projects", RECORD; numbers measured on an environment for vLLM.

Files that a distribution's RECORD names and that are not there.

Two packages that own the same files leave this behind: when one of them is uninstalled, the files of
the other go with it, and no package manager says so. Only libraries are looked for: a module's text
that is missing tells its own story when it is imported, and a file system answers for hundreds of
libraries in a few milliseconds, not for tens of thousands of texts.

Source: PyPA, "Recording installed projects", RECORD.

What the tags of an installed wheel ask of the C library.

pip compares them when it installs, and nobody afterwards: an environment that was copied into an
older container is not looked at again.

Source: PEP 600 (manylinux_X_Y), PEP 513, 571, 599 for the older names; PEP 427 for the file WHEEL.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution, record_bytes
from mlbackends.model.patterns import bytes_pattern, pattern

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


_LIBRARY = bytes_pattern(rb'"?([^",\n]+\.(?:so(?:\.[0-9][0-9.]*)?|pyd|dylib|dll))"?,')
#: How the names of libraries end on each system; each ending is searched for in all lines.
_ENDINGS = {"linux": (b".so",), "darwin": (b".so", b".dylib"), "win32": (b".pyd", b".dll")}


def missing_files(host: Host, dists: Sequence[Distribution]) -> list[dict[str, Any]]:
    """Return name, version, files (how many) and example for each that lacks libraries of its own.

    A distribution without a RECORD owns nothing.
    """
    found: list[dict[str, Any]] = []
    for dist in dists:
        paths = [
            os.path.normpath(f"{dist.folder}/{name.decode(errors='replace')}")
            for name in _libraries_in(
                record_bytes(host, dist), _ENDINGS.get(host.platform, (b".so",))
            )
        ]
        gone = [path for path in paths if not host.exists(path)]
        if gone:
            found.append(
                {
                    "name": dist.name,
                    "version": dist.version,
                    "files": len(gone),
                    "example": gone[0],
                }
            )
    return found


def _libraries_in(record: bytes, endings: Sequence[bytes]) -> list[bytes]:
    """Return the paths of libraries in a RECORD.

    Most lines name texts: searching for the ending takes a tenth of matching each line.
    """
    found = []
    for ending in endings:
        at = record.find(ending)
        while at >= 0:
            start = record.rfind(b"\n", 0, at) + 1
            end = record.find(b"\n", at)
            match = _LIBRARY.match(record, start, end if end >= 0 else len(record))
            if match:
                found.append(match[1])
            at = record.find(ending, end) if end >= 0 else -1
    return found


LEAST_TOLD = "2.17"
"""Every glibc that is still in use is as new as manylinux2014 asks for."""

_TAG = pattern(r"manylinux(?:_(\d{1,3})_(\d{1,3})|1|2010|2014)_\w+")
_OLDEST = (2, 17)
_WHEEL_LIMIT = 1 << 16


def glibc_needed(host: Host, dists: Sequence[Distribution]) -> dict[str, str]:
    """Return the glibc that wheels ask for, "2.28", by the name of their distribution.

    Of several tags the one that asks least counts. Those are left out that any machine serves.
    """
    found = {}
    for dist in dists:
        if not dist.info.endswith(".dist-info"):
            continue
        text = host.read(f"{dist.info}/WHEEL", _WHEEL_LIMIT)
        tags = [line[4:].strip() for line in text.splitlines() if line.startswith("Tag:")]
        platforms = [part for tag in tags for part in tag.rpartition("-")[2].split(".")]
        asked = [match for part in platforms if (match := _TAG.fullmatch(part))]
        # A tag that asks for no glibc (linux_x86_64, any) says nothing of it.
        if asked and len(asked) == len(platforms):
            least = min((int(one[1]), int(one[2])) if one[1] else _OLDEST for one in asked)
            if least > _OLDEST:
                found[dist.name] = f"{least[0]}.{least[1]}"
    return found
