"""Axes: where ticks stand, and how numbers on them read."""

import math
import textwrap
from collections.abc import Sequence

from mlbackends_cli.picture.svg import Drawing, width_of

MARGIN = 48.0
"""Pixels to the left of a frame, for its numbers."""

TICKS_APART = 90
"""Pixels between two ticks, about."""

LINES_APART = 40
"""The same where numbers stand above each other."""


def amount(number: float) -> str:
    """Return a number in three digits, with k, M, G for what is large: "46.6", "1.2k"."""
    if not math.isfinite(number):
        return "-"
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= factor:
            shown = number / (1e3 if letter == "k" else factor)
            return f"{_short(shown)}{letter}"
    return _short(number)


def _short(number: float) -> str:
    if number == 0 or abs(number) >= 1000:
        return f"{number:.0f}"
    return f"{number:.3g}" if abs(number) >= 0.001 else f"{number:.1e}"


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

    low, high: the numbers that must have a place; the axis begins and ends a little beyond.
    """

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low = math.log10(low) - 0.1
        self._high = max(math.log10(high) + 0.1, self._low + 0.5)
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
        inside = self.ends()
        return [each for each in found if inside[0] <= each <= inside[1]]


def notes(drawing: Drawing, texts: list[str], y: float, width: float) -> float:
    """Write sentences below a plot, broken between words; return how tall they are."""
    top = y
    most = max(10, int((width - 4) / width_of("n", "small")))
    for text in texts:
        for line in textwrap.wrap(text, most):
            drawing.words(2, top + 10, line, width, "small")
            top += 15
    return top - y


def grid(
    drawing: Drawing,
    across: Logarithmic,
    up: Logarithmic,
    frame: tuple[float, float, float, float],
    names: tuple[str, str],
    marks: Sequence[float] = (),
) -> None:
    """Draw the lines and numbers of two axes around a frame (left, top, right, bottom).

    marks: the numbers below the frame; left out, round ones.
    """
    left, top, right, bottom = frame
    columns, rows = marks or across.ticks(), up.ticks(LINES_APART)
    lines = [f"M{across.at(each):.1f} {top:.1f}V{bottom:.1f}" for each in columns]
    lines += [f"M{left:.1f} {up.at(each):.1f}H{right:.1f}" for each in rows]
    drawing.path("".join(lines), "grid")
    for each in columns:
        drawing.words(across.at(each), bottom + 14, amount(each), 80, "small", "middle")
    for each in rows:
        drawing.words(left - 6, up.at(each) + 4, amount(each), 60, "small", "end")
    drawing.words((left + right) / 2, bottom + 31, names[0], right - left, "small", "middle")
    drawing.words(left - MARGIN + 2, top - 8, names[1], right - left, "small")
