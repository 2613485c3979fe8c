"""MKL's lines cut to what repeats, fast: the addresses in them change from call to call.

Two thirds of a line's cost is its addresses. Programs that reuse their buffers print the same ones
again, so calls already seen are kept whole, while that helps. Where it does not, the addresses at
least stand at the same columns as in an earlier call that began alike, so the rest is compared. That
cannot confuse two calls: a routine's arguments are of the same kinds in each call of it, an address
holds no comma, and what is compared begins and ends with commas.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from operator import itemgetter
from typing import Any

from mlbackends.tracing.mkl.fft import is_absurd

_ADDRESS = re.compile(rb"(?<!\d)0x([0-9a-fA-F]+)")
_LONG = re.compile(rb"-?\d{10,}")
_UNITS = {ord("n"): 1.0, ord("u"): 1e3, ord("m"): 1e6}
_LIMIT = 20_000
Taker = Callable[[float], None]
Key = tuple[bytes, bytes]
_Columns = tuple[Callable[[bytes], Any], dict[Any, Taker], list[slice]]
"""What cuts a call, the takers by what that gives, and the columns."""


class Shortener:
    """Cuts lines to a key and a time; remembers at most about 10 MB of what it has seen."""

    def __init__(self) -> None:
        self._takers: Mapping[Hashable, Taker] = {}
        self._whole: dict[bytes, Taker] = {}
        self._useless = 0
        self._columns: dict[tuple[bytes, int, bytes], _Columns] = {}
        self._known = 0

    def shorten(self, line: bytes) -> tuple[Key, float] | None:
        """Return the call with its addresses masked and the state behind it, and the time in nanoseconds."""
        call, _, rest = line.rpartition(b") ")
        time, _, state = rest.partition(b"s ")
        duration = _nanoseconds(time)
        return None if duration is None else ((_masked(call), state), duration)

    def take(self, lines: list[bytes], takers: Mapping[Hashable, Taker]) -> list[int]:
        """Give each line's time to the taker of its key; return the places of lines that have none."""
        if takers is not self._takers:
            self._takers = takers
            self._whole.clear()
            self._columns.clear()
        if self._useless > 2:
            return self._take_by_columns(lines)
        left: list[int] = []
        whole, units = self._whole, _UNITS
        for index, line in enumerate(lines):
            call, _, rest = line.rpartition(b") ")
            time, _, state = rest.partition(b"s ")
            try:
                whole[call + state](float(time[:-1]) * units[time[-1]])
            except (KeyError, ValueError, IndexError):
                self._take_slowly(index, call, time, state, left)
        return left

    def _take_by_columns(self, lines: list[bytes]) -> list[int]:
        left: list[int] = []
        columns, units = self._columns, _UNITS
        for index, line in enumerate(lines):
            call, _, rest = line.rpartition(b") ")
            time, _, state = rest.partition(b"s ")
            try:
                cut, known, _ = columns[call[: call.find(b"0x")], len(call), state]
                known[cut(call)](float(time[:-1]) * units[time[-1]])
            except (KeyError, ValueError, IndexError):
                self._take_slowly(index, call, time, state, left)
        return left

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
        alike = call[: call.find(b"0x")], len(call), state
        found = self._columns.get(alike)
        taker = None if found is None else found[1].get(found[0](call))
        if taker is None:
            taker = self._takers.get((_masked(call), state))
            if taker is None:
                return None
            self._learn(call, alike, taker)
        if (
            len(self._whole) >= _LIMIT
        ):  # where it fills up again and again, addresses do not come back
            self._whole.clear()
            self._useless += 1
        self._whole[call + state] = taker
        return taker

    def _learn(self, call: bytes, alike: tuple[bytes, int, bytes], taker: Taker) -> None:
        """Remember a call by what stands between its addresses."""
        if self._known >= _LIMIT:
            self._columns.clear()
            self._known = 0
        slices = _between(call)
        found = self._columns.get(alike)
        if found is None or found[2] != slices:
            found = self._columns[alike] = (itemgetter(*slices), {}, slices)
        found[1][found[0](call)] = taker
        self._known += 1


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


def _between(call: bytes) -> list[slice]:
    """Return the columns of all that does not lie between neighbouring addresses, or in them."""
    spans = [found.span(1) for found in _ADDRESS.finditer(call)]
    starts = [0, *(end for _, end in spans)]
    ends = [*(start for start, _ in spans), len(call)]
    gaps = zip(starts, ends, strict=True)
    return [slice(start, end) for start, end in gaps if call[start:end] not in (b",0x", b"")]
