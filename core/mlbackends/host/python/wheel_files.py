"""Files of wheels: owned by two distributions, missing, or built for a newer C library.

Each distribution lists its files in its RECORD, and no package manager compares these lists: if one of two
owners of a file is uninstalled, the other loses it too. An environment of 200 distributions has 55,000 lines
of RECORD, so they are searched as bytes. Source: PyPA, "Recording installed projects"; PEP
427, 513, 571, 599, 600.
"""

import base64
import hashlib
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from mlbackends.base.patterns import bytes_pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution, conda_prefix, listed_files, record_bytes

_LINE = bytes_pattern(rb'^("[^"\n]*"|[^,\n]+),([^\n]*)', re.MULTILINE)
# Matches consecutive lines with the same beginning at once, in half the time of matching each line.
_RUN = bytes_pattern(rb'^"?([^/,\n]+[/,])(?:[^\n]*+\n\1)*+', re.MULTILINE)
_CODE = bytes_pattern(rb'^([^,\n"]+\.(?:py|pyd|dll|dylib|so[.\d]*)),[^,\n]*,(\d{1,12})\r?$', re.MULTILINE)
_IGNORED_TOPS = {b"./", b"../", b"__pycache__/"}
#: How the names of libraries end on each system, to the end of the line.
_ENDINGS = {"darwin": rb"\.(?:so|dylib)[^\n]*", "win32": rb"\.(?:pyd|dll)[^\n]*"}
_ENDS = (".so", ".pyd", ".dylib", ".dll")
#: Every glibc still in use is at least as new as manylinux2014 requires.
_OLDEST = (2, 17)
_OLD_TAGS = ("manylinux1_", "manylinux2010_", "manylinux2014_")
_WHEEL_LIMIT = 1 << 16


class SharedFiles(Struct, frozen=True):
    """Two distributions that both list some files as theirs.

    shared: how many files both list. differing: how many of those have different contents, by their RECORDs.
    example: one that differs, relative to the import folder. on_disk: the distribution whose example is on
    the disk, by its size; "" if the sizes do not decide it.
    """

    first: Distribution
    second: Distribution
    shared: int
    differing: int
    example: str
    on_disk: str = ""


def longest_path(host: Host, dists: Sequence[Distribution]) -> int:
    """Return the number of characters of the longest path among the files of distributions."""
    return max(
        (
            len(dist.folder) + 1 + len(path.strip(b'"').decode(errors="replace"))
            for dist in dists
            for path, _ in _LINE.findall(record_bytes(host, dist))
            if not path.startswith(b"..")
        ),
        default=0,
    )


def shared_files(host: Host, dists: Sequence[Distribution]) -> list[SharedFiles]:
    """Return the pairs of distributions that have files with different contents in common.

    Files that are the same in both are harmless: many wheels have the same empty __init__.py. Two
    installations of one name are another problem. A RECORD that is missing or invalid lists nothing.
    """
    by_folder: dict[str, list[Distribution]] = {}
    for dist in dists:
        by_folder.setdefault(dist.folder, []).append(dist)
    return [shared for own in by_folder.values() for shared in _shared_in_folder(host, own)]


def _shared_in_folder(host: Host, dists: list[Distribution]) -> Iterator[SharedFiles]:
    records = {dist: record_bytes(host, dist) for dist in dists}
    # Only distributions with a top-level name in common can share a file.
    by_top: dict[bytes, list[Distribution]] = {}
    for dist, data in records.items():
        for top in set(_RUN.findall(data)) - _IGNORED_TOPS:
            by_top.setdefault(top, []).append(dist)
    suspects = {dist for sharing in by_top.values() if len(sharing) > 1 for dist in sharing}
    contents: dict[Distribution, dict[bytes, bytes]] = {}
    owners: dict[bytes, list[Distribution]] = {}
    for dist in (dist for dist in records if dist in suspects):
        lines = dict(_LINE.findall(records[dist]))
        contents[dist] = {path.strip(b'"'): rest for path, rest in lines.items()}
        for path in contents[dist]:
            owners.setdefault(path, []).append(dist)
    pairs: dict[tuple[Distribution, Distribution], list[bytes]] = {}
    for path, owning in owners.items():
        # Files outside the folder, files that Python makes itself, and metadata are left out.
        is_inside = not path.startswith((b"../", b"/")) and b"__pycache__/" not in path
        if len(owning) > 1 and is_inside and not path.partition(b"/")[0].endswith(b".dist-info"):
            for i, second in enumerate(owning):
                for first in owning[:i]:
                    if first.name != second.name:
                        pairs.setdefault((first, second), []).append(path)
    for (first, second), paths in pairs.items():
        one, other = contents[first], contents[second]
        # Without hashes a difference is likely.
        differing = [
            path for path in paths if one[path].strip() != other[path].strip() or b"=" not in one[path]
        ]
        if differing:
            example, owner = _example(host, differing, {first: one, second: other})
            yield SharedFiles(first, second, len(paths), len(differing), example, owner)


def _example(
    host: Host, paths: list[bytes], contents: dict[Distribution, dict[bytes, bytes]]
) -> tuple[str, str]:
    """Return a file whose size on disk is that of one owner alone, and the owner's name."""
    for path in paths[:20]:
        name = path.decode(errors="replace")
        fits = []
        for dist, lines in contents.items():
            size = lines[path].strip().rpartition(b",")[2]
            is_number = size.isdigit() and len(size) < 19
            if is_number and int(size) == host.size(f"{dist.folder}/{name}"):
                fits.append(dist.name)
        if len(fits) == 1:
            return name, fits[0]
    return paths[0].decode(errors="replace"), ""


def missing_files(host: Host, dists: Sequence[Distribution]) -> list[dict[str, Any]]:
    """Return name, version, files (how many) and example for each distribution that lacks its libraries.

    Only libraries are checked: a missing Python file shows when it is imported, and checking hundreds of
    libraries takes a few milliseconds, but not tens of thousands of files. A distribution without a RECORD
    lists nothing.
    """
    lacking: list[dict[str, Any]] = []
    ending = re.compile(_ENDINGS.get(host.platform, rb"\.so[^\n]*"))
    for dist in dists:
        record, missing = record_bytes(host, dist), []
        for name in listed_files(record, ending):
            if name.endswith(_ENDS) or name.rpartition(".so.")[2].replace(".", "").isdecimal():
                path = posixpath.normpath(f"{dist.folder}/{name}")
                missing += [path] if not (host.exists(path) or host.closed_above(path)) else []
        if missing:
            counted = {"files": len(missing), "example": missing[0]}
            lacking.append({"name": dist.name, "version": dist.version, **counted})
    return lacking


def damage(host: Host, dist: Distribution) -> str:
    """Return a file of a distribution that is missing or cut, in words; "" if none is.

    Python files and libraries are looked at, by size, less those of its tests. conda writes its prefix into
    files, whose size may then be another.
    """
    for path, size in _CODE.findall(record_bytes(host, dist)):
        if b"/tests/" not in path and b"/testing/" not in path:
            file = f"{dist.folder}/{path.decode(errors='replace')}"
            if (now := host.size(file)) != int(size) and not (now and conda_prefix(host)):
                file = posixpath.normpath(file)
                state = f"has {now} bytes instead of {int(size)}" if host.exists(file) else "is missing"
                if not host.closed_above(file):
                    return f"{file} of {dist.name} {dist.version} {state}"
    return ""


def is_altered(host: Host, dist: Distribution, path: str) -> bool:
    """Return whether a file of a distribution is another than its RECORD lists, by size, then by hash.

    conda writes its prefix into files: there it is not known.
    """
    name = posixpath.relpath(path, dist.folder).encode()
    line = re.search(rb'(?m)^"?%b"?,(?:sha256=([\w-]+))?,(\d*)' % re.escape(name), record_bytes(host, dist))
    if not line or not host.exists(path) or conda_prefix(host):
        return False
    if line[2] and int(line[2]) != host.size(path):
        return True
    return bool(line[1]) and line[1].decode() != _hash(host, path)


def _hash(host: Host, path: str) -> str:
    """Return a file's hash as a RECORD has it."""
    with open(host.real(path), "rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def glibc_needed(host: Host, dists: Sequence[Distribution]) -> dict[str, str]:
    """Return the glibc that wheels require, "2.28", by the name of their distribution.

    Of several tags the one that requires least counts. Versions that every machine has are left out.
    """
    needed = {}
    for dist in dists:
        if not dist.info.endswith(".dist-info"):
            continue
        text = host.read(f"{dist.info}/WHEEL", _WHEEL_LIMIT)
        tags = [line[4:].strip() for line in text.splitlines() if line.startswith("Tag:")]
        platforms = [part for tag in tags for part in tag.rpartition("-")[2].split(".")]
        least = min(map(_glibc_of, platforms), default=())
        # Tags such as linux_x86_64 and any require no glibc.
        if least > _OLDEST:
            needed[dist.name] = f"{least[0]}.{least[1]}"
    return needed


def _glibc_of(platform: str) -> tuple[int, ...]:
    """Return (2, 28) for manylinux_2_28_x86_64; () for a tag of another kind."""
    if platform.startswith(_OLD_TAGS):
        return _OLDEST
    numbers = platform.removeprefix("manylinux_").split("_")[:2]
    is_one = platform.startswith("manylinux_") and len(numbers) > 1
    return dotted_numbers(".".join(numbers)) if is_one else ()
