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
_UNITS = {b"ns": 1.0, b"us": 1e3, b"ms": 1e6, b"0s": 1e9}
_LIMIT = 20_000
Taker = Callable[[float], None]
Key = tuple[bytes, bytes]
_Columns = tuple[Callable[[bytes], Any], dict[Any, Taker], list[slice]]
"""What cuts a call, the takers by what that gives, and the columns."""


class Shortener:
    """Cuts lines to a key and a time; remembers at most about 15 MB of what it has seen."""

    def __init__(self) -> None:
        self._takers: Mapping[Hashable, Taker] = {}
        self._by_state: dict[bytes, _Calls] = {}

    def shorten(self, line: bytes) -> tuple[Key, float] | None:
        """Return the call with its addresses masked and the state behind it, and the time in nanoseconds."""
        call, _, rest = line.rpartition(b") ")
        time, _, state = rest.partition(b" ")
        unit = _UNITS.get(time[-2:])
        try:
            return None if unit is None else ((_masked(call), state), float(time[:-2]) * unit)
        except ValueError:
            return None

    def take(self, lines: list[bytes], takers: Mapping[Hashable, Taker]) -> list[int]:
        """Give each line's time to the taker of its key; return the places of lines that have none."""
        if takers is not self._takers:
            self._takers, self._by_state = takers, {}
        left: list[int] = []
        last = None
        calls = _Calls()
        units = _UNITS
        for index, line in enumerate(lines):
            call, _, rest = line.rpartition(b") ")
            time, _, state = rest.partition(b" ")
            if state != last:
                calls = self._of(state)
                last = state
            try:
                duration = float(time[:-2]) * units[time[-2:]]
            except (KeyError, ValueError):
                left.append(index)
                continue
            taker = calls.whole.get(call) or calls.taker(call, state, takers)
            if taker is None:
                left.append(index)
            else:
                taker(duration)
        return left

    def _of(self, state: bytes) -> "_Calls":
        calls = self._by_state.get(state)
        if calls is None:
            if len(self._by_state) > 1000:
                self._by_state.clear()
            calls = self._by_state[state] = _Calls()
        return calls


class _Calls:
    """The takers of calls in one state: by the whole call, and by what is left without addresses."""

    __slots__ = ("_columns", "_known", "_useless", "whole")

    def __init__(self) -> None:
        self.whole: dict[bytes, Taker] = {}
        self._columns: dict[tuple[bytes, int], _Columns] = {}
        self._known = 0
        self._useless = 0

    def taker(self, call: bytes, state: bytes, takers: Mapping[Hashable, Taker]) -> Taker | None:
        """Return who takes a call's time; None if nobody does yet."""
        alike = call[: call.find(b"0x")], len(call)
        found = self._columns.get(alike)
        if found is not None:
            taker = found[1].get(found[0](call))
            if taker is not None:
                if self._useless < 3:
                    self._remember(call, taker)
                return taker
        taker = takers.get((_masked(call), state))
        if taker is None:
            return None
        slices = _between(call)
        if self._known >= _LIMIT:
            self._columns.clear()
            self._known = 0
        if found is None or found[2] != slices:
            found = self._columns[alike] = (itemgetter(*slices), {}, slices)
        found[1][found[0](call)] = taker
        self._known += 1
        return taker

    def _remember(self, call: bytes, taker: Taker) -> None:
        """Keep a whole call; where it fills up again and again, addresses do not come back."""
        if len(self.whole) >= _LIMIT:
            self.whole.clear()
            self._useless += 1
        self.whole[call] = taker


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
