"""What a shared library's ELF file says of it, read without loading it.

Sources: the System V ABI (generic, chapters 4 and 5) and, for GNU hash and symbol versions, the Linux
Standard Base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from mlbackends.libraries.elf_image import ElfImage, opened
from mlbackends.libraries.file_image import NotALibrary

if TYPE_CHECKING:
    from collections.abc import Iterable


class Elf(Struct, frozen=True):
    """The headers and the dynamic section of an ELF file.

    `machine` is in the words of `uname -m` where it has one, else "machine-<number>".
    `rpath` and `runpath` are as written ($ORIGIN is not expanded) and split at the colons; an
    empty element, which the loader takes for the current directory, is ".".
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


def read_elf(path: str) -> Elf:
    """Read the headers and the dynamic section: a few KB whatever the file's size.

    Raises NotALibrary, or OSError where the file cannot be opened or read.
    """
    with opened(path) as image:
        soname, rpath, runpath = (
            image.string(image.tags[tag]) if tag in image.tags else ""
            for tag in (_DT_SONAME, _DT_RPATH, _DT_RUNPATH)
        )
        return Elf(
            machine=image.machine,
            soname=soname,
            needed=tuple(map(image.string, image.needed)),
            rpath=_directories(rpath),
            runpath=_directories(runpath),
        )


def defined_symbols(path: str, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` that the library defines for others, whatever their symbol version.

    Searches the library's hash table as the loader does, so the cost grows with the number of names,
    not with the size of the library. Raises as read_elf does.
    """
    with opened(path) as image:
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
    with opened(path) as image:
        if _DT_VERDEF not in image.tags:
            return ()
        names = []
        table, most = image.offset_of(image.tags[_DT_VERDEF]), image.tags.get(_DT_VERDEFNUM)
        for at, (_, flags, _, name_count, _, first) in image.chain("HHHHIII", table, most):
            if name_count and not flags & _VER_FLG_BASE:
                # The names after the first are the versions that this one inherits from.
                names.append(image.string(image.unpack("I", at + first)[0]))
        return tuple(names)


def version_needs(path: str) -> dict[str, tuple[str, ...]]:
    """Return the symbol versions that it needs of each library: {"libc.so.6": ("GLIBC_2.28",)}.

    Raises as read_elf does.
    """
    with opened(path) as image:
        if _DT_VERNEED not in image.tags:
            return {}
        needs: dict[str, tuple[str, ...]] = {}
        left = _VERSIONS_LIMIT
        table, most = image.offset_of(image.tags[_DT_VERNEED]), image.tags.get(_DT_VERNEEDNUM)
        for at, (_, count, library, first) in image.chain("HHIII", table, most):
            name = image.string(library) if min(count, left) else ""
            for _, (_, _, _, version) in image.chain("IHHII", at + first, min(count, left)):
                needs[name] = (*needs.get(name, ()), image.string(version))
                left -= 1
        return needs


_VERSIONS_LIMIT = 4096
# Real chains hold a handful of symbols; the longest seen come from tables with a single bucket.
_CHAIN_LIMIT = 1 << 14

_DT_HASH, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 4, 14, 15, 29
_DT_GNU_HASH, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFEF5, 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_VER_FLG_BASE = 1
_NO_END = "the ELF file is damaged: a chain of its symbol hash table has no end"


def _directories(path_list: str) -> tuple[str, ...]:
    return tuple(part or "." for part in path_list.split(":")) if path_list else ()


def _in_gnu_hash(image: ElfImage, table: int, name: bytes) -> bool:
    bucket_count, first_symbol, bloom_count, bloom_shift = image.unpack("4I", table)
    if not bucket_count or not bloom_count:
        return False
    hashed = 5381
    for byte in name:
        hashed = (hashed * 33 + byte) & 0xFFFFFFFF
    word_bytes = image.bits // 8
    bloom_at = table + 16
    at = bloom_at + word_bytes * (hashed // image.bits % bloom_count)
    (bloom,) = image.unpack("W", at)
    if not bloom >> hashed % image.bits & bloom >> (hashed >> bloom_shift) % image.bits & 1:
        return False
    buckets_at = bloom_at + word_bytes * bloom_count
    (symbol,) = image.unpack("I", buckets_at + 4 * (hashed % bucket_count))
    if symbol < first_symbol:
        return False
    chain_at = buckets_at + 4 * bucket_count - 4 * first_symbol
    for index in range(symbol, symbol + _CHAIN_LIMIT):
        (found,) = image.unpack("I", chain_at + 4 * index)
        if found | 1 == hashed | 1 and image.defines(index, name):
            return True
        if found & 1:
            return False
    raise NotALibrary(_NO_END)


def _in_hash(image: ElfImage, table: int, name: bytes) -> bool:
    # The one ABI in use whose hash table has words of eight bytes.
    layout, entry_bytes = ("Q", 8) if image.machine == "s390x" else ("I", 4)
    bucket_count, chain_count = image.unpack(layout * 2, table)
    if not bucket_count:
        return False
    hashed = 0
    for byte in name:
        hashed = (hashed << 4) + byte & 0xFFFFFFFF
        high = hashed & 0xF0000000
        hashed = (hashed ^ high >> 24) & ~high
    buckets_at = table + 2 * entry_bytes
    chain_at = buckets_at + entry_bytes * bucket_count
    (index,) = image.unpack(layout, buckets_at + entry_bytes * (hashed % bucket_count))
    for _ in range(min(chain_count, _CHAIN_LIMIT)):
        if index == 0:
            return False
        if index < chain_count and image.defines(index, name):
            return True
        (index,) = image.unpack(layout, chain_at + entry_bytes * index)
    if index == 0:
        return False
    raise NotALibrary(_NO_END)
