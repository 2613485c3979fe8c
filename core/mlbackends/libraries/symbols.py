"""The symbols that a library defines and the symbol versions that it needs, found as the loader finds them.

Sources: the System V ABI; for GNU hash tables and symbol versions, the Linux Standard Base.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import Elf, ElfImage, elf_headers

if TYPE_CHECKING:
    from mlbackends.libraries.macho import MachO
    from mlbackends.libraries.pe import Pe


def headers(host: Host, path: str) -> "Elf | Pe | MachO":
    """Return machine, own name and needed libraries of a file. Raises NotALibrary and OSError."""
    if host.platform == "win32":
        from mlbackends.libraries.pe import pe_headers

        return pe_headers(host, path)
    if host.platform == "darwin":
        from mlbackends.libraries.macho import macho_headers

        return macho_headers(host, path)
    return elf_headers(host, path)


def extract_symbols(host: Host, path: str, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` that a library of a host defines, as `defined_symbols` does."""
    names = tuple(names)
    reader: Callable[[str, Iterable[str]], frozenset[str]] = defined_symbols
    if host.platform == "win32":
        from mlbackends.libraries import pe

        reader = pe.exported_symbols
    elif host.platform == "darwin":
        from mlbackends.libraries import macho

        reader = macho.exported_symbols
    read = partial(_are_defined, reader, names)
    defined = host.extracted(path, read, dict[str, bool], "defined_symbols")
    return frozenset(name for name in names if defined.get(name))


def _are_defined(
    read: Callable[[str, Iterable[str]], frozenset[str]], names: tuple[str, ...], path: str
) -> dict[str, bool]:
    defined = read(path, names)
    return {name: name in defined for name in names}


@once_per_host
def symbol_versions(host: Host, path: str) -> tuple[str, ...]:
    """Return the symbol versions that a library of a host defines, as `version_definitions` does."""
    return host.extracted(path, version_definitions, tuple[str, ...])


def defined_symbols(path: str, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` that an ELF library defines for others, whatever their symbol version.

    Searches the library's hash table, so the cost grows with the number of names and not with the size of
    the library. Raises as read_elf does.
    """
    with ElfImage(path) as image:
        if _DT_GNU_HASH in image.tags:
            table, search = image.tags[_DT_GNU_HASH], _in_gnu_hash
        elif _DT_HASH in image.tags:
            table, search = image.tags[_DT_HASH], _in_hash
        else:
            return frozenset()  # the loader finds nothing in it either
        offset = image.offset_of(table)
        return frozenset(
            name for name in names if search(image, offset, name.encode("utf-8", "surrogatepass"))
        )


def version_definitions(path: str) -> tuple[str, ...]:
    """Return the symbol versions that the library defines, in its own order, such as "GOMP_5.0".

    The base definition, which repeats the library's name, is left out. Raises as read_elf does.
    """
    with ElfImage(path) as image:
        _, names = symbol_versions_of(image)
        # Number 1 is the base definition's.
        return tuple(version for number, (file, version) in names.items() if not file and number != 1)


def version_needs(path: str) -> dict[str, tuple[str, ...]]:
    """Return the symbol versions that a library needs of each other: {"libc.so.6": ("GLIBC_2.28",)}.

    Raises as read_elf does.
    """
    with ElfImage(path) as image:
        needs, _ = symbol_versions_of(image)
        return {file: tuple(versions) for file, versions in needs.items()}


def symbol_versions_of(image: ElfImage) -> tuple[dict[str, dict[str, bool]], dict[int, tuple[str, str]]]:
    """Return the symbol versions that a file needs by library, and all of its versions by their number.

    A version that is needed is given with whether it is optional; by number, with its library, which is ""
    for those that the file defines itself. The base definition repeats the file's name.
    """
    needs: dict[str, dict[str, bool]] = {}
    names: dict[int, tuple[str, str]] = {}
    left = _VERSIONS_LIMIT
    if _DT_VERNEED in image.tags:
        table, most = image.offset_of(image.tags[_DT_VERNEED]), image.tags.get(_DT_VERNEEDNUM)
        for at, (_, count, library, first) in image.chain("HHIII", table, most):
            file = image.string(library) if min(count, left) else ""
            for _, (_, flags, number, version) in image.chain("IHHII", at + first, min(count, left)):
                text = image.string(version)
                needs.setdefault(file, {})[text] = bool(flags & _VER_FLG_WEAK)
                names[number & 0x7FFF] = file, text
                left -= 1
    if _DT_VERDEF in image.tags:
        table, most = image.offset_of(image.tags[_DT_VERDEF]), image.tags.get(_DT_VERDEFNUM)
        for at, (_, _, number, count, _, first) in image.chain("HHHHIII", table, most):
            if count:  # the names after the first are the versions that this one inherits from
                names[number & 0x7FFF] = "", image.string(image.unpack("I", at + first)[0])
    return needs, names


_VERSIONS_LIMIT = 4096
# Real chains hold a handful of symbols; the longest seen come from tables with a single bucket.
_CHAIN_LIMIT = 1 << 14

_DT_HASH, _DT_GNU_HASH = 4, 0x6FFFFEF5
_DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_VER_FLG_WEAK = 2
_NO_END = "the ELF file is damaged: a chain of its symbol hash table has no end"


def gnu_hash(name: bytes) -> int:
    """Return the hash of a name in GNU hash tables."""
    hashed = 5381
    for byte in name:
        hashed = (hashed * 33 + byte) & 0xFFFFFFFF
    return hashed


def _in_gnu_hash(image: ElfImage, table: int, name: bytes) -> bool:
    bucket_count, first_symbol, bloom_count, bloom_shift = image.unpack("4I", table)
    if not bucket_count or not bloom_count:
        return False
    hashed = gnu_hash(name)
    word_bytes = image.bits // 8
    bloom_at = table + 16
    (bloom,) = image.unpack("W", bloom_at + word_bytes * (hashed // image.bits % bloom_count))
    if not bloom >> hashed % image.bits & bloom >> (hashed >> bloom_shift) % image.bits & 1:
        return False
    buckets_at = bloom_at + word_bytes * bloom_count
    (symbol,) = image.unpack("I", buckets_at + 4 * (hashed % bucket_count))
    if symbol < first_symbol:
        return False
    chain_at = buckets_at + 4 * bucket_count - 4 * first_symbol
    for index in range(symbol, symbol + _CHAIN_LIMIT):
        (entry,) = image.unpack("I", chain_at + 4 * index)
        if entry | 1 == hashed | 1 and image.defines(index, name):
            return True
        if entry & 1:
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
