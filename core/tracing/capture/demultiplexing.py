"""Trace lines and a program's own text, told apart in one stream of bytes.

A trace line starts with a marker anywhere in a line, for programs print without ending theirs, and
goes on to the line's end. All other bytes are the program's, and come out as they went in.
However the stream is cut into pieces, the result is the same.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_LONGEST_LINE = 1 << 20

# What follows a marker in a line of the library, and hardly in a sentence about it.
_ONEDNN = rb"(?:v\d+,)?(?:\d+(?:[.,]\d+)?,)?[a-z_]+(?:[:,]|$)"
_CUT = rb"[a-z0-9.,_:]*"
_MKL = rb"(?:[A-Za-z_]\w*\(|Intel\(R\) |oneMKL |Detected |WARNING|ERROR|FFT:)"


class Separated(NamedTuple):
    """The program's text, and whole trace lines, each with its end."""

    text: bytes
    lines: list[bytes]


class Demultiplexer:
    """Takes a stream piece by piece. markers: what trace lines start with; none may be empty."""

    def __init__(self, markers: Iterable[bytes]) -> None:
        # The longest first: one may be the beginning of another.
        self._markers = sorted(markers, key=len, reverse=True)
        alternatives = b"|".join(map(re.escape, self._markers))
        heads = (
            re.escape(each) + (_MKL if each.endswith(b" ") else _ONEDNN) for each in self._markers
        )
        self._marker = re.compile(alternatives)
        self._head = re.compile(b"|".join(heads))
        cut = (re.escape(each) + _CUT for each in self._markers if not each.endswith(b" "))
        self._cut_head = re.compile(b"|".join(cut) or b"(?!)")
        self._held = b""

    @property
    def held(self) -> bytes:
        """What has come and is not given out: the start of a trace line, or of a marker."""
        return self._held

    def feed(self, piece: bytes) -> Separated:
        """Take a piece, and return what it settles."""
        data = self._held + piece
        self._held = b""
        text: list[bytes] = []
        lines: list[bytes] = []
        place = search = 0
        while match := self._marker.search(data, search):
            end = data.find(b"\n", match.end())
            is_long = (end if end >= 0 else len(data)) - match.start() > _LONGEST_LINE
            if end < 0 and not is_long:
                text.append(data[place : match.start()])
                self._held = data[match.start() :]
                return Separated(b"".join(text), lines)
            if is_long or not self._head.match(data, match.start(), end):
                search = match.start() + 1
                continue
            text.append(data[place : match.start()])
            lines.append(data[match.start() : end + 1])
            place = search = end + 1
        whole = len(data) - self._begun(data, search)
        text.append(data[place:whole])
        self._held = data[whole:]
        return Separated(b"".join(text), lines)

    def _begun(self, data: bytes, search: int) -> int:
        """Return how many bytes at the end may be the beginning of a marker."""
        longest = min(len(self._markers[0]) - 1, len(data) - search)
        for size in range(longest, 0, -1):
            if any(marker.startswith(data[-size:]) for marker in self._markers):
                return size
        return 0

    @property
    def is_surely_trace(self) -> bool:
        """Tell whether what is held is the start of a trace line, and not of text like one."""
        return bool(self._head.match(self._held))

    def release(self, *, at_end: bool = False) -> Separated:
        """Give out what is held, for text like a marker may wait for its reader.

        at_end: the start of a trace line is then a line, which a program that was killed left; it
        gets no end.
        """
        held, self._held = self._held, b""
        if at_end and (self._head.match(held) or self._cut_head.fullmatch(held)):
            return Separated(b"", [held])
        return Separated(held, [])
