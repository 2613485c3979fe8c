"""Trace lines and a program's own text, separated in one stream of bytes.

A trace line starts with a marker anywhere in a line, for programs print without ending theirs, and
continues as a record of its tracer to the line's end, or to the program's text behind it.
All other bytes are the program's and come out unchanged, including lines with a marker that are not
records. However the stream is cut into pieces, the result is the same.
"""

import re
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mlbackends.tracing.reader import record_length

_LONGEST_LINE = 1 << 20
_BRIEF_SECONDS, _PATIENT_SECONDS = 0.05, 2.0
_BRIEF_BYTES = 4
#: Words behind marker, format and time stamp in oneDNN's lines; unlikely in a sentence.
_WORDS = (
    *(b"exec", b"create", b"create_nested", b"compile", b"info", b"error", b"warn", b"debuginfo"),
    *(b"primitive", b"graph", b"common", b"ukernel", b"cpu", b"gpu", b"jit_perf", b"ocl", b"sycl"),
)
_ONEDNN = rb"(?:v\d+,)?(?:\d+(?:[.,]\d+)?,)?(?:" + b"|".join(_WORDS) + rb")[:,]"
_MKL = rb"(?:[A-Za-z_]\w*\(|Intel\(R\) |oneMKL |Detected |WARNING|ERROR|FFT:)"
_CUT = re.compile(rb"v\d*|(?:v\d+,)?[\d.,]*([a-z_]*)")
_NEVER = rb"(?!)"
Length = Callable[[bytes], int]


class Separated(NamedTuple):
    """The program's text, and whole trace lines, each with its end."""

    text: bytes
    lines: list[bytes]


class Demultiplexer:
    """Takes a stream piece by piece. markers: what trace lines start with; none may be empty.

    length: returns how much of a line without its end, from its marker on, is a record; by default as
    the tracers with these markers parse it.
    """

    def __init__(self, markers: Iterable[bytes], length: Length = record_length) -> None:
        # The longest first: one may be the beginning of another.
        ordered = sorted(markers, key=len, reverse=True)
        starts = {marker[:size] for marker in ordered for size in range(1, len(marker))}
        heads = (re.escape(marker) + (_MKL if marker.endswith(b" ") else _ONEDNN) for marker in ordered)
        self._length = length
        self._starts = sorted(starts, key=len, reverse=True)
        self._marker = re.compile(b"|".join(map(re.escape, ordered)) or _NEVER)
        self._head = re.compile(b"|".join(heads) or _NEVER)
        self._pending = b""
        self._fed = time.monotonic()

    def feed(self, piece: bytes) -> Separated:
        """Take a piece, and return what it settles; what may be the start of a trace line is held."""
        self._fed = time.monotonic()
        data = self._pending + piece
        texts: list[bytes] = []
        lines: list[bytes] = []
        place = search = 0
        while match := self._marker.search(data, search):
            whole, end = match.start(), data.find(b"\n", match.end())
            is_long = (end if end >= 0 else len(data)) - whole > _LONGEST_LINE
            if end < 0 and not is_long:
                break
            size = 0 if is_long else self._measured(data, whole, end)
            if not size:
                search = whole + 1
                continue
            texts.append(data[place:whole])
            lines.append(data[whole : whole + size] + b"\n")
            is_whole = whole + size == end
            place = search = whole + size + is_whole
        else:
            ends = (len(data) - len(start) for start in self._starts if data.endswith(start))
            whole = next((at for at in ends if at >= search), len(data))
        texts.append(data[place:whole])
        self._pending = data[whole:]
        return Separated(b"".join(texts), lines)

    def _measured(self, data: bytes, start: int, end: int) -> int:
        """Return how much from a marker on is a record; a line holds one, so the next marker ends it."""
        following = self._marker.search(data, start + 1, end)
        stop = following.start() if following else end
        size = self._length(data[start:stop])
        # Only a line that was torn has another right behind it.
        return 0 if following and start + size == stop else size

    def idle(self) -> Separated:
        """Give out what has been held for too long: a prompt "MKL_VERBOSE? " may wait for an answer.

        A library prints a line at once: little more than a moment can lie between its parts. What is
        surely the start of a trace line stays.
        """
        patience = _BRIEF_SECONDS if len(self._pending) < _BRIEF_BYTES else _PATIENT_SECONDS
        is_overdue = self._pending and time.monotonic() - self._fed > patience
        if is_overdue and not self._head.match(self._pending):
            return self.release()
        return Separated(b"", [])

    def release(self, *, at_end: bool = False) -> Separated:
        """Give out what is held, for text like a marker may wait for its reader.

        at_end: the start of a trace line is then a line, which a program that was killed left; it
        gets no end.
        """
        pending, self._pending = self._pending, b""
        if not at_end:
            return Separated(pending, [])
        place = 0
        for head in re.finditer(b"(?=" + self._marker.pattern + b")", pending):
            place = head.start()
            if size := self._measured(pending, place, len(pending)):
                rest = pending[place + size :]
                return Separated(pending[:place] + rest, [pending[place : place + size]])
        # A line of oneDNN may have ended before it can be distinguished from text.
        marker = self._marker.match(pending, place)
        cut = None
        if marker and not marker[0].endswith(b" "):
            cut = _CUT.fullmatch(pending, marker.end())
        is_cut_head = cut and any(word.startswith(cut[1] or b"") for word in _WORDS)
        is_torn = is_cut_head or self._head.match(pending, place)
        return Separated(pending[:place], [pending[place:]]) if is_torn else Separated(pending, [])
