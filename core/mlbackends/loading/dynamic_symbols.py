"""The dynamic symbols of an ELF file: what it defines for others, what it lacks, and in which versions.

A framework defines 200,000 symbols, and what is built on it lacks 10,000. So nothing is read by name: the
chains of the GNU hash table hold the hash of each defined symbol, and a name is compared only where the hash
is equal. Sources: the System V ABI; for GNU hash tables and versions, the Linux Standard Base; for the order
in which relocations are processed, glibc, elf/dynamic-link.h.
"""

import struct
from array import array
from collections.abc import Collection, Iterable, Iterator, KeysView
from typing import NamedTuple

from mlbackends.base.errors import NotALibrary
from mlbackends.libraries.elf import ElfImage, text_of
from mlbackends.libraries.symbols import gnu_hash


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
        self._layout = image.order + ("IBBHQQ" if image.bits == _WIDE else "IIIBBH")
        self._relocations = [
            (image.offset_of(image.tags[start]), image.tags[size], start)
            for start, size in _RELOCATIONS
            if start in image.tags and image.tags.get(size)
        ]
        self.needs, defined, names = _versions(image)
        self.versions = frozenset(defined)
        self.lacking, self.lacking_by_hash, self._indices = {}, {}, {}
        self._table = self._strings = b""
        if _DT_SYMTAB not in image.tags or _DT_STRTAB not in image.tags:
            return
        hashed_from, chain = _hash_chain(image)
        count = hashed_from + len(chain)
        size = struct.calcsize(self._layout)
        self._table = image.exactly(image.offset_of(image.tags[_DT_SYMTAB]), count * size)
        self._strings = image.exactly(image.offset_of(image.tags[_DT_STRTAB]), image.tags[_DT_STRSZ])
        self._version_of: array[int] = array("H")
        if _DT_VERSYM in image.tags:
            self._version_of.frombytes(image.exactly(image.offset_of(image.tags[_DT_VERSYM]), 2 * count))
        self._names = names
        self._indices = dict(zip(chain, range(hashed_from, count), strict=True))
        self._repeated = {} if len(self._indices) == len(chain) else _repeated(chain, hashed_from)
        has_hash = _DT_GNU_HASH in image.tags
        for index, (at, bind, section) in enumerate(self._entries(hashed_from if has_hash else count)):
            if section == 0 and bind == _STB_GLOBAL and index:
                name = self._name(at)
                file, version = names.get(self._version_index(index), ("", ""))
                self.lacking[index] = Symbol(name, version, file, value := gnu_hash(name) | 1)
                self.lacking_by_hash.setdefault(value, []).append(index)
        if not has_hash:  # an older table holds no hashes
            self._indices = {
                gnu_hash(self._name(at)) | 1: index
                for index, (at, bind, section) in enumerate(self._entries(count))
                if section and bind
            }
            self._repeated = {}

    def _entries(self, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield the name's place, the binding and the section of the first symbols."""
        size = struct.calcsize(self._layout)
        if self._layout[1:] == "IBBHQQ":
            for at, info, _, section, _, _ in struct.iter_unpack(self._layout, self._table[: count * size]):
                yield at, info >> 4, section
        else:
            for at, _, _, info, _, section in struct.iter_unpack(self._layout, self._table[: count * size]):
                yield at, info >> 4, section

    def _name(self, at: int) -> bytes:
        end = self._strings.find(b"\0", at)
        if end < 0:
            raise NotALibrary("the ELF file is damaged: a name in its string table has no end")
        return self._strings[at:end]

    def _version_index(self, index: int) -> int:
        return self._version_of[index] & 0x7FFF if index < len(self._version_of) else 1

    def may_define(self, hashes: KeysView[int]) -> Collection[int]:
        """Return those of some hashes that symbols of the file have."""
        return hashes & self._indices.keys()

    def defines(self, symbol: Symbol) -> bool:
        """Return whether the file defines a symbol for others, in the version that is asked for.

        As the loader decides: a file without versions has any; without a version the default one is taken.
        """
        index = self._indices.get(symbol.hash)
        if index is None:
            return False
        return any(self._is(at, symbol) for at in self._repeated.get(symbol.hash, (index,)))

    def _is(self, index: int, symbol: Symbol) -> bool:
        size = struct.calcsize(self._layout)
        fields = struct.unpack_from(self._layout, self._table, index * size)
        at, info, section = (fields[0], fields[1], fields[3]) if size == _WIDE_BYTES else (
            fields[0], fields[3], fields[5]
        )  # fmt: skip
        if section == 0 or info >> 4 not in (1, 2, 10):  # global, weak, unique
            return False
        end = at + len(symbol.name)
        if self._strings[at:end] != symbol.name or self._strings[end : end + 1] != b"\0":
            return False
        if not symbol.version or not self.versions or index >= len(self._version_of):
            return True
        own = self._names.get(self._version_index(index), ("", ""))[1]
        return own == symbol.version or (not own and self._version_index(index) == 1)

    def names(self) -> Iterator[bytes]:
        """Yield the name of every symbol that the file defines for others."""
        for at, bind, section in self._entries(len(self._table) // max(1, struct.calcsize(self._layout))):
            if section and bind:
                yield self._name(at)

    def first_used(self, image: ElfImage, indices: Iterable[int]) -> int | None:
        """Return which of these symbols the loader looks up first, None for those that nothing uses."""
        wanted = frozenset(indices)
        word = "Q" if image.bits == _WIDE else "I"
        for start, size, tag in self._relocations:
            is_long = tag == _DT_RELA or (tag == _DT_JMPREL and image.tags.get(_DT_PLTREL) == _DT_RELA)
            layout = image.order + word * (3 if is_long else 2)
            data = image.exactly(start, size - size % struct.calcsize(layout))
            shift = 32 if image.bits == _WIDE else 8
            for _, info, *_ in struct.iter_unpack(layout, data):
                if info >> shift in wanted:
                    return int(info >> shift)
        return None


def _hash_chain(image: ElfImage) -> tuple[int, "array[int]"]:
    """Return the index of the first symbol in the hash table, and the hashes from there, with bit 0 set.

    Without a GNU hash table they are all zero: only their number is known.
    """
    chain = array("I")
    if _DT_GNU_HASH not in image.tags:
        if _DT_HASH not in image.tags:
            return 0, chain
        at = image.offset_of(image.tags[_DT_HASH])
        words = "2Q" if image.machine == "s390x" else "2I"
        count = image.unpack(words, at)[1]
        return min(count, _MOST_SYMBOLS), chain
    table = image.offset_of(image.tags[_DT_GNU_HASH])
    bucket_count, first, bloom_count, _ = image.unpack("4I", table)
    buckets_at = table + 16 + bloom_count * image.bits // 8
    buckets = array("I", image.exactly(buckets_at, 4 * bucket_count))
    if image.order != _NATIVE:
        buckets.byteswap()
    last = max(buckets, default=0)
    if last < first:
        return first, chain
    chain_at = buckets_at + 4 * bucket_count
    while not chain or not chain[-1] & 1:  # the chain that begins last ends the table
        at, length = len(chain), last - first + 1 if not chain else 64
        length = min(length, (image.size - chain_at) // 4 - at)
        if length <= 0 or at > _MOST_SYMBOLS:
            raise NotALibrary("the ELF file is damaged: a chain of its symbol hash table has no end")
        piece = array("I", image.exactly(chain_at + 4 * at, 4 * length))
        if image.order != _NATIVE:
            piece.byteswap()
        if at:
            end = next((i for i, value in enumerate(piece) if value & 1), len(piece) - 1)
            piece = piece[: end + 1]
        chain.extend(piece)
    return first, array("I", [value | 1 for value in chain])


def _repeated(chain: "array[int]", first: int) -> dict[int, list[int]]:
    """Return the indices of the hashes that several symbols have: versions of one name, or other names."""
    seen: dict[int, int] = {}
    repeated: dict[int, list[int]] = {}
    for index, value in enumerate(chain, first):
        before = seen.setdefault(value, index)
        if before != index:
            repeated.setdefault(value, [before]).append(index)
    return repeated


def _versions(
    image: ElfImage,
) -> tuple[dict[str, dict[str, bool]], list[str], dict[int, tuple[str, str]]]:
    """Return the versions that a file needs by library, those that it defines, and both by their index."""
    needs: dict[str, dict[str, bool]] = {}
    names: dict[int, tuple[str, str]] = {}
    defined = []
    if _DT_VERNEED in image.tags:
        table, most = image.offset_of(image.tags[_DT_VERNEED]), image.tags.get(_DT_VERNEEDNUM)
        for at, (_, count, library, first) in image.chain("HHIII", table, most):
            file = image.string(library)
            for _, (_, flags, index, version) in image.chain("IHHII", at + first, count):
                text = image.string(version)
                needs.setdefault(file, {})[text] = bool(flags & _VER_FLG_WEAK)
                names[index & 0x7FFF] = file, text
    if _DT_VERDEF in image.tags:
        table, most = image.offset_of(image.tags[_DT_VERDEF]), image.tags.get(_DT_VERDEFNUM)
        for at, (_, flags, index, count, _, first) in image.chain("HHHHIII", table, most):
            if count:
                text = image.string(image.unpack("I", at + first)[0])
                defined.append(text)
                if not flags & _VER_FLG_BASE:
                    names[index & 0x7FFF] = "", text
    return needs, defined, names


_WIDE, _WIDE_BYTES = 64, 24
_NATIVE = "<" if struct.pack("=H", 1) == b"\1\0" else ">"
_MOST_SYMBOLS = 1 << 22
_STB_GLOBAL = 1
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_STRSZ, _DT_PLTREL = 4, 5, 6, 7, 10, 20
_DT_JMPREL, _DT_GNU_HASH, _DT_VERSYM = 23, 0x6FFFFEF5, 0x6FFFFFF0
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
#: The tags of a table's place and of its size, in the order in which the loader goes through them.
_RELOCATIONS = ((_DT_RELA, 8), (17, 18), (_DT_JMPREL, 2))
