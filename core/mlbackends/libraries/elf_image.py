"""An ELF file seen as the loader sees it: segments, dynamic section, strings and symbols.

Nothing but program headers is trusted to be there: section headers may be stripped. Every read is
checked against the size of the file first.
"""

from __future__ import annotations

import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlbackends.base.tables import table
from mlbackends.libraries.file_image import FileImage, NotALibrary, format_of, opened_file, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def opened(path: str) -> Iterator[ElfImage]:
    """Open a file and read its headers; raises NotALibrary where it is no ELF library, and OSError."""
    with opened_file(path, "an ELF library") as descriptor:
        yield ElfImage(descriptor)


#: The fields of the images that were read last: eight probes look into libtorch_cpu.
_read_before: dict[tuple[int, ...], dict[str, Any]] = {}


class ElfImage(FileImage):
    """The headers and the dynamic section, in the file's word size and byte order.

    `tags` maps a dynamic tag to its value, the last one where it is repeated, as in the loader;
    `needed` holds the string positions of DT_NEEDED, which is the one tag that repeats by design.
    """

    def __init__(self, descriptor: int) -> None:
        status = os.fstat(descriptor)  # the path may lead to another file by now
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        vars(self).update(_read_before.get(key, {}))
        self.descriptor = descriptor
        if key in _read_before:
            return
        super().__init__(descriptor, status.st_size)
        head = self.block(0)
        if head[:4] != b"\x7fELF":
            raise NotALibrary(f"the file is {format_of(head)}, not an ELF library")
        self.bits = {b"\x01": 32, b"\x02": 64}.get(head[4:5], 0)
        self.order = {b"\x01": "<", b"\x02": ">"}.get(head[5:6], "")
        if not self.bits or not self.order:
            raise NotALibrary("the ELF header gives no known word size or byte order")
        self.word = "Q" if self.bits == _WIDE_BITS else "I"
        self._read_headers()
        self._read_dynamic()
        if len(_read_before) >= _IMAGES_LIMIT:
            _read_before.clear()
        _read_before[key] = dict(vars(self))

    def chain(
        self, layout: str, at: int, count: int | None
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield place and fields of each entry of a list; the last field leads to the next one.

        count: how many there are, as far as the file says; more than any real one has are not read.
        """
        for _ in range(min(_ENTRIES_LIMIT if count is None else count, _ENTRIES_LIMIT)):
            *fields, following = self.unpack(layout, at)
            yield at, tuple(fields)
            if not following:
                return
            at += following

    def offset_of(self, address: int) -> int:
        """Return where in the file the loader takes this virtual address from."""
        for kind, offset, start, size in self.segments:
            if kind == _PT_LOAD and start <= address < start + size:
                return offset + address - start
        raise NotALibrary(f"the ELF file is damaged: address {address:#x} is in no loaded segment")

    def _read_headers(self) -> None:
        kind, number, _, _, start, _, _, _, entry_size, count = self.unpack("HHIWWWIHHH", 16)
        if kind not in (2, 3):
            noun = _UNLOADABLE.get(kind, "an ELF file of an unknown type")
            raise NotALibrary(f"the file is {noun}, not a library or program")
        self.machine = table("libraries/machines")["elf"].get(
            f"{number}/{self.bits}", f"machine-{number}"
        )
        if self.machine == "ppc64" and self.order == "<":
            self.machine = "ppc64le"
        layout = self.order + ("IIQQQQQQ" if self.bits == _WIDE_BITS else "IIIIIIII")
        if entry_size != struct.calcsize(layout) or not 0 < count <= _SEGMENTS_LIMIT:
            raise NotALibrary(
                "the ELF file is damaged: its program headers have an impossible size"
            )
        self.segments: list[tuple[int, int, int, int]] = []
        for fields in struct.iter_unpack(layout, self.exactly(start, entry_size * count)):
            if self.bits == _WIDE_BITS:
                kind, _, offset, address, _, size, _, _ = fields
            else:
                kind, offset, address, _, size, _, _, _ = fields
            self.segments.append((kind, offset, address, size))
        end = max((s[1] + s[3] for s in self.segments if s[0] == _PT_LOAD), default=0)
        if end > self.size:
            raise NotALibrary(
                f"the file is cut short: it has {self.size} bytes and its segments need {end}"
            )

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

    def string(self, position: int) -> str:
        """Read the string at a position of the dynamic string table."""
        start, size = self._string_table()
        if position >= size:
            raise NotALibrary("the ELF file is damaged: a name lies outside its string table")
        text = self.text(start + position, size - position)
        if text is None:
            raise NotALibrary("the ELF file is damaged: a name in its string table has no end")
        return text_of(text)

    def _string_table(self) -> tuple[int, int]:
        if _DT_STRTAB not in self.tags or _DT_STRSZ not in self.tags:
            raise NotALibrary("the ELF file is damaged: it has names but no string table")
        return self.offset_of(self.tags[_DT_STRTAB]), self.tags[_DT_STRSZ]

    def defines(self, index: int, name: bytes) -> bool:
        """Tell whether entry `index` of the symbol table defines `name` for other libraries."""
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


_PT_LOAD, _PT_DYNAMIC = 1, 2

_WIDE_BITS = 64
_IMAGES_LIMIT = 16
_SEGMENTS_LIMIT = 1024
_DYNAMIC_BYTES_LIMIT = 256 << 10
_NEEDED_LIMIT = 1024
_ENTRIES_LIMIT = 4096
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 0, 1, 5, 6, 10
_SHN_UNDEF, _SHN_ABS = 0, 0xFFF1
_STT_TLS = 6
_STB_EXPORTED = (1, 2, 10)  # global, weak, unique
_UNLOADABLE = {1: "an ELF object file that is not linked yet", 4: "an ELF core dump"}
