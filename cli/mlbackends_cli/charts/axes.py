"""Axes: where ticks stand, how numbers on them read, and a frame with two logarithmic axes."""

import math
from collections.abc import Sequence

from mlbackends_cli.charts.svg import Drawing

MARGIN = 48.0
"""Pixels to the left of a frame, for its numbers."""
TICKS_APART = 90
"""Pixels between two ticks, about."""
LINES_APART = 40
"""The same where numbers stand above each other."""


def short_number(number: float) -> str:
    """Return a number in three digits, with k, M, G for what is large: "46.6", "1.2k"."""
    if not math.isfinite(number):
        return "-"
    letter = ""
    for least, factor, unit in (
        (1e12, 1e12, "T"),
        (1e9, 1e9, "G"),
        (1e6, 1e6, "M"),
        (1e4, 1e3, "k"),
    ):
        if abs(number) >= least:
            number, letter = number / factor, unit
            break
    if number == 0 or abs(number) >= 1000:
        return f"{number:.0f}{letter}"
    return f"{number:.3g}{letter}" if abs(number) >= 0.001 else f"{number:.1e}{letter}"


def steps(low: float, high: float, count: int) -> list[float]:
    """Return round numbers from low to high, about so many: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, count)
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


class Logarithmic:
    """Maps positive numbers to pixels, powers of ten at equal distances.

    numbers: those that must have a place; the axis begins and ends a little beyond.
    """

    def __init__(self, numbers: Sequence[float], start: float, end: float) -> None:
        self._low = math.log10(min(numbers)) - 0.1
        self._high = max(math.log10(max(numbers)) + 0.1, self._low + 0.5)
        self._start, self._end = start, end

    def at(self, number: float) -> float:
        """Return a number's place in pixels, inside of the axis."""
        part = (math.log10(max(number, 1e-300)) - self._low) / (self._high - self._low)
        return self._start + min(1.0, max(0.0, part)) * (self._end - self._start)

    def ends(self) -> tuple[float, float]:
        """Return the lowest and the highest number that have a place."""
        return 10.0**self._low, 10.0**self._high

    def ticks(self, apart: float = TICKS_APART) -> list[float]:
        """Return powers of ten, and 2 and 5 times them where there are few. apart: pixels, about."""
        room = abs(self._end - self._start) / apart
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        every = max(1, math.ceil((self._high - self._low) / max(1.0, room)))
        found = [10.0**power for power in powers if power % every == 0]
        if every == 1 and (self._high - self._low) * 3 <= room:
            found = sorted(each * factor for each in found for factor in (1, 2, 5))
        low, high = self.ends()
        return [each for each in found if low <= each <= high]


class Frame:
    """A frame with two logarithmic axes on a drawing.

    corners: left, top, right, bottom, in pixels. across, up: the numbers that must have a place.
    """

    def __init__(
        self,
        drawing: Drawing,
        corners: tuple[float, float, float, float],
        across: Sequence[float],
        up: Sequence[float],
    ) -> None:
        self.drawing = drawing
        self.corners = left, top, right, bottom = corners
        self.across = Logarithmic(across, left, right)
        self.up = Logarithmic(up, bottom, top)
        drawing.box(left, top, right - left, bottom - top, "plot")

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is, in pixels."""
        return self.across.at(x), self.up.at(y)

    def grid(self, names: tuple[str, str], marks: Sequence[float] = ()) -> None:
        """Draw lines and numbers. names: of the axes; marks: the numbers below, else round ones."""
        left, top, right, bottom = self.corners
        draw = self.drawing
        columns = {each: self.across.at(each) for each in marks or self.across.ticks()}
        rows = {each: self.up.at(each) for each in self.up.ticks(LINES_APART)}
        lines = [f"M{x:.1f} {top:.1f}V{bottom:.1f}" for x in columns.values()]
        draw.path(
            "".join([*lines, *(f"M{left:.1f} {y:.1f}H{right:.1f}" for y in rows.values())]), "grid"
        )
        for number, x in columns.items():
            draw.words(x, bottom + 14, short_number(number), 80, "small", "middle")
        for number, y in rows.items():
            draw.words(left - 6, y + 4, short_number(number), 60, "small", "end")
        draw.words((left + right) / 2, bottom + 31, names[0], right - left, "small", "middle")
        draw.words(left - MARGIN + 2, top - 8, names[1], right - left, "small")

    def roof(self, ends: tuple[float, float], speed: float, traffic: float, hint: str) -> None:
        """Draw bytes a second as a slope, operations a second as a level.

        ends: operations a byte where it begins and ends. speed in GFLOP/s, traffic in GB/s.
        """
        corner = speed / traffic
        middle = [corner] if ends[0] < corner < ends[1] else []
        points = [self.at(each, min(speed, each * traffic)) for each in (ends[0], *middle, ends[1])]
        self.drawing.line(points, "roof", hint)
