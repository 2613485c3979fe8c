"""An ELF file seen as the loader sees it: segments, dynamic section, strings and symbols.

Nothing but program headers is trusted to be there: section headers may be stripped. Every read is
checked against the size of the file first.
"""

from __future__ import annotations

import os
import stat
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mlbackends.model.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator


class NotElf(ValueError):
    """The file is not an ELF library or program that could be read; the message is one sentence."""


class ElfFile:
    """A regular file, read in pieces that never reach beyond its end."""

    __slots__ = ("descriptor", "head", "size")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        status = os.fstat(descriptor)
        _require_regular(status.st_mode)
        self.size = status.st_size
        self.head = os.pread(descriptor, _HEAD_BYTES, 0)

    def exactly(self, offset: int, length: int) -> bytes:
        """Read all of a range, or raise NotElf."""
        end = offset + length
        if end <= len(self.head):
            return self.head[offset:end]
        if end > self.size:
            raise NotElf(
                f"the file is cut short or damaged: it has {self.size} bytes"
                f" and its headers point to byte {end}"
            )
        data = os.pread(self.descriptor, length, offset)
        if len(data) < length:
            raise NotElf("the file became shorter while it was read")
        return data


@contextmanager
def opened(path: str) -> Iterator[ElfFile]:
    """Open a file; raises NotElf where it is no regular one, and OSError."""
    # A FIFO would block and a device node may do anything when it is opened: look first.
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:
        raise NotElf("the path has a character that no file name can have") from error
    _require_regular(mode)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        yield ElfFile(descriptor)
    finally:
        os.close(descriptor)


def _require_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise NotElf(f"the path leads to {what}, not to an ELF library")


class ElfImage:
    """The headers and the dynamic section, in the file's word size and byte order.

    `tags` maps a dynamic tag to its value, the last one where it is repeated, as in the loader;
    `needed` holds the string positions of DT_NEEDED, which is the one tag that repeats by design.
    """

    __slots__ = ("bits", "file", "machine", "needed", "order", "segments", "tags", "wide", "word")

    def __init__(self, file: ElfFile) -> None:
        head = file.head
        if head[:4] != b"\x7fELF":
            raise NotElf(f"the file is {_format_of(head)}, not an ELF library")
        self.file = file
        self.bits = {b"\x01": 32, b"\x02": 64}.get(head[4:5], 0)
        self.order = {b"\x01": "<", b"\x02": ">"}.get(head[5:6], "")
        if not self.bits or not self.order:
            raise NotElf("the ELF header gives no known word size or byte order")
        self.wide = self.bits == _WIDE_BITS
        self.word = "Q" if self.wide else "I"
        self._read_headers()
        self._read_dynamic()

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        """Unpack at a file offset; "W" in the layout is a word of the file's size."""
        form = self.order + layout.replace("W", self.word)
        return struct.unpack(form, self.file.exactly(offset, struct.calcsize(form)))

    def offset_of(self, address: int) -> int:
        """Return where in the file the loader takes this virtual address from."""
        for kind, offset, start, size, _ in self.segments:
            if kind == PT_LOAD and start <= address < start + size:
                return offset + address - start
        raise NotElf(f"the ELF file is damaged: address {address:#x} is in no loaded segment")

    def _read_headers(self) -> None:
        kind, number, _, _, start, _, _, _, entry_size, count = self.unpack("HHIWWWIHHH", 16)
        if kind not in (2, 3):
            what = _UNLOADABLE.get(kind, "an ELF file of an unknown type")
            raise NotElf(f"the file is {what}, not a library or program")
        self.machine = table("libraries/machines")["elf"].get(
            f"{number}/{self.bits}", f"machine-{number}"
        )
        if self.machine == "ppc64" and self.order == "<":
            self.machine = "ppc64le"
        layout = self.order + ("IIQQQQQQ" if self.wide else "IIIIIIII")
        if entry_size != struct.calcsize(layout) or not 0 < count <= _SEGMENTS_LIMIT:
            raise NotElf("the ELF file is damaged: its program headers have an impossible size")
        self.segments: list[tuple[int, int, int, int, int]] = []
        for fields in struct.iter_unpack(layout, self.file.exactly(start, entry_size * count)):
            if self.wide:
                kind, _, offset, address, _, size, _, align = fields
            else:
                kind, offset, address, _, size, _, _, align = fields
            self.segments.append((kind, offset, address, size, align))
        end = max((s[1] + s[3] for s in self.segments if s[0] == PT_LOAD), default=0)
        if end > self.file.size:
            raise NotElf(
                f"the file is cut short: it has {self.file.size} bytes and its segments need {end}"
            )

    def _read_dynamic(self) -> None:
        self.tags: dict[int, int] = {}
        self.needed: list[int] = []
        section = next(((s[1], s[3]) for s in self.segments if s[0] == PT_DYNAMIC), None)
        if section is None:
            return
        offset, size = section
        if size == 0:
            raise NotElf("the ELF file holds debug information only, not the library itself")
        layout = f"{self.order}2{self.word}"
        length = min(size, _DYNAMIC_BYTES_LIMIT)
        length -= length % struct.calcsize(layout)
        for tag, value in struct.iter_unpack(layout, self.file.exactly(offset, length)):
            if tag == _DT_NULL:
                break
            if tag == _DT_NEEDED:
                self.needed.append(value)
            else:
                self.tags[tag] = value
        if len(self.needed) > _NEEDED_LIMIT:
            raise NotElf("the ELF file is damaged: it needs more libraries than any real one")

    def strings(self, positions: list[int]) -> dict[int, str]:
        """Read the strings at these positions of the dynamic string table.

        Linkers put the strings of the dynamic section close together, so one read takes all;
        where they lie far apart, each is read by itself.
        """
        if not positions:
            return {}
        start, size = self._string_table()
        first, last = min(positions), max(positions)
        if last >= size:
            raise NotElf("the ELF file is damaged: a name lies outside its string table")
        length = min(last - first + _TEXT_BYTES, size - first)
        if length > _PIECE_BYTES_LIMIT:
            return {position: self.strings([position])[position] for position in set(positions)}
        piece = self.file.exactly(start + first, length)
        if piece.find(b"\0", last - first) < 0:
            length = min(last - first + _TEXT_BYTES_LIMIT, size - first)
            piece = self.file.exactly(start + first, length)
        texts = {}
        for position in positions:
            end = piece.find(b"\0", position - first)
            if end < 0:
                raise NotElf("the ELF file is damaged: a name in its string table has no end")
            texts[position] = os.fsdecode(piece[position - first : end])
        return texts

    def _string_table(self) -> tuple[int, int]:
        if _DT_STRTAB not in self.tags or _DT_STRSZ not in self.tags:
            raise NotElf("the ELF file is damaged: it has names but no string table")
        return self.offset_of(self.tags[_DT_STRTAB]), self.tags[_DT_STRSZ]

    def defines(self, index: int, name: bytes) -> bool:
        """Tell whether entry `index` of the symbol table defines `name` for other libraries."""
        if _DT_SYMTAB not in self.tags:
            raise NotElf("the ELF file is damaged: it has a hash table but no symbol table")
        symbols = self.offset_of(self.tags[_DT_SYMTAB])
        if self.wide:
            position, info, _, section, value, _ = self.unpack("IBBHQQ", symbols + 24 * index)
        else:
            position, value, _, info, _, section = self.unpack("IIIBBH", symbols + 16 * index)
        if section == _SHN_UNDEF or info >> 4 not in _STB_SEEN_BY_OTHERS:
            return False
        if value == 0 and section != _SHN_ABS and info & 15 != _STT_TLS:
            return False
        start, size = self._string_table()
        if position + len(name) + 1 > size:
            return False
        return self.file.exactly(start + position, len(name) + 1) == name + b"\0"


PT_LOAD, PT_DYNAMIC, PT_NOTE = 1, 2, 4

_WIDE_BITS = 64
_HEAD_BYTES = 4096
_SEGMENTS_LIMIT = 1024
_DYNAMIC_BYTES_LIMIT = 256 << 10
_NEEDED_LIMIT = 1024
_TEXT_BYTES = 1024
_TEXT_BYTES_LIMIT = 16 << 10
_PIECE_BYTES_LIMIT = 256 << 10
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 0, 1, 5, 6, 10
_SHN_UNDEF, _SHN_ABS = 0, 0xFFF1
_STT_TLS = 6
_STB_SEEN_BY_OTHERS = (1, 2, 10)  # global, weak, unique
_UNLOADABLE = {1: "an ELF object file that is not linked yet", 4: "an ELF core dump"}

_SIGNATURES = (
    ((b"MZ",), "a Windows DLL (PE)"),
    (
        (b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe"),
        "a Mach-O file",
    ),
    ((b"\xca\xfe\xba\xbe",), "a Mach-O file"),
    ((b"!<arch>\n",), "a static library (ar archive)"),
    ((b"!<thin>\n",), "a static library (thin ar archive)"),
    ((b"BC\xc0\xde",), "LLVM bitcode"),
    ((b"PK\x03\x04",), "a zip archive"),
    ((b"\x1f\x8b",), "a gzip archive"),
    ((b"version https://git-lfs",), "a Git LFS pointer (the content was not downloaded)"),
    ((b"#!",), "a script"),
)
_LINKER_SCRIPT_WORDS = (b"GNU ld script", b"OUTPUT_FORMAT", b"GROUP", b"INPUT")


def _format_of(head: bytes) -> str:
    if not head:
        return "empty"
    for signatures, name in _SIGNATURES:
        if head.startswith(signatures):
            return name
    if not head.strip(b"\0"):
        return "blank at its beginning (zeros)"
    if head.isascii() and b"\0" not in head:
        script = any(word in head for word in _LINKER_SCRIPT_WORDS)
        return "a text file (linker script)" if script else "a text file"
    return "of an unknown format"
