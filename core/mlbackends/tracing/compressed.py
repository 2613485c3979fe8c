"""Compressed logs, told by their first bytes, not by their names: gzip, xz, bzip2, zstd.

A log that was cut off, as by a full disk, or damaged within, gives what was unpacked before; `Damaged`
is raised behind it.
Pieces stay small whatever was packed: a megabyte of one zstd block can hold gigabytes of zeros.
"""

import bz2
import importlib
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from mlbackends.model.errors import BadInput
from mlbackends.tracing.zstd_frames import Frames

_PIECE = 1 << 18
_STEP = 256
"""So many bytes are asked for at once, since what an engine unpacked is lost where it then meets damage."""
_MAGIC = {
    "gzip": b"\x1f\x8b",
    "xz": b"\xfd7zXZ\x00",
    "bzip2": b"BZh",
    "zstd": b"\x28\xb5\x2f\xfd",
}
MAGIC_LENGTH = 6


class Damaged(Exception):
    """A compressed log that ends too early or does not hold what it should; the text says what."""


def compression(start: bytes) -> str:
    """Return how what begins with these bytes is compressed, "" if it is not."""
    return next((name for name, magic in _MAGIC.items() if start.startswith(magic)), "")


def decompressed(kind: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content; files that were put one behind the other are one content.

    Raises BadInput for zstd where neither Python (3.14) nor the package zstandard can read it.
    """
    if kind == "zstd":
        return _by_zstd(chunks)
    new = {"gzip": _Inflater, "xz": lzma.LZMADecompressor, "bzip2": bz2.BZ2Decompressor}[kind]
    errors = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)
    return _stepped(kind, chunks, new, errors, _PIECE if kind == "gzip" else _STEP)


class _Inflater:
    """zlib's decompressor with the interface of the others. It can be copied, and so loses nothing."""

    def __init__(self) -> None:
        self._engine = zlib.decompressobj(31)
        self._kept = b""
        self._error: zlib.error | None = None

    eof = property(lambda self: self._engine.eof)
    needs_input = property(lambda self: not self._kept and self._error is None)
    # Tapes and block devices pad with zeros.
    unused_data = property(lambda self: self._engine.unused_data.lstrip(b"\0"))

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return at most so many bytes; what is left of the data is kept.

        Where the data is damaged, return what it gives before; the next call raises the error.
        """
        if self._error is not None:
            raise self._error
        before = self._engine.copy()
        data = self._kept + data
        try:
            result = self._engine.decompress(data, limit)
        except zlib.error as error:
            self._error = error
            return _until_error(before, data)
        self._kept = self._engine.unconsumed_tail
        return result


def _until_error(engine: Any, data: bytes) -> bytes:
    """Unpack byte by byte what is known to be damaged."""
    found = bytearray()
    with suppress(zlib.error):
        for at in range(len(data)):
            found += engine.decompress(data[at : at + 1])
    return bytes(found)


def _stepped(
    kind: str,
    chunks: Iterable[bytes],
    new: Callable[[], Any],
    errors: tuple[type[Exception], ...],
    step: int,
) -> Iterator[bytes]:
    """Yield the content. step: so many bytes are asked for at once, and at most lost to damage."""
    engine = None
    gathered: list[bytes] = []
    try:
        for chunk in chunks:
            while chunk or not (engine is None or engine.eof or engine.needs_input):
                if engine is None or engine.eof:
                    engine = new()
                gathered.append(engine.decompress(chunk, step))
                for _ in range(_PIECE // step):
                    if engine.eof or engine.needs_input:
                        break
                    gathered.append(engine.decompress(b"", step))
                chunk = engine.unused_data if engine.eof else b""
                yield b"".join(gathered)
                gathered.clear()
    except errors as error:
        yield b"".join(gathered)
        raise Damaged(f"the {kind} data is damaged: {error}") from None
    if engine is not None and not engine.eof:
        raise Damaged(f"the {kind} data ends too early")


def _by_zstd(chunks: Iterable[bytes]) -> Iterator[bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd

        errors = (zstd.ZstdError, EOFError)
        return _stepped("zstd", chunks, zstd.ZstdDecompressor, errors, _STEP)
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        raise BadInput(
            "the log is compressed by zstd, which Python can read from 3.14 on",
            "pip install zstandard, or unpack it: zstd -dc FILE | backends trace show -",
        ) from None
    return _by_package(zstandard, chunks)


def _by_package(zstandard: Any, chunks: Iterable[bytes]) -> Iterator[bytes]:
    source = _Stream(chunks)
    reader = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)
    gathered: list[bytes] = []
    try:
        while not gathered or gathered[-1]:
            gathered.clear()
            # Not a list first: what was read before an error stays.
            gathered.extend(reader.read1(_STEP) for _ in range(_PIECE // _STEP))
            yield b"".join(gathered)
    except zstandard.ZstdError as error:
        yield b"".join(gathered)
        raise Damaged(f"the zstd data is damaged: {error}") from None
    if not source.frames.is_whole:
        raise Damaged("the zstd data ends too early")


class _Stream:
    """Chunks as something to read from. frames: how far what was read came."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._left = b""
        self.frames = Frames()

    def read(self, size: int = -1) -> bytes:
        """Return at most so many bytes, b"" at the end."""
        if not self._left:
            self._left = next(self._chunks, b"")
            self.frames.add(self._left)
        size = len(self._left) if size < 0 else size
        result, self._left = self._left[:size], self._left[size:]
        return result
