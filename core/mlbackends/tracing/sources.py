"""Where a log comes from: a file, compressed or not, standard input, or a file that still grows."""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from mlbackends.model.errors import BadInput
from mlbackends.tracing.compressed import MAGIC_LENGTH, Damaged, compression, decompressed
from mlbackends.tracing.encodings import as_utf8

_PIECE = 1 << 17
_POLL_SECONDS = 0.1


class Source:
    """A log, read piece by piece.

    name: as given; "-" is standard input. size: of the file as it lies on the disk, None for a pipe.
    position: how much of it was read. damage: why it could not be read to its end, "" if it was.
    """

    def __init__(
        self,
        name: str,
        *,
        follow: bool = False,
        is_over: Callable[[], bool] = lambda: False,
        file: BinaryIO | None = None,
    ) -> None:
        """Open a log; raises BadInput where it cannot be.

        follow: wait for more at the end, and start anew if the file does, until `is_over`. Standard
            input is waited for by the system, and its end is the end.
        file: an open one, instead of the one that `name` names.
        """
        self.name = name
        self.position = 0
        self.damage = ""
        self._follow = follow and name != "-"
        self._is_over = is_over
        self._file = file or _opened(name)
        self.size = _size(self._file)

    def chunks(self) -> Iterator[bytes]:
        """Yield the text as UTF-8, unpacked, in pieces of any length."""
        pieces = self._pieces()
        start = b""
        for piece in pieces:
            start += piece
            if len(start) >= MAGIC_LENGTH:
                break
        kind = compression(start)
        if kind and self._follow:
            self.close()
            raise BadInput(
                f"{self.name} is compressed by {kind} and cannot be followed", "leave --follow out"
            )
        whole = _before(start, pieces)
        try:
            yield from as_utf8(decompressed(kind, whole) if kind else whole)
        except Damaged as error:
            self.damage = str(error)
        finally:
            self.close()

    def close(self) -> None:
        """Close the file, but not standard input."""
        if self._file is not getattr(sys.stdin, "buffer", None):
            self._file.close()

    def _pieces(self) -> Iterator[bytes]:
        read = getattr(self._file, "read1", self._file.read)
        while True:
            try:
                piece = read(_PIECE)
            except OSError as error:
                self.damage = f"{self.name} cannot be read on: {error.strerror or error}"
                return
            if piece:
                self.position += len(piece)
                yield piece
            elif not self._follow or self._is_over():
                return
            else:
                time.sleep(_POLL_SECONDS)
                if self._was_replaced():
                    read = getattr(self._file, "read1", self._file.read)

    def _was_replaced(self) -> bool:
        """Go to the start of a file that was cut, or to the new one of its name."""
        try:
            here, there = os.fstat(self._file.fileno()), os.stat(self.name)
        except (OSError, ValueError):
            return False
        if not os.path.samestat(here, there):
            try:
                fresh = _opened(self.name)
            except BadInput:
                return False
            self._file.close()
            self._file = fresh
        elif there.st_size < self._file.tell():
            self._file.seek(0)
        else:
            return False
        self.position = 0
        return True


def _opened(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return open(name, "rb")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{name!r} cannot be opened: {why}") from None


def _size(file: BinaryIO) -> int | None:
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _before(start: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield start
    yield from pieces
