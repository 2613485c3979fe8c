"""The dynamic symbols of an ELF file: what it defines for others, what it lacks, and in which versions.

A framework defines 200,000 symbols, and what is built on it lacks 10,000. So nothing is read by name: the
chains of the GNU hash table hold the hash of each defined symbol, and a name is compared only where the hash
is equal. Sources: the System V ABI; for GNU hash tables and versions, the Linux Standard Base; for the order
in which relocations are processed, glibc, elf/dynamic-link.h.
"""

import struct
from collections.abc import Collection, Iterable, Iterator, KeysView, Sequence
from typing import NamedTuple

from mlbackends.base.errors import NotALibrary
from mlbackends.libraries.elf import ElfImage, text_of
from mlbackends.libraries.symbols import gnu_hash, symbol_versions_of


class Symbol(NamedTuple):
    """A symbol that a file lacks. version: "" for any; file: the library that the version was linked from."""

    name: bytes
    version: str = ""
    file: str = ""
    hash: int = 0

    def __str__(self) -> str:
        return text_of(self.name)


def symbol(name: str) -> Symbol:
    """Return a symbol to look for, in any version."""
    encoded = name.encode("utf-8", "surrogateescape")
    return Symbol(encoded, hash=gnu_hash(encoded) | 1)


class DynamicSymbols:
    """The dynamic symbols of one file.

    lacking: what it lacks, in the table's order, by the index there; weak symbols are left out, which may
    stay undefined. lacking_by_hash: those indices by the hash of the name. needs: the versions that it needs,
    with whether each is optional, by library. versions: those that it defines.
    """

    lacking: dict[int, Symbol]
    lacking_by_hash: dict[int, list[int]]
    needs: dict[str, dict[str, bool]]
    versions: frozenset[str]

    def __init__(self, image: ElfImage) -> None:
        #: The name's place, the binding and type, and the section of a symbol.
        self._layout = image.order + ("IBxH16x" if image.bits == _WIDE else "I8xBxH")
        self.needs, self._names = symbol_versions_of(image)
        self.versions = frozenset(version for file, version in self._names.values() if not file)
        self._names.pop(_VER_NDX_GLOBAL, None)  # the base definition: what has it has no version
        self.lacking, self.lacking_by_hash = {}, {}
        #: The first index of each hash with bit 0 set, and the others: versions of one name, or other names.
        self._indices: dict[int, int] = {}
        self._repeated: dict[int, list[int]] = {}
        self._table = self._strings = b""
        if _DT_SYMTAB not in image.tags or _DT_STRTAB not in image.tags:
            return
        first, chain = _hash_chain(image)
        count = first + len(chain)
        at = image.offset_of(image.tags[_DT_SYMTAB])
        self._table = image.exactly(at, count * struct.calcsize(self._layout))
        self._strings = image.exactly(image.offset_of(image.tags[_DT_STRTAB]), image.tags[_DT_STRSZ])
        self._version_of: tuple[int, ...] = ()
        if _DT_VERSYM in image.tags:
            self._version_of = image.unpack(f"{count}H", image.offset_of(image.tags[_DT_VERSYM]))
        has_hash = _DT_GNU_HASH in image.tags
        for index, (at, bind, section) in enumerate(self._entries(first if has_hash else count)):
            if section == 0 and bind == _STB_GLOBAL and index:
                name = self._name(at)
                file, version = self._names.get(self._version_index(index), ("", ""))
                self.lacking[index] = Symbol(name, version, file, value := gnu_hash(name) | 1)
                self.lacking_by_hash.setdefault(value, []).append(index)
        if not has_hash:  # an older table holds no hashes
            chain = [gnu_hash(self._name(at)) | 1 for at, _, _ in self._entries(count)]
        for index, value in enumerate(chain, first):
            if self._indices.setdefault(value | 1, index) != index:
                self._repeated.setdefault(value | 1, []).append(index)

    def _entries(self, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield the name's place, the binding and the section of the first symbols."""
        data = self._table[: count * struct.calcsize(self._layout)]
        return ((at, info >> 4, section) for at, info, section in struct.iter_unpack(self._layout, data))

    def _name(self, at: int) -> bytes:
        end = self._strings.find(b"\0", at)
        if end < 0:
            raise NotALibrary("the ELF file is damaged: a name in its string table has no end")
        return self._strings[at:end]

    def _version_index(self, index: int) -> int:
        return self._version_of[index] & 0x7FFF if self._version_of else _VER_NDX_GLOBAL

    def may_define(self, hashes: KeysView[int]) -> Collection[int]:
        """Return those of some hashes that symbols of the file have."""
        return hashes & self._indices.keys()

    def defines(self, symbol: Symbol) -> bool:
        """Return whether a file defines a symbol for others, in the version that is asked for.

        As the loader decides: a file without versions has any; without a version the default one is taken.
        """
        first = self._indices.get(symbol.hash)
        if first is None:
            return False
        return any(self._is(index, symbol) for index in (first, *self._repeated.get(symbol.hash, ())))

    def _is(self, index: int, symbol: Symbol) -> bool:
        place = index * struct.calcsize(self._layout)
        at, info, section = struct.unpack_from(self._layout, self._table, place)
        is_exported = section and info >> 4 in _STB_EXPORTED
        if not is_exported or not self._strings.startswith(symbol.name + b"\0", at):
            return False
        number = self._version_index(index)
        is_any = not (symbol.version and self.versions) or number == _VER_NDX_GLOBAL
        return is_any or self._names.get(number, ("", ""))[1] == symbol.version

    def names(self) -> Iterator[bytes]:
        """Yield the name of every symbol that the file defines for others."""
        entries = self._entries(len(self._table))
        return (self._name(at) for at, bind, section in entries if section and bind)

    def first_used(self, image: ElfImage, indices: Iterable[int]) -> int | None:
        """Return which of these symbols the loader looks up first, None for those that nothing uses."""
        wanted, tags, word = frozenset(indices), image.tags, "Q" if image.bits == _WIDE else "I"
        for tag, size in _RELOCATIONS:
            if tag not in tags or not tags.get(size):
                continue
            is_long = tag == _DT_RELA or (tag == _DT_JMPREL and tags.get(_DT_PLTREL) == _DT_RELA)
            layout = image.order + word * (3 if is_long else 2)
            length = tags[size] - tags[size] % struct.calcsize(layout)
            for _, info, *_ in struct.iter_unpack(layout, image.exactly(image.offset_of(tags[tag]), length)):
                index = info >> (32 if image.bits == _WIDE else 8)
                if index in wanted:
                    return int(index)
        return None


def _hash_chain(image: ElfImage) -> tuple[int, Sequence[int]]:
    """Return the index of the first symbol in the hash table, and the chains of hashes from there.

    Without a GNU hash table they are all zero: only their number is known.
    """
    if _DT_GNU_HASH not in image.tags:
        if _DT_HASH not in image.tags:
            return 0, ()
        words = "2Q" if image.machine == "s390x" else "2I"
        count = image.unpack(words, image.offset_of(image.tags[_DT_HASH]))[1]
        return 0, bytes(min(count, _MOST_SYMBOLS))
    table = image.offset_of(image.tags[_DT_GNU_HASH])
    bucket_count, first, bloom_count, _ = image.unpack("4I", table)
    buckets_at = table + 16 + bloom_count * image.bits // 8
    last = max(image.unpack(f"{bucket_count}I", buckets_at), default=0)
    if last < first:
        return first, ()
    chain_at = buckets_at + 4 * bucket_count
    chain = [*image.unpack(f"{last - first + 1}I", chain_at)]
    while not chain[-1] & 1 and len(chain) < _MOST_SYMBOLS:  # the chain that begins last ends the table
        chain += image.unpack("I", chain_at + 4 * len(chain))
    return first, chain


_WIDE = 64
_MOST_SYMBOLS = 1 << 22
_VER_NDX_GLOBAL, _STB_GLOBAL, _STB_EXPORTED = 1, 1, (1, 2, 10)  # global, weak, unique
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_STRSZ, _DT_PLTREL = 4, 5, 6, 7, 10, 20
_DT_JMPREL, _DT_GNU_HASH, _DT_VERSYM = 23, 0x6FFFFEF5, 0x6FFFFFF0
#: The tags of a table's place and of its size, in the order in which the loader goes through them.
_RELOCATIONS = ((_DT_RELA, 8), (17, 18), (_DT_JMPREL, 2))
