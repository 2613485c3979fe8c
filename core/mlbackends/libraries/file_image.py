"""A file of which a few blocks are read; every read is checked against the size of the file first."""

from __future__ import annotations

import os
import stat
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mlbackends.base.tables import table
from mlbackends.host.files import opened_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator


class NotALibrary(ValueError):
    """The file is not a library or program that could be read; the message is one sentence."""


@contextmanager
def opened_file(path: str, noun: str) -> Iterator[int]:
    """Open a regular file for reading. noun: the expected kind of file. Raises NotALibrary and OSError."""
    # A FIFO would block and a device node may do anything when it is opened: look first.
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:
        raise NotALibrary("the path has a character that no file name can have") from error
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise NotALibrary(f"the path leads to {kind}, not to {noun}")
    descriptor = opened_at_once(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class FileImage:
    """An open file as numbers and texts at offsets; all that reads raises NotALibrary."""

    order = "<"
    word = "Q"

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size
        self._blocks: dict[int, bytes] = {}

    def block(self, number: int) -> bytes:
        """Return one of the file's blocks; the last one is shorter."""
        if number not in self._blocks:
            if len(self._blocks) >= _BLOCKS_LIMIT:
                self._blocks.clear()
            self._blocks[number] = self._read(BLOCK_BYTES, number * BLOCK_BYTES)
        return self._blocks[number]

    def _read(self, length: int, offset: int) -> bytes:
        os.lseek(self.descriptor, offset, os.SEEK_SET)  # Windows has no pread
        return os.read(self.descriptor, length)

    def exactly(self, offset: int, length: int) -> bytes:
        """Return all of a range."""
        end = offset + length
        if end > self.size:
            raise NotALibrary(
                f"the file is cut short or damaged: it has {self.size} bytes"
                f" and its headers point to byte {end}"
            )
        number, start = divmod(offset, BLOCK_BYTES)
        if start + length <= BLOCK_BYTES:
            data = self.block(number)[start : start + length]
        else:
            data = self._read(length, offset)
        if len(data) < length:
            raise NotALibrary("the file became shorter while it was read")
        return data

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        """Unpack at a file offset; "W" in the layout is a word of the file's size."""
        form = self.order + layout.replace("W", self.word)
        return struct.unpack(form, self.exactly(offset, struct.calcsize(form)))

    def text(self, offset: int, limit: int) -> bytes | None:
        """Return the bytes before the next zero; None where there is none within the limit."""
        for most in (BLOCK_BYTES - offset % BLOCK_BYTES, *_TEXT_BYTES):
            piece, end, _ = self.exactly(offset, min(most, limit)).partition(b"\0")
            if end:
                return piece
        return None


def text_of(name: bytes) -> str:
    """Return a name of the file as `os.fsdecode` does on Linux, wherever the file is read."""
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


BLOCK_BYTES = 4096
_BLOCKS_LIMIT = 256
_TEXT_BYTES = (1 << 10, 16 << 10)
_LINKER_SCRIPT_WORDS = (b"GNU ld script", b"OUTPUT_FORMAT", b"GROUP", b"INPUT")
