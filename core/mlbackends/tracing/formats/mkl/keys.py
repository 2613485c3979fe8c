"""MKL's lines cut to what repeats, fast: the addresses in them change from call to call.

Two thirds of a line's cost is its addresses. Programs that reuse their buffers print the same ones
again, so calls already seen are kept whole, while that helps. Where it does not, the addresses at
least stand at the same columns as in an earlier call that began alike, so the rest is compared. That
cannot confuse two calls: a routine's arguments are of the same kinds in each call of it, an address
holds no comma, and what is compared begins and ends with commas.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from struct import Struct

from mlbackends.tracing.durations import is_time
from mlbackends.tracing.formats.mkl.fft import is_absurd

_ADDRESS = re.compile(rb"(?<!\d)0x([0-9a-fA-F]+)")
_LONG = re.compile(rb"-?\d{10,}")
_UNITS = {ord("n"): 1.0, ord("u"): 1e3, ord("m"): 1e6}
_LIMIT = 20_000
_SHORTEST_PAUSE, _LONGEST_PAUSE = 4, 256
Taker = Callable[[float], None]
Key = tuple[bytes, bytes]
Cut = Callable[[bytes], tuple[bytes, ...]]
_Known = dict[tuple[bytes, ...], Taker]
_Columns = tuple[Cut, _Known, str]
"""What cuts a call behind its head, the takers by what that gives, and the columns as a format."""


class Shortener:
    """Cuts lines to a key and a time; remembers at most about 20 MB of what it has seen."""

    def __init__(self) -> None:
        self._takers: Mapping[Hashable, Taker] = {}
        self._whole: dict[bytes, dict[bytes, Taker]] = {}
        self._pause = _SHORTEST_PAUSE
        self._paused = 0
        self._columns: dict[bytes, dict[bytes, dict[int, _Columns]]] = {}
        self._cuts: dict[str, Cut] = {}
        self._known = 0

    def shorten(self, line: bytes) -> tuple[Key, float] | None:
        """Return the call with its addresses masked and the state behind it, and the time in nanoseconds."""
        call, _, rest = line.rpartition(b") ")
        time, _, state = rest.partition(b"s ")
        duration = _nanoseconds(time)
        return None if duration is None else ((_masked(call), state), duration)

    def timed(self, line: bytes) -> tuple[bytes, float, None] | None:
        """Return the call as it is and the state behind it, the time in nanoseconds, and no stamp.

        None for a line that only parse() can tell. The line may have its end.
        """
        call, _, rest = line.rpartition(b") ")
        time, _, state = rest.partition(b"s ")
        duration = _nanoseconds(time)
        if duration is None or not is_time(duration) or not line.endswith(b"\n"):
            return None
        return call + state, duration, None

    def front(self, key: Key) -> bytes:
        """Return b"": what stands before the sizes does not tell whether a line is right."""
        del key
        return b""

    def take(self, lines: list[bytes], takers: Mapping[Hashable, Taker]) -> list[int]:
        """Give each line's time to the taker of its key; return the places of lines that have none."""
        if takers is not self._takers:
            self._takers = takers
            self._forget()
            self._whole.clear()
        if self._paused:
            self._paused -= 1
            return self._take_by_columns(lines)
        left: list[int] = []
        missed: list[bytes] = []
        whole, units, to_number = self._whole, _UNITS, float
        for line in lines:
            call, _, rest = line.rpartition(b") ")
            time, _, state = rest.partition(b"s ")
            try:
                whole[call][state](to_number(time[:-1]) * units[time[-1]])
            except (KeyError, ValueError, IndexError):
                missed.append(line)
        if missed:
            self._take_missed(lines, missed, left)
        # Addresses that do not come back: look again later, and ever more seldom.
        if len(missed) > len(lines) // 8:
            self._paused = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        else:
            self._pause = _SHORTEST_PAUSE
        return left

    def _take_by_columns(self, lines: list[bytes]) -> list[int]:
        left: list[int] = []
        columns, units = self._columns, _UNITS
        for index, line in enumerate(lines):
            call, _, rest = line.rpartition(b") ")
            time, _, state = rest.partition(b"s ")
            try:
                cut, known, _ = columns[state][call.partition(b"0x")[0]][len(call)]
                known[cut(call)](float(time[:-1]) * units[time[-1]])
            except (KeyError, ValueError, IndexError):
                self._take_slowly(index, call, time, state, left)
        return left

    def _take_missed(self, lines: list[bytes], missed: list[bytes], left: list[int]) -> None:
        """Take what was not known yet. Only now is looked where it stands: most times nothing is missed."""
        places = iter(enumerate(lines))
        for wanted in missed:
            index = next(index for index, line in places if line is wanted)
            call, _, rest = wanted.rpartition(b") ")
            time, _, state = rest.partition(b"s ")
            self._take_slowly(index, call, time, state, left)

    def _take_slowly(
        self, index: int, call: bytes, time: bytes, state: bytes, left: list[int]
    ) -> None:
        duration = _nanoseconds(time)
        taker = None if duration is None else self._taker(call, state)
        if taker is None or duration is None:
            left.append(index)
        else:
            taker(duration)

    def _taker(self, call: bytes, state: bytes) -> Taker | None:
        """Return who takes a call's time; None if nobody does yet."""
        head = call.partition(b"0x")[0]
        found = self._columns.get(state, {}).get(head, {}).get(len(call))
        taker = None if found is None else found[1].get(found[0](call))
        if taker is None:
            taker = self._takers.get((_masked(call), state))
            if taker is None:
                return None
            self._learn(call, state, head, taker)
        if len(self._whole) >= _LIMIT:
            self._whole.clear()
        self._whole.setdefault(call, {})[state] = taker
        return taker

    def _learn(self, call: bytes, state: bytes, head: bytes, taker: Taker) -> None:
        """Remember a call by what stands between its addresses."""
        if self._known >= _LIMIT:
            self._forget()
        columns = _between(call, len(head))
        alike = self._columns.setdefault(state, {}).setdefault(head, {})
        found = alike.get(len(call))
        if found is None or found[2] != columns:
            cut = self._cuts.setdefault(columns, Struct(columns).unpack)
            found = alike[len(call)] = (cut, {}, columns)
        found[1][found[0](call)] = taker
        self._known += 1

    def _forget(self) -> None:
        self._columns.clear()
        self._cuts.clear()
        self._known = 0


def _nanoseconds(time: bytes) -> float | None:
    """Read a time without the "s" at its end; whole seconds, as of 2019's transforms, are left to parse()."""
    try:
        return float(time[:-1]) * _UNITS[time[-1]]
    except (KeyError, ValueError, IndexError):
        return None


def _masked(call: bytes) -> bytes:
    return _LONG.sub(_doubted, _ADDRESS.sub(b"0x*", call))


def _doubted(found: re.Match[bytes]) -> bytes:
    return b"?" if is_absurd(found[0].decode()) else found[0]


def _between(call: bytes, start: int) -> str:
    """Return the columns from `start` on that do not lie between neighbouring addresses, or in them.

    They are a format of `struct`: "6s" for six bytes to compare, "12x" for twelve to pass over.
    """
    parts = [f"{start}x"]
    for found in _ADDRESS.finditer(call):
        begin, end = found.span(1)
        parts.append(_part(call[start:begin]))
        parts.append(f"{end - begin}x")
        start = end
    return "".join((*parts, _part(call[start:])))


def _part(text: bytes) -> str:
    return f"{len(text)}{'x' if text in (b',0x', b'0x') else 's'}" if text else ""
