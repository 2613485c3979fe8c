"""oneDNN's lines cut to what repeats, fast: all between the stamp and the time."""

import re
from collections.abc import Callable, Hashable, Mapping

from msgspec import structs

from mlbackends.model.signature import PrimitiveSignature
from mlbackends.tracing.numbers import LONGEST, is_stamp

#: What oneDNN tells times in, in nanoseconds.
MILLISECONDS = 1e6
_AFTER_FORMAT = len("onednn_verbose,v1,")
_FORMAT = ord("v")
_PROBLEM = re.compile(rb"[!-+\--z|~]+")
#: Ends the key of a line without time: no other key can be the same.
_UNTIMED = b"\n"


def cut(line: bytes) -> tuple[bytes, float | None, int | None] | None:
    """Return the line without stamp and time, the time and the stamp in nanoseconds.

    A line that ends in no number is whole but for its stamp, and has no time. None for a line that
    only parse() can tell. The line may have its end.
    """
    key, _, time = line.rpartition(b",")
    duration = None
    try:
        duration = float(time) * MILLISECONDS
    except ValueError:
        key = line.rstrip(b"\r\n") + _UNTIMED
    else:
        if not 0 <= duration <= LONGEST or not 48 <= time[0] <= 57:  # a digit, and no blank
            return None
    try:
        start = _stamp(line) if 48 <= line[_AFTER_FORMAT] <= 57 else 0  # a digit
    except IndexError:
        start = 0
    if not start:
        return key, duration, None
    end = key.find(b",", start)
    whole, _, fraction = key[start:end].partition(b".")
    if len(fraction) != 6 or not is_stamp(whole + fraction):
        return None
    return key[:start] + key[end + 1 :], duration, int(whole + fraction)


def _stamp(line: bytes) -> int:
    """Return where the stamp begins, 0 if there is none: nothing else has a digit at this column."""
    if not line[_AFTER_FORMAT : _AFTER_FORMAT + 1].isdigit():
        return 0
    start = line.find(b",") + 1
    return _AFTER_FORMAT if line[start] == _FORMAT else start


def front(key: bytes) -> bytes:
    """Return what stands before the sizes in a primitive's key, b"" where that is not known.

    A line that differs from a primitive's in its sizes alone is a primitive's.
    """
    before, _, problem = key.rpartition(b",")
    is_plain = _PROBLEM.fullmatch(problem) is not None and b"_verbose" not in problem
    return before if is_plain else b""


def resized(signature: PrimitiveSignature, key: bytes) -> PrimitiveSignature:
    """Return the signature of a key with the same front."""
    text = key.decode("utf-8", "surrogateescape")
    return structs.replace(signature, key=text, problem=text.rpartition(",")[2])


class Sorter:
    """Gives the times of many lines to the takers of their keys."""

    def __init__(self, takers: Mapping[Hashable, Callable[[float], None]]) -> None:
        self._takers = takers

    def sort(self, lines: list[bytes]) -> list[int]:
        """Give each line's time away; return the places of lines whose key has no taker."""
        # The loops that a million lines go through: what repeats in both is left so.
        takers = self._takers
        left: list[int] = []
        if not lines or not _stamp(lines[0]):
            for index, line in enumerate(lines):
                key, _, time = line.rpartition(b",")
                try:
                    takers[key](float(time) * MILLISECONDS)
                except (KeyError, ValueError):
                    left.append(index)
            return left
        for index, line in enumerate(lines):
            key, _, time = line.rpartition(b",")
            start = line.find(b",") + 1
            try:
                if line[start] == _FORMAT:
                    start = _AFTER_FORMAT
                key = key[:start] + key[key.find(b",", start) + 1 :]
                takers[key](float(time) * MILLISECONDS)
            except (KeyError, ValueError, IndexError):
                left.append(index)
        return left
