"""What a shared library's ELF file says of it, read without loading it.

Sources: the System V ABI (generic,
chapters 4 and 5) and, for GNU hash, notes and symbol versions, the Linux Standard Base.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from mlbackends.libraries.elf_image import PT_NOTE, ElfImage, NotElf, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mlbackends.host.host import Host

__all__ = [
    "Elf",
    "NotElf",
    "defined_symbols",
    "extract",
    "extract_symbols",
    "read_elf",
    "version_definitions",
    "version_needs",
]

_Result = TypeVar("_Result")


class Elf(Struct, frozen=True):
    """The headers and the dynamic section of an ELF file.

    `machine` is in the words of `uname -m` where it has one, else "machine-<number>".
    `rpath` and `runpath` are as written ($ORIGIN is not expanded) and split at the colons; an
    empty element, which the loader takes for the current directory, is ".".
    """

    machine: str
    bits: int
    little_endian: bool
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    build_id: str


def extract(host: Host, path: str, read: Callable[[str], _Result]) -> _Result:
    """Read a file of a host with `read_elf`, `version_definitions` or `version_needs`.

    Raises as read_elf does. A recording keeps the result, and not the file.
    """
    kinds: dict[str, Any] = {"read_elf": Elf, "version_definitions": tuple[str, ...]}
    kind = kinds.get(read.__name__, dict[str, tuple[str, ...]])
    result = host.extracted(path, read.__name__, kind | str, partial(_result_or_message, read))
    if isinstance(result, str):
        raise NotElf(result)
    return result


def extract_symbols(host: Host, path: str, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` that a library of a host defines, as `defined_symbols` does."""

    def defined(file: str) -> dict[str, bool]:
        found = defined_symbols(file, names)
        return {name: name in found for name in names}

    names = tuple(names)
    read = partial(_result_or_message, defined)
    result = host.extracted(path, "defined_symbols", dict[str, bool] | str, read)
    if isinstance(result, str):
        raise NotElf(result)
    return frozenset(name for name in names if result.get(name))


def _result_or_message(read: Callable[[str], _Result], path: str) -> _Result | str:
    try:
        return read(path)
    except NotElf as error:
        return str(error)


def read_elf(path: str) -> Elf:
    """Read the headers, the dynamic section and the build id: a few KB whatever the file's size.

    Raises NotElf, or OSError where the file cannot be opened or read.
    """
    with opened(path) as file:
        image = ElfImage(file)
        texts = image.strings(
            [*image.needed, *(image.tags[tag] for tag in _TEXT_TAGS if tag in image.tags)]
        )
        soname, rpath, runpath = (
            texts[image.tags[tag]] if tag in image.tags else "" for tag in _TEXT_TAGS
        )
        return Elf(
            machine=image.machine,
            bits=image.bits,
            little_endian=image.order == "<",
            soname=soname,
            needed=tuple(texts[position] for position in image.needed),
            rpath=_directories(rpath),
            runpath=_directories(runpath),
            build_id=_build_id(image),
        )


def defined_symbols(path: str, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` that the library defines for others, whatever their symbol version.

    Searches the library's hash table as the loader does, so the cost grows with the number of names,
    not with the size of the library. Raises as read_elf does.
    """
    with opened(path) as file:
        image = ElfImage(file)
        if _DT_GNU_HASH in image.tags:
            table, find = image.tags[_DT_GNU_HASH], _in_gnu_hash
        elif _DT_HASH in image.tags:
            table, find = image.tags[_DT_HASH], _in_hash
        else:
            return frozenset()  # the loader finds nothing in it either
        offset = image.offset_of(table)
        return frozenset(
            name for name in names if find(image, offset, name.encode("utf-8", "surrogatepass"))
        )


def version_definitions(path: str) -> tuple[str, ...]:
    """List the symbol versions that the library defines, in its own order, such as "GOMP_5.0".

    The base definition, which repeats the library's name, is left out. Raises as read_elf does.
    """
    with opened(path) as file:
        image = ElfImage(file)
        if _DT_VERDEF not in image.tags:
            return ()
        positions = list(_version_names(image))
        texts = image.strings(positions)
        return tuple(texts[position] for position in positions)


def version_needs(path: str) -> dict[str, tuple[str, ...]]:
    """Return the symbol versions that it needs of each library: {"libc.so.6": ("GLIBC_2.28",)}.

    Raises as read_elf does.
    """
    with opened(path) as file:
        image = ElfImage(file)
        if _DT_VERNEED not in image.tags:
            return {}
        pairs = list(_needed_names(image))
        texts = image.strings([position for pair in pairs for position in pair])
        needs: dict[str, tuple[str, ...]] = {}
        for library, version in pairs:
            name = texts[library]
            needs[name] = (*needs.get(name, ()), texts[version])
        return needs


_NOTES_BYTES_LIMIT = 64 << 10
_VERSIONS_LIMIT = 4096
# Real chains hold a handful of symbols; the longest seen come from tables with a single bucket.
_CHAIN_LIMIT = 1 << 14

_DT_HASH, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 4, 14, 15, 29
_DT_GNU_HASH, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFEF5, 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_TEXT_TAGS = (_DT_SONAME, _DT_RPATH, _DT_RUNPATH)
_NT_GNU_BUILD_ID = 3
_VER_FLG_BASE = 1
_NO_END = "the ELF file is damaged: a chain of its symbol hash table has no end"


def _directories(path_list: str) -> tuple[str, ...]:
    return tuple(part or "." for part in path_list.split(":")) if path_list else ()


def _build_id(image: ElfImage) -> str:
    for kind, offset, _, size, align in image.segments:
        if kind != PT_NOTE or not size:
            continue
        notes = image.file.exactly(offset, min(size, _NOTES_BYTES_LIMIT))
        padding = align if align in (4, 8) else 4
        at = 0
        while at + 12 <= len(notes):
            name_size, data_size, note = struct.unpack_from(image.order + "III", notes, at)
            data_at = at + -(-(12 + name_size) // padding) * padding
            data = notes[data_at : data_at + data_size]
            if note == _NT_GNU_BUILD_ID and notes[at + 12 : at + 12 + name_size] == b"GNU\0":
                return data.hex() if len(data) == data_size else ""
            at = data_at + -(-data_size // padding) * padding
    return ""


def _in_gnu_hash(image: ElfImage, table: int, name: bytes) -> bool:
    bucket_count, first_symbol, bloom_count, bloom_shift = image.unpack("4I", table)
    if not bucket_count or not bloom_count:
        return False
    wanted = 5381
    for byte in name:
        wanted = (wanted * 33 + byte) & 0xFFFFFFFF
    word_bytes = image.bits // 8
    bloom_at = table + 16
    at = bloom_at + word_bytes * (wanted // image.bits % bloom_count)
    (bloom,) = image.unpack("W", at)
    if not bloom >> wanted % image.bits & bloom >> (wanted >> bloom_shift) % image.bits & 1:
        return False
    buckets_at = bloom_at + word_bytes * bloom_count
    (symbol,) = image.unpack("I", buckets_at + 4 * (wanted % bucket_count))
    if symbol < first_symbol:
        return False
    chain_at = buckets_at + 4 * bucket_count - 4 * first_symbol
    for index in range(symbol, symbol + _CHAIN_LIMIT):
        (found,) = image.unpack("I", chain_at + 4 * index)
        if found | 1 == wanted | 1 and image.defines(index, name):
            return True
        if found & 1:
            return False
    raise NotElf(_NO_END)


def _in_hash(image: ElfImage, table: int, name: bytes) -> bool:
    # The one ABI in use whose hash table has words of eight bytes.
    layout, entry_bytes = ("Q", 8) if image.machine == "s390x" else ("I", 4)
    bucket_count, chain_count = image.unpack(layout * 2, table)
    if not bucket_count:
        return False
    wanted = 0
    for byte in name:
        wanted = (wanted << 4) + byte & 0xFFFFFFFF
        high = wanted & 0xF0000000
        wanted = (wanted ^ high >> 24) & ~high
    buckets_at = table + 2 * entry_bytes
    chain_at = buckets_at + entry_bytes * bucket_count
    (index,) = image.unpack(layout, buckets_at + entry_bytes * (wanted % bucket_count))
    for _ in range(min(chain_count, _CHAIN_LIMIT)):
        if index == 0:
            return False
        if index < chain_count and image.defines(index, name):
            return True
        (index,) = image.unpack(layout, chain_at + entry_bytes * index)
    if index == 0:
        return False
    raise NotElf(_NO_END)


def _version_names(image: ElfImage) -> Iterator[int]:
    """Yield the string position of the name of each version definition."""
    at = image.offset_of(image.tags[_DT_VERDEF])
    for _ in range(min(image.tags.get(_DT_VERDEFNUM, _VERSIONS_LIMIT), _VERSIONS_LIMIT)):
        _, flags, _, name_count, _, first_name, following = image.unpack("HHHHIII", at)
        if name_count and not flags & _VER_FLG_BASE:
            # The names after the first are the versions that this one inherits from.
            yield image.unpack("I", at + first_name)[0]
        if not following:
            return
        at += following


def _needed_names(image: ElfImage) -> Iterator[tuple[int, int]]:
    """Yield the string positions of each library's name and of each version needed of it."""
    at = image.offset_of(image.tags[_DT_VERNEED])
    left = _VERSIONS_LIMIT
    for _ in range(min(image.tags.get(_DT_VERNEEDNUM, _VERSIONS_LIMIT), _VERSIONS_LIMIT)):
        _, count, library, first, following = image.unpack("HHIII", at)
        name_at = at + first
        for _ in range(min(count, left)):
            _, _, _, version, next_name = image.unpack("IHHII", name_at)
            yield library, version
            left -= 1
            if not next_name:
                break
            name_at += next_name
        if not following or not left:
            return
        at += following
