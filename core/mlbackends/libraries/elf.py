"""ELF files as the loader sees them, and the reader of blocks that PE and Mach-O files share.

Only program headers are relied on: section headers may be stripped. Every read is checked against the size
of the file first. Source: the System V ABI (generic, chapters 4 and 5).
"""

import os
import stat
import struct
from collections.abc import Iterator
from typing import Self

from msgspec import Struct

from mlbackends.base.errors import NotALibrary
from mlbackends.base.tables import table
from mlbackends.host.files import READ_FLAGS
from mlbackends.host.host import Host, once_per_host


class Elf(Struct, frozen=True):
    """The headers and the dynamic section of an ELF file.

    `machine` is spelled as `uname -m` spells it, or is "machine-<number>". `rpath` and `runpath` are as
    written ($ORIGIN is not expanded), split at the colons; an empty element, which means the current
    directory to the loader, is ".".
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


@once_per_host
def elf_headers(host: Host, path: str) -> Elf:
    """Return the headers of an ELF file of a host. Raises as read_elf does."""
    return host.extracted(path, read_elf, Elf)


def read_elf(path: str) -> Elf:
    """Read the headers and the dynamic section: a few KB, however large the file is.

    Raises NotALibrary, also of one that the loader would map although its end is cut off, or OSError if the
    file cannot be opened or read.
    """
    with ElfImage(path) as image:
        if image.zeros:
            raise image.cut_short()
        return image.described()


class FileImage:
    """An open regular file as numbers and texts at offsets. All that reads raises NotALibrary.

    Raises OSError if the file cannot be opened.
    """

    #: What the file should be, for the message.
    noun = "a library"
    order = "<"
    word = "Q"
    #: So many bytes after the end read as zero.
    zeros = 0

    def __init__(self, path: str) -> None:
        # Opening a FIFO would block, and opening a device node may have any effect: look first.
        try:
            mode = os.stat(path).st_mode
        except ValueError as error:
            raise NotALibrary("the path has a character that no file name can have") from error
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "a device, pipe or socket"
            raise NotALibrary(f"the path leads to {kind}, not to {self.noun}")
        self.descriptor = os.open(path, READ_FLAGS)
        self.size = os.fstat(self.descriptor).st_size
        self.blocks: dict[int, bytes] = {}
        try:
            self._parse()
        except BaseException:
            os.close(self.descriptor)
            raise

    def _parse(self) -> None:
        """Read the headers of the format. Raises NotALibrary if the file has another one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def block(self, number: int) -> bytes:
        """Return one of the file's blocks; the last one is shorter."""
        if number not in self.blocks:
            if len(self.blocks) >= _BLOCKS_LIMIT:
                self.blocks.clear()
            os.lseek(self.descriptor, number * BLOCK_BYTES, os.SEEK_SET)  # Windows has no pread
            self.blocks[number] = os.read(self.descriptor, BLOCK_BYTES)
        return self.blocks[number]

    def exactly(self, offset: int, length: int) -> bytes:
        """Return all bytes of a range."""
        end = offset + length
        if end > self.size + self.zeros:
            raise NotALibrary(
                f"the file is cut short or damaged: it has {self.size} bytes"
                f" and its headers point to byte {end}"
            )
        number, start = divmod(offset, BLOCK_BYTES)
        if start + length <= BLOCK_BYTES:
            data = self.block(number)[start : start + length]
        else:
            os.lseek(self.descriptor, offset, os.SEEK_SET)
            data = os.read(self.descriptor, length)
        data += bytes(min(length - len(data), self.zeros))
        if len(data) < length:
            raise NotALibrary("the file became shorter while it was read")
        return data

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        """Unpack at a file offset; "W" in the layout is a word of the file's size."""
        form = self.order + layout.replace("W", self.word)
        return struct.unpack(form, self.exactly(offset, struct.calcsize(form)))

    def text(self, offset: int, limit: int) -> bytes | None:
        """Return the bytes before the next zero, or None if none is within the limit."""
        for most in (BLOCK_BYTES - offset % BLOCK_BYTES, *_TEXT_BYTES):
            piece, end, _ = self.exactly(offset, min(most, limit)).partition(b"\0")
            if end:
                return piece
        return None


def text_of(name: bytes) -> str:
    """Return a name in a file as `os.fsdecode` does on Linux, on whatever system the file is read."""
    return name.decode("utf-8", "surrogateescape")


def format_of(head: bytes) -> str:
    """Return what a file's first bytes show it to be: "a script", "of an unknown format"."""
    if not head:
        return "empty"
    for signature, name in table("libraries/file_formats").items():
        if head.startswith(bytes.fromhex(signature)):
            return str(name)
    if not head.strip(b"\0"):
        return "blank at its beginning (zeros)"
    if head.isascii() and b"\0" not in head:
        script = any(word in head for word in _LINKER_SCRIPT_WORDS)
        return "a text file (linker script)" if script else "a text file"
    return "of an unknown format"


class ElfImage(FileImage):
    """The headers and the dynamic section, in the file's word size and byte order.

    `tags` maps a dynamic tag to its value, the last one if it is repeated, as the loader does; `needed`
    holds the string positions of DT_NEEDED, the one tag that repeats by design.
    """

    noun = "an ELF library"

    def _parse(self) -> None:
        head = self.block(0)
        if head[:4] != b"\x7fELF":
            raise NotALibrary(f"the file is {format_of(head)}, not {self.noun}")
        self.bits = {b"\x01": 32, b"\x02": 64}.get(head[4:5], 0)
        self.order = {b"\x01": "<", b"\x02": ">"}.get(head[5:6], "")
        if not self.bits or not self.order:
            raise NotALibrary("the ELF header gives no known word size or byte order")
        self.word = "Q" if self.bits == _WIDE_BITS else "I"
        kind, number, _, _, start, _, _, _, entry_size, count = self.unpack("HHIWWWIHHH", 16)
        if kind not in (2, 3):
            noun = _UNLOADABLE.get(kind, "an ELF file of an unknown type")
            raise NotALibrary(f"the file is {noun}, not a library or program")
        self.machine = table("libraries/machines")["elf"].get(f"{number}/{self.bits}", f"machine-{number}")
        if self.machine == "ppc64" and self.order == "<":
            self.machine = "ppc64le"
        layout = self.order + ("IIQQQQQQ" if self.bits == _WIDE_BITS else "IIIIIIII")
        if entry_size != struct.calcsize(layout) or not 0 < count <= _SEGMENTS_LIMIT:
            raise NotALibrary("the ELF file is damaged: its program headers have an impossible size")
        self.segments: list[tuple[int, int, int, int]] = []
        self.has_executable_stack = False
        for fields in struct.iter_unpack(layout, self.exactly(start, entry_size * count)):
            if self.bits == _WIDE_BITS:
                kind, flags, offset, address, _, size, _, _ = fields
            else:
                kind, offset, address, _, size, _, flags, _ = fields
            self.segments.append((kind, offset, address, size))
            if kind == _PT_GNU_STACK:
                self.has_executable_stack = bool(flags & _PF_X)
        end = max((s[1] + s[3] for s in self.segments if s[0] == _PT_LOAD), default=0)
        self.zeros = max(0, end - self.size)
        if end > -(-self.size // _PAGE_BYTES) * _PAGE_BYTES:  # the loader fills the last page with zeros
            raise self.cut_short()
        self._read_dynamic()

    def cut_short(self) -> NotALibrary:
        """Return the error for a file that ends before its segments do."""
        end = self.size + self.zeros
        return NotALibrary(f"the file is cut short: it has {self.size} bytes and {SEGMENTS_NEED} {end}")

    def chain(self, layout: str, at: int, count: int | None) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield position and fields of each entry of a list; the last field leads to the next one.

        count: the number of entries that the file states; no more are read than any real file has.
        """
        for _ in range(min(_ENTRIES_LIMIT if count is None else count, _ENTRIES_LIMIT)):
            *fields, following = self.unpack(layout, at)
            yield at, tuple(fields)
            if not following:
                return
            at += following

    def offset_of(self, address: int) -> int:
        """Return the file offset from which the loader reads this virtual address."""
        for kind, offset, start, size in self.segments:
            if kind == _PT_LOAD and start <= address < start + size:
                return offset + address - start
        raise NotALibrary(f"the ELF file is damaged: address {address:#x} is in no loaded segment")

    def _read_dynamic(self) -> None:
        self.tags: dict[int, int] = {}
        self.needed: list[int] = []
        section = next(((s[1], s[3]) for s in self.segments if s[0] == _PT_DYNAMIC), None)
        if section is None:
            return
        offset, size = section
        if size == 0:
            raise NotALibrary("the ELF file holds debug information only, not the library itself")
        layout = f"{self.order}2{'Q' if self.bits == _WIDE_BITS else 'I'}"
        length = min(size, _DYNAMIC_BYTES_LIMIT)
        length -= length % struct.calcsize(layout)
        for tag, value in struct.iter_unpack(layout, self.exactly(offset, length)):
            if tag == _DT_NULL:
                break
            if tag == _DT_NEEDED:
                self.needed.append(value)
            else:
                self.tags[tag] = value
        if len(self.needed) > _NEEDED_LIMIT:
            raise NotALibrary("the ELF file is damaged: it needs more libraries than any real one")

    def described(self) -> Elf:
        """Return what the headers and the dynamic section state."""
        soname, rpath, runpath = (
            self.string(self.tags[tag]) if tag in self.tags else ""
            for tag in (_DT_SONAME, _DT_RPATH, _DT_RUNPATH)
        )
        return Elf(
            machine=self.machine,
            soname=soname,
            needed=tuple(map(self.string, self.needed)),
            rpath=tuple(part or "." for part in rpath.split(":")) if rpath else (),
            runpath=tuple(part or "." for part in runpath.split(":")) if runpath else (),
        )

    def interpreter(self) -> str:
        """Return the path of the loader that a program names, "" for a library."""
        for kind, offset, _, size in self.segments:
            if kind == _PT_INTERP:
                return text_of(self.exactly(offset, min(size, BLOCK_BYTES)).partition(b"\0")[0])
        return ""

    def string(self, position: int) -> str:
        """Return the string at a position of the dynamic string table."""
        start, size = self._string_table()
        if position >= size:
            raise NotALibrary("the ELF file is damaged: a name is outside its string table")
        text = self.text(start + position, size - position)
        if text is None:
            raise NotALibrary("the ELF file is damaged: a name in its string table has no end")
        return text_of(text)

    def _string_table(self) -> tuple[int, int]:
        if _DT_STRTAB not in self.tags or _DT_STRSZ not in self.tags:
            raise NotALibrary("the ELF file is damaged: it has names but no string table")
        return self.offset_of(self.tags[_DT_STRTAB]), self.tags[_DT_STRSZ]

    def defines(self, index: int, name: bytes) -> bool:
        """Return whether entry `index` of the symbol table defines `name` for other libraries."""
        if _DT_SYMTAB not in self.tags:
            raise NotALibrary("the ELF file is damaged: it has a hash table but no symbol table")
        symbols = self.offset_of(self.tags[_DT_SYMTAB])
        if self.bits == _WIDE_BITS:
            position, info, _, section, value, _ = self.unpack("IBBHQQ", symbols + 24 * index)
        else:
            position, value, _, info, _, section = self.unpack("IIIBBH", symbols + 16 * index)
        if section == _SHN_UNDEF or info >> 4 not in _STB_EXPORTED:
            return False
        if value == 0 and section != _SHN_ABS and info & 15 != _STT_TLS:
            return False
        start, size = self._string_table()
        if position + len(name) + 1 > size:
            return False
        return self.exactly(start + position, len(name) + 1) == name + b"\0"


BLOCK_BYTES = 4096
_BLOCKS_LIMIT = 256
_TEXT_BYTES = (1 << 10, 256 << 10)
_LINKER_SCRIPT_WORDS = (b"GNU ld script", b"OUTPUT_FORMAT", b"GROUP", b"INPUT")

#: The smallest page of any system.
_PAGE_BYTES = 4096
#: In the error for a file that the loader maps all the same: a process that reads its end is killed.
SEGMENTS_NEED = "its segments need"
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_GNU_STACK, _PF_X = 1, 2, 3, 0x6474E551, 1
_WIDE_BITS = 64
_SEGMENTS_LIMIT = 1024
_DYNAMIC_BYTES_LIMIT = 256 << 10
_NEEDED_LIMIT = 1024
_ENTRIES_LIMIT = 4096
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 0, 1, 5, 6, 10
_DT_SONAME, _DT_RPATH, _DT_RUNPATH = 14, 15, 29
_SHN_UNDEF, _SHN_ABS = 0, 0xFFF1
_STT_TLS = 6
_STB_EXPORTED = (1, 2, 10)  # global, weak, unique
_UNLOADABLE = {1: "an ELF object file that is not linked yet", 4: "an ELF core dump"}
