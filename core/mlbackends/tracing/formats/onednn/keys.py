"""oneDNN's lines cut to what repeats, fast: all between the stamp and the time."""

import re
from collections.abc import Callable, Hashable, Mapping

from mlbackends.tracing.durations import is_time

_AFTER_FORMAT = len("onednn_verbose,v1,")
_FORMAT = ord("v")
_PROBLEM = re.compile(rb"[!-+\--~]+")
_END = ord("\n")
_UNTIMED = b"\n"
"""Ends the key of a line without time: no other key can be the same."""


class Shortener:
    """Cuts lines to a key and a time."""

    def shorten(self, line: bytes) -> tuple[bytes, float | None] | None:
        """Return the line without stamp and time, and the time in nanoseconds.

        A line that ends in no number is whole but for its stamp, and has no time.
        """
        key, _, time = line.rpartition(b",")
        duration: float | None
        try:
            duration = float(time) * 1e6
        except ValueError:
            key, duration = line + _UNTIMED, None
        start = _stamp(line)
        return (_without(key, start) if start else key), duration

    def timed(self, line: bytes) -> tuple[bytes, float, int | None] | None:
        """Return the line without stamp and time, the time and the stamp in nanoseconds.

        None for a line that only parse() can tell. The line may have its end.
        """
        key, _, time = line.rpartition(b",")
        try:
            duration = float(time) * 1e6
        except ValueError:
            return None
        if not is_time(duration) or line[-1] != _END:
            return None
        if not line[_AFTER_FORMAT : _AFTER_FORMAT + 1].isdigit():
            return key, duration, None
        start = _stamp(line)
        end = key.find(b",", start)
        whole, _, fraction = key[start:end].partition(b".")
        if len(fraction) != 6 or len(whole) > 18 or not (whole + fraction).isdigit():
            return None
        return key[:start] + key[end + 1 :], duration, int(whole + fraction)

    def front(self, key: bytes) -> bytes:
        """Return what stands before the sizes in a key: a line with other sizes is right if one is.

        b"" where it cannot be told.
        """
        front, _, problem = key.rpartition(b",")
        is_plain = _PROBLEM.fullmatch(problem) is not None and b"_verbose" not in problem
        return front if is_plain else b""

    def take(
        self, lines: list[bytes], takers: Mapping[Hashable, Callable[[float], None]]
    ) -> list[int]:
        """Give each line's time to the taker of its key; return the places of lines that have none."""
        if lines and _stamp(lines[0]):
            return _take_stamped(lines, takers)
        left: list[int] = []
        for index, line in enumerate(lines):
            key, _, time = line.rpartition(b",")
            try:
                takers[key](float(time) * 1e6)
            except (KeyError, ValueError):
                left.append(index)
        return left


def _take_stamped(
    lines: list[bytes], takers: Mapping[Hashable, Callable[[float], None]]
) -> list[int]:
    left: list[int] = []
    for index, line in enumerate(lines):
        key, _, time = line.rpartition(b",")
        start = line.find(b",") + 1
        try:
            if line[start] == _FORMAT:
                start = _AFTER_FORMAT
            key = key[:start] + key[key.find(b",", start) + 1 :]
            takers[key](float(time) * 1e6)
        except (KeyError, ValueError, IndexError):
            left.append(index)
    return left


def _stamp(line: bytes) -> int:
    """Return where the stamp begins, 0 if there is none.

    No word that can stand behind the marker has a digit at this column, but for a stamp.
    """
    if not line[_AFTER_FORMAT : _AFTER_FORMAT + 1].isdigit():
        return 0
    start = line.find(b",") + 1
    return _AFTER_FORMAT if line[start] == _FORMAT else start


def _without(key: bytes, start: int) -> bytes:
    return key[:start] + key[key.find(b",", start) + 1 :]
