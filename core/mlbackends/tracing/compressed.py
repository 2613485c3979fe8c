"""Compressed logs, recognised by their first bytes, not by their names: gzip, xz, bzip2, zstd.

A log that was cut off, as by a full disk, or damaged within, gives what was unpacked before; `Damaged`
is raised behind it.
Pieces stay small whatever was packed: a megabyte of one zstd block can hold gigabytes of zeros.
"""

import importlib
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from mlbackends.base.errors import BadInput

_PIECE = 1 << 18
#: Bytes unpacked at once: what an engine unpacked is lost if it then meets damage.
_STEP = 256
_MAGIC = {"gzip": b"\x1f\x8b", "xz": b"\xfd7zXZ\x00", "bzip2": b"BZh", "zstd": b"\x28\xb5\x2f\xfd"}
MAGIC_LENGTH = 6
#: Modules that a Python may lack, with their engine and its error.
_MODULES = {
    "xz": ("lzma", "LZMADecompressor", "LZMAError"),
    "bzip2": ("bz2", "BZ2Decompressor", "OSError"),
}


class Damaged(Exception):
    """A compressed log that ends too early or is corrupt; the text says how."""


def compression(start: bytes) -> str:
    """Return how what begins with these bytes is compressed, "" if it is not."""
    return next((name for name, magic in _MAGIC.items() if start.startswith(magic)), "")


def decompressed(kind: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content; files that were put one behind the other are one content.

    Raises BadInput for zstd where neither Python (3.14) nor the package backports.zstd can read it.
    """
    new, error = _engine(kind)
    errors = (error, OSError, EOFError, ValueError)
    step = _PIECE if kind == "gzip" else _STEP
    engine = None
    gathered: list[bytes] = []
    try:
        for chunk in chunks:
            while chunk or not (engine is None or engine.eof or engine.needs_input):
                if engine is None or engine.eof:
                    engine = new()
                gathered.append(engine.decompress(chunk, step))
                size = len(gathered[0])
                while size < _PIECE and not (engine.eof or engine.needs_input):
                    gathered.append(engine.decompress(b"", step))
                    size += len(gathered[-1])
                chunk = engine.unused_data if engine.eof else b""
                yield b"".join(gathered)
                gathered.clear()
    except errors as problem:
        yield b"".join(gathered)
        raise Damaged(f"the {kind} data is damaged: {problem}") from None
    if engine is not None and not engine.eof:
        raise Damaged(f"the {kind} data ends too early")


def _engine(kind: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Return what makes a decompressor of a kind, and the error that it raises."""
    if kind == "gzip":
        return _Inflater, zlib.error
    if kind in _MODULES:
        module, engine, error = _MODULES[kind]
        try:
            found = importlib.import_module(module)
        except ImportError:
            raise BadInput(
                f"the log is compressed by {kind}, which this Python was built without",
                f"unpack it: {kind} -dc FILE | backends trace show -",
            ) from None
        return getattr(found, engine), getattr(found, error, OSError)
    try:
        package = "compression" if sys.version_info >= (3, 14) else "backports"
        zstd = importlib.import_module(f"{package}.zstd")
    except ImportError:
        raise BadInput(
            "the log is compressed by zstd, which Python can read since 3.14",
            "pip install backports.zstd, or unpack it: zstd -dc FILE | backends trace show -",
        ) from None
    return zstd.ZstdDecompressor, zstd.ZstdError


class _Inflater:
    """zlib's decompressor with the interface of the others. It can be copied, and so loses nothing."""

    def __init__(self) -> None:
        self._engine = zlib.decompressobj(31)
        self._unread = b""
        self._error: zlib.error | None = None

    eof = property(lambda self: self._engine.eof)
    needs_input = property(lambda self: not self._unread and self._error is None)
    # Tapes and block devices pad with zeros.
    unused_data = property(lambda self: self._engine.unused_data.lstrip(b"\0"))

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return at most `limit` bytes; the rest of the data is kept.

        Where the data is damaged, return what it gives before; the next call raises the error.
        """
        if self._error is not None:
            raise self._error
        before = self._engine.copy()
        data = self._unread + data
        try:
            result = self._engine.decompress(data, limit)
        except zlib.error as error:
            self._error = error
            found = bytearray()
            with suppress(zlib.error):
                for at in range(len(data)):
                    found += before.decompress(data[at : at + 1])
            return bytes(found)
        self._unread = self._engine.unconsumed_tail
        return result
