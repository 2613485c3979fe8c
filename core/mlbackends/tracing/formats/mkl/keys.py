"""MKL's lines cut to what repeats, fast: the addresses in them change from call to call.

Two thirds of a line's cost is its addresses. Programs that reuse their buffers print the same ones
again, so calls already seen are kept whole, while that helps. Where it does not, the addresses at
least stand at the same columns as in an earlier call that began alike, so the rest is compared. That
cannot confuse two calls: a routine's arguments are of the same kinds in each call of it, an address
holds no comma, and what is compared begins and ends with commas. Measured: 1.2 us a line; cutting the
addresses out, by a regular expression or by splitting, takes 1.9 to 2.7.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from struct import Struct

from mlbackends.tracing.formats.mkl.fft import is_absurd
from mlbackends.tracing.numbers import is_time

_ADDRESS = re.compile(rb"(?<!\d)0x([0-9a-fA-F]+)")  # not the "0x6" in lengths such as 80x64
_LONG = re.compile(rb"-?\d{10,}")
_UNITS = {ord("n"): 1.0, ord("u"): 1e3, ord("m"): 1e6}
_LIMIT = 20_000
_SHORTEST_PAUSE, _LONGEST_PAUSE = 4, 256
Taker = Callable[[float], None]
Key = tuple[bytes, bytes]
#: What cuts a call behind its head, the takers by what that gives, and the columns as a format.
Columns = tuple[Callable[[bytes], tuple[bytes, ...]], dict[tuple[bytes, ...], Taker], str]


def cut(line: bytes) -> tuple[Key, float, None] | None:
    """Return the call with its addresses masked and the state behind it, the time in nanoseconds, no stamp.

    None for a line that only parse() can tell. The line may have its end.
    """
    call, _, rest = line.rpartition(b") ")
    time, _, state = rest.partition(b"s ")
    try:  # whole seconds, as of 2019's transforms, are left to parse()
        duration = float(time[:-1]) * _UNITS[time[-1]]
    except (KeyError, ValueError, IndexError):
        return None
    if not is_time(duration) or not (time[:1] + time[-2:-1]).isdigit():  # no blanks
        return None
    return (masked(call), state.rstrip(b"\r\n")), duration, None


def front(key: Key) -> bytes:
    """Return b"": what stands before the sizes does not tell whether a line is right."""
    del key
    return b""


@lru_cache(maxsize=_LIMIT)
def masked(call: bytes) -> bytes:
    """Put "0x*" for every address, and "?" for sizes and strides that were never set."""
    return _LONG.sub(
        lambda found: b"?" if is_absurd(found[0].decode()) else found[0],
        _ADDRESS.sub(b"0x*", call),
    )


class Sorter:
    """Gives the times of many lines to the takers of their keys; remembers about 20 MB at most."""

    def __init__(self, takers: Mapping[Hashable, Taker]) -> None:
        self._takers = takers
        self._whole: dict[bytes, dict[bytes, Taker]] = {}
        self._pause = _SHORTEST_PAUSE
        self._paused = 0
        self._columns: dict[bytes, dict[bytes, dict[int, Columns]]] = {}
        self._formats: dict[str, Callable[[bytes], tuple[bytes, ...]]] = {}
        self._learned = 0

    def sort(self, lines: list[bytes]) -> list[int]:
        """Give each line's time away; return the places of lines whose key has no taker."""
        # The loops that a million lines go through: what repeats in both is left so.
        left: list[int] = []
        units, to_number = _UNITS, float
        if self._paused:
            self._paused -= 1
            columns = self._columns
            for index, line in enumerate(lines):
                call, _, rest = line.rpartition(b") ")
                time, _, state = rest.partition(b"s ")
                try:
                    unpack, takers, _ = columns[state][call.partition(b"0x")[0]][len(call)]
                    takers[unpack(call)](to_number(time[:-1]) * units[time[-1]])
                except (KeyError, ValueError, IndexError):
                    self._sort_slowly(index, call, time, state, left)
            return left
        missed: list[bytes] = []
        whole = self._whole
        for line in lines:
            call, _, rest = line.rpartition(b") ")
            time, _, state = rest.partition(b"s ")
            try:
                whole[call][state](to_number(time[:-1]) * units[time[-1]])
            except (KeyError, ValueError, IndexError):
                missed.append(line)
        # Where a line stands is only looked up now: most times nothing is missed.
        places = iter(enumerate(lines))
        for missing in missed:
            index = next(index for index, line in places if line is missing)
            call, _, rest = missing.rpartition(b") ")
            time, _, state = rest.partition(b"s ")
            self._sort_slowly(index, call, time, state, left)
        # Addresses that do not come back: look again later, and ever more seldom.
        if len(missed) > len(lines) // 8:
            self._paused = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        else:
            self._pause = _SHORTEST_PAUSE
        return left

    def _sort_slowly(
        self, index: int, call: bytes, time: bytes, state: bytes, left: list[int]
    ) -> None:
        """Give one line's time away, or add its place to those that are left."""
        head = call.partition(b"0x")[0]
        found = self._columns.get(state, {}).get(head, {}).get(len(call))
        taker = None if found is None else found[1].get(found[0](call))
        try:
            duration = float(time[:-1]) * _UNITS[time[-1]]
            if taker is None:
                taker = self._takers[masked.__wrapped__(call), state]
                self._learn(call, state, head, taker)
        except (KeyError, ValueError, IndexError):
            left.append(index)
            return
        if len(self._whole) >= _LIMIT:
            self._whole.clear()
        self._whole.setdefault(call, {})[state] = taker
        taker(duration)

    def _learn(self, call: bytes, state: bytes, head: bytes, taker: Taker) -> None:
        """Remember a call by what stands between its addresses."""
        if self._learned >= _LIMIT:
            self._columns.clear()
            self._formats.clear()
            self._learned = 0
        columns = _between(call, len(head))
        alike = self._columns.setdefault(state, {}).setdefault(head, {})
        found = alike.get(len(call))
        if found is None or found[2] != columns:
            unpack = self._formats.setdefault(columns, Struct(columns).unpack)
            found = alike[len(call)] = (unpack, {}, columns)
        found[1][found[0](call)] = taker
        self._learned += 1


def _between(call: bytes, start: int) -> str:
    """Return the columns from `start` on that do not lie between neighbouring addresses, or in them."""
    # A format of `struct`: "6s" for six bytes to compare, "12x" for twelve to pass over.
    parts = [f"{start}x"]
    for found in _ADDRESS.finditer(call):
        begin, end = found.span(1)
        parts.append(_part(call[start:begin]))
        parts.append(f"{end - begin}x")
        start = end
    return "".join((*parts, _part(call[start:])))


def _part(text: bytes) -> str:
    return f"{len(text)}{'x' if text in (b',0x', b'0x') else 's'}" if text else ""
