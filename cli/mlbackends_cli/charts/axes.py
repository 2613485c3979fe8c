"""Axes: the places of ticks, and short numbers for them."""

import math
from collections.abc import Sequence

#: Pixels between two ticks of a linear axis, about.
TICKS_APART = 90
_ROUND = (1, 2, 5)
_UNITS = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))


def short_number(number: float) -> str:
    """Return a number in three digits, with k, M, G for what is large: "46.6", "1.2k"."""
    if not math.isfinite(number):
        return "-"
    letter = ""
    for least, factor, unit in _UNITS:
        if abs(number) >= least:
            number, letter = number / factor, unit
            break
    if number == 0 or abs(number) >= 1000:
        return f"{number:.0f}{letter}"
    return f"{number:.3g}{letter}" if abs(number) >= 0.001 else f"{number:.1e}{letter}"


def steps(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers from low to high, in steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, count)
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


class Logarithmic:
    """Maps positive numbers to places, pixels or cells, powers of ten at equal distances.

    numbers: those that must have a place; the axis begins and ends at round numbers beyond them, or a
    little beyond `marks`, which are then its ticks.
    """

    def __init__(
        self, numbers: Sequence[float], start: float, end: float, marks: Sequence[float] = ()
    ) -> None:
        needed = [min(1e30, max(1e-30, each)) for each in (*numbers, *marks)]
        low, high = min(needed), max(needed)
        if marks:
            low, high = low / 1.15, high * 1.15
        else:
            low, high = _rounded(low, up=False), _rounded(high, up=True)
        while high < low * 3:
            low, high = _rounded(low * 0.9, up=False), _rounded(high * 1.1, up=True)
        self.ends = low, high
        self._low, self._span = math.log10(low), math.log10(high / low)
        self._start, self._end = start, end
        self._marks = sorted(set(marks))

    def at(self, number: float) -> float:
        """Return a number's place, inside of the axis."""
        part = (math.log10(max(number, 1e-300)) - self._low) / self._span
        return self._start + min(1.0, max(0.0, part)) * (self._end - self._start)

    def ticks(self, apart: float) -> list[float]:
        """Return the marks, or 1, 2 and 5 times powers of ten, or these powers, at least so far apart."""
        found = self._marks
        decade = abs(self._end - self._start) / self._span
        if not found:
            every = max(1, math.ceil(apart / decade))
            first = math.floor(self._low) - every
            powers = range(first - first % every, math.ceil(self._low + self._span) + 1, every)
            factors = _ROUND if decade * 0.3 >= apart else (1,)
            low, high = self.ends[0] * 0.999, self.ends[1] * 1.001
            found = [factor * 10.0**power for power in powers for factor in factors]
            found = [each for each in found if low <= each <= high]
        ticks: list[float] = []
        for each in found:
            if not ticks or abs(self.at(each) - self.at(ticks[-1])) >= apart * 0.99:
                ticks.append(each)
        return ticks


def _rounded(number: float, *, up: bool) -> float:
    """Return the nearest of 1, 2 and 5 times a power of ten, above or below."""
    power = math.floor(math.log10(number))
    near = [factor * 10.0**each for each in (power, power + 1) for factor in _ROUND]
    if up:
        return min(each for each in near if each >= number * 0.999)
    return max(each for each in near if each <= number * 1.001)
