"""The lines of a trace as they arrive, for who watches a command that still runs."""

import os
from collections.abc import Callable, Iterable

_PIECE_BYTES = 1 << 20
_LONGEST_LINE = 1 << 20


class Follower:
    """Reads on in files that grow.

    parts: tells which they are now, each with the byte to start at.
    """

    def __init__(self, parts: Callable[[], Iterable[tuple[str, int]]]) -> None:
        self._parts = parts
        self._places: dict[str, int] = {}
        self._rests: dict[str, bytes] = {}

    def new_lines(self) -> list[bytes]:
        """Return the whole lines that were added, without their ends; at most a MiB a file."""
        lines: list[bytes] = []
        for path, start in self._parts():
            lines += self._read(path, self._places.get(path, start))
        return lines

    def _read(self, path: str, place: int) -> list[bytes]:
        try:
            with open(path, "rb", buffering=0) as file:
                piece = os.pread(file.fileno(), _PIECE_BYTES, place)
        except OSError:  # removed by somebody
            return []
        self._places[path] = place + len(piece)
        *lines, rest = (self._rests.get(path, b"") + piece).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines.append(rest)
            rest = b""
        self._rests[path] = rest
        return lines
