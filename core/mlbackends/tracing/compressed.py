"""Compressed logs, recognised by their first bytes, not by their names: gzip, xz, bzip2, zstd.

A log that was cut off, as by a full disk, or damaged within, gives what was unpacked before; `Damaged`
is raised behind it. What no packer wrote behind an xz or bzip2 log is passed over.
Pieces stay small whatever was packed: a megabyte of one zstd block can hold gigabytes of zeros.
"""

import importlib
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from mlbackends.base.errors import BadInput

_PIECE = 1 << 18
_MAGIC = {"gzip": b"\x1f\x8b", "xz": b"\xfd7zXZ\x00", "bzip2": b"BZh", "zstd": b"\x28\xb5\x2f\xfd"}
MAGIC_LENGTH = 6
_PACKAGE = "compression" if sys.version_info >= (3, 14) else "backports"
#: The module of each kind, its class of files and its error.
_MODULES = {
    "gzip": ("gzip", "GzipFile", "BadGzipFile"),
    "xz": ("lzma", "LZMAFile", "LZMAError"),
    "bzip2": ("bz2", "BZ2File", ""),
    "zstd": (f"{_PACKAGE}.zstd", "ZstdFile", "ZstdError"),
}


class Damaged(Exception):
    """A compressed log that ends too early or is corrupt; the text says how."""


def compression(start: bytes) -> str:
    """Return how what begins with these bytes is compressed, "" if it is not."""
    return next((name for name, magic in _MAGIC.items() if start.startswith(magic)), "")


def decompressed(kind: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content; files that were put one behind the other are one content.

    Raises BadInput where this Python has no module for it: zstd is in Python 3.14, or in backports.zstd.
    """
    module_name, opened, error = _MODULES[kind]
    try:
        module: Any = importlib.import_module(module_name)
    except ImportError:
        why, hint = f"{kind}, which this Python was built without", "unpack it"
        if kind == "zstd":
            why = "zstd, which Python can read since 3.14"
            hint = "pip install backports.zstd, or unpack it"
        raise BadInput(
            f"the log is compressed by {why}", f"{hint}: {kind} -dc FILE | backends trace show -"
        ) from None
    errors = (getattr(module, error, OSError), zlib.error, OSError, ValueError)
    source = io.BufferedReader(_Chunks(chunks))
    file = module.GzipFile(fileobj=source) if kind == "gzip" else getattr(module, opened)(source)
    try:
        while piece := file.read1(_PIECE):
            yield piece
    except EOFError:
        raise Damaged(f"the {kind} data ends too early") from None
    except errors as problem:
        raise Damaged(f"the {kind} data is damaged: {problem}") from None


class _Chunks(io.RawIOBase):
    """Pieces of bytes as a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = filter(None, chunks)
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._left = self._left or next(self._chunks, b"")
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size
