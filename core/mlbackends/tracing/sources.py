"""Where a log comes from: a file, compressed or not, standard input, or a file that still grows.

Text comes as UTF-8 without mark: PowerShell's `>` writes UTF-16, some editors put a mark at the start.
"""

import io
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import BinaryIO

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import NotAnswering
from mlbackends.host.files import as_utf8, open_named, start_and_rest
from mlbackends.tracing.compressed import MAGIC_LENGTH, Damaged, compression, decompressed

_PIECE = 1 << 17
_POLL_SECONDS = 0.1


class Source:
    """A log, read piece by piece.

    name: as given; "-" is standard input. size: of the file on disk, None for a pipe.
    position: how much of it was read. damage: why it could not be read to its end, "" if it was.
    """

    def __init__(
        self, name: str, *, follow: bool = False, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Open a log; raises BadInput where it cannot be.

        follow: wait for more at the end, and start anew if the file does, until `is_over`. Standard
            input is waited for by the system, and its end is the end.
        """
        self.name = name
        self.position = 0
        self.damage = ""
        self._follow = follow and name != "-"
        self._is_over = is_over
        self._file = _opened(name)
        self.size: int | None = None
        with suppress(OSError, ValueError):
            status = os.fstat(self._file.fileno())
            self.size = status.st_size if stat.S_ISREG(status.st_mode) else None

    def chunks(self) -> Iterator[bytes]:
        """Yield the text as UTF-8, unpacked, in pieces of any length."""
        start, rest = start_and_rest(self._pieces(), MAGIC_LENGTH)
        kind = compression(start)
        if kind and self._follow:
            self.close()
            raise BadInput(f"{self.name} is compressed by {kind} and cannot be followed", "omit --follow")
        whole = chain([start], rest)
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
        while True:
            try:
                piece = getattr(self._file, "read1", self._file.read)(_PIECE)
            except OSError as error:
                self.damage = f"{self.name} cannot be read any further: {error.strerror or error}"
                return
            if piece:
                self.position += len(piece)
                yield piece
            elif not self._follow or self._is_over():
                return
            else:
                time.sleep(_POLL_SECONDS)
                self._start_anew()

    def _start_anew(self) -> None:
        """Go to the start of a file that was cut, or to the new one of its name."""
        with suppress(OSError, ValueError, BadInput):
            here, there = os.fstat(self._file.fileno()), os.stat(self.name)
            if not os.path.samestat(here, there):
                fresh = _opened(self.name)
                self._file.close()
                self._file = fresh
            elif there.st_size < self._file.tell():
                self._file.seek(0)
            else:
                return
            self.position = 0


def _opened(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer if sys.stdin else io.BytesIO()
    try:
        return open_named(name)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        # To Windows it is a file that may not be opened.
        if not isinstance(error, NotAnswering) and os.path.isdir(name):
            why = "it is a directory"
        hint = "`backends trace all -o FILE -- COMMAND` writes one; - is standard input"
        raise BadInput(f"{name!r} cannot be opened: {why}", hint) from None


def labels(names: Sequence[str]) -> tuple[str, ...]:
    """Return what to call each log: "" if it is alone, else its file's name, its path if two share that."""
    different = dict.fromkeys(names)
    if len(different) < 2:
        return tuple("" for _ in names)
    short = {name: os.path.basename(name) or name for name in different}
    count = Counter(short.values())
    short["-"] = "standard input"
    return tuple(short[name] if count[short[name]] < 2 else name for name in names)


def joined_source(log: str, source: str) -> str:
    """Return the source of a record of a log: "node0.log", or "node0.log/rank0"."""
    return f"{log}/{source}" if log and source else log or source
