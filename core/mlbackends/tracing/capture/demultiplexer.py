"""Trace lines and a program's own text, separated in one stream of bytes.

A trace line starts with a marker anywhere in a line, for programs print without ending theirs, and
goes on as a record of its tracer: to the line's end, or to where text of the program stands behind it.
All other bytes are the program's, and come out as they went in, a line with a marker that is no record
too. However the stream is cut into pieces, the result is the same.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mlbackends.tracing.reader import record_length

_LONGEST_LINE = 1 << 20
_WORDS = (
    *(b"exec", b"create", b"create_nested", b"compile", b"info", b"error", b"warn", b"debuginfo"),
    *(b"primitive", b"graph", b"common", b"ukernel", b"cpu", b"gpu", b"jit_perf", b"ocl", b"sycl"),
)
"""What stands behind marker, format and time stamp in a line of oneDNN, and hardly in a sentence."""
_ONEDNN = rb"(?:v\d+,)?(?:\d+(?:[.,]\d+)?,)?(?:" + b"|".join(_WORDS) + rb")[:,]"
_MKL = rb"(?:[A-Za-z_]\w*\(|Intel\(R\) |oneMKL |Detected |WARNING|ERROR|FFT:)"
_CUT = re.compile(rb"v\d*|(?:v\d+,)?[\d.,]*([a-z_]*)")
Length = Callable[[bytes], int]


class Separated(NamedTuple):
    """The program's text, and whole trace lines, each with its end."""

    text: bytes
    lines: list[bytes]


class Demultiplexer:
    """Takes a stream piece by piece. markers: what trace lines start with; none may be empty.

    length: tells how much of a line without its end, from its marker on, is a record; by default, what
    the tracers say that have these markers.
    """

    def __init__(self, markers: Iterable[bytes], length: Length = record_length) -> None:
        # The longest first: one may be the beginning of another.
        self._markers = sorted(markers, key=len, reverse=True)
        self._length = length
        alternatives = b"|".join(map(re.escape, self._markers))
        heads = (
            re.escape(each) + (_MKL if each.endswith(b" ") else _ONEDNN) for each in self._markers
        )
        self._marker = re.compile(alternatives)
        self._head = re.compile(b"|".join(heads))
        self._held = b""

    @property
    def held(self) -> bytes:
        """What has come and is not given out: the start of a trace line, or of a marker."""
        return self._held

    def feed(self, piece: bytes) -> Separated:
        """Take a piece, and return what it settles."""
        data = self._held + piece
        self._held = b""
        found = Separated(b"", [])
        place = search = 0
        texts: list[bytes] = []
        while self._markers and (match := self._marker.search(data, search)):
            start, end = match.start(), data.find(b"\n", match.end())
            is_long = (end if end >= 0 else len(data)) - start > _LONGEST_LINE
            if end < 0 and not is_long:
                texts.append(data[place:start])
                self._held = data[start:]
                return Separated(b"".join(texts), found.lines)
            size = 0 if is_long else self._measured(data, start, end)
            if not size:
                search = start + 1
                continue
            texts.append(data[place:start])
            is_whole = start + size == end
            found.lines.append(data[start : start + size] + b"\n")
            place = search = start + size + is_whole
        whole = len(data) - self._begun(data, search)
        texts.append(data[place:whole])
        self._held = data[whole:]
        return Separated(b"".join(texts), found.lines)

    def _measured(self, data: bytes, start: int, end: int) -> int:
        """Return how much from a marker on is a record; a line holds one, so the next marker ends it."""
        following = self._marker.search(data, start + 1, end)
        stop = following.start() if following else end
        size = self._length(data[start:stop])
        # Only a line that was torn has another right behind it.
        return 0 if following and start + size == stop else size

    def _begun(self, data: bytes, search: int) -> int:
        """Return how many bytes at the end may be the beginning of a marker."""
        longest = min(len(self._markers[0]) - 1, len(data) - search) if self._markers else 0
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
        if not at_end:
            return Separated(held, [])
        found = self._marker.search(held) if self._markers else None
        place = 0
        while found:
            start = found.start()
            size = self._measured(held, start, len(held))
            if size:
                rest = held[start + size :]
                return Separated(held[:start] + rest, [held[start : start + size]])
            place = start
            found = self._marker.search(held, start + 1)
        is_torn = self._head.match(held, place) or self._is_cut_head(held[place:])
        return Separated(held[:place], [held[place:]]) if is_torn else Separated(held, [])

    def _is_cut_head(self, held: bytes) -> bool:
        """Tell whether text ends before it can be distinguished from a line of oneDNN."""
        marker = self._marker.match(held)
        if marker is None or marker[0].endswith(b" "):
            return False
        cut = _CUT.fullmatch(held, marker.end())
        return cut is not None and any(word.startswith(cut[1] or b"") for word in _WORDS)
