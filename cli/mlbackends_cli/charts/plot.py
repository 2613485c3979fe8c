"""What a plot over two logarithmic axes shows, and its axes; `svg` draws it, and `printed` as characters."""

import math
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from mlbackends.base.errors import joined
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import wrapped

_ROUND = (1, 2, 5)
#: Columns and colours of a plot in characters.
_WIDEST = 110
_COLORS = ("blue", "yellow", "green", "magenta", "cyan", "red")
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


class Logarithmic:
    """Maps positive numbers to places, pixels or cells, powers of ten at equal distances.

    numbers: those that must have a place; the axis begins and ends at round numbers beyond them, or a
    little beyond `marks`, which are then its ticks.
    """

    def __init__(
        self, numbers: Sequence[float], start: float, end: float, marks: Sequence[float] = ()
    ) -> None:
        needed = [min(1e30, max(1e-30, number)) for number in (*numbers, *marks)]
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
            found = [mark for mark in found if low <= mark <= high]
        ticks: list[float] = []
        for mark in found:
            if not ticks or abs(self.at(mark) - self.at(ticks[-1])) >= apart * 0.99:
                ticks.append(mark)
        return ticks


def _rounded(number: float, *, up: bool) -> float:
    """Return the nearest of 1, 2 and 5 times a power of ten, above or below."""
    power = math.floor(math.log10(number))
    near = [factor * 10.0**exponent for exponent in (power, power + 1) for factor in _ROUND]
    if up:
        return min(mark for mark in near if mark >= number * 0.999)
    return max(mark for mark in near if mark <= number * 1.001)


class Point(Struct, frozen=True):
    """A place on the axes. size: 0 to 1, of its mark. hollow: an outline, for uncertain points."""

    x: float
    y: float
    hint: str
    size: float = 0.2
    hollow: bool = False


class Series(Struct, frozen=True):
    """Points of one name, by x. missing: the places without a point, and the reasons."""

    name: str
    points: tuple[Point, ...]
    missing: tuple[tuple[float, str], ...] = ()

    def lines(self) -> Iterator[list[Point]]:
        """Yield points with nothing missing between them."""
        line: list[Point] = []
        for point in self.points:
            if line and any(line[-1].x < x < point.x for x, _ in self.missing):
                yield line
                line = []
            line.append(point)
        yield line


class Roof(Struct, frozen=True):
    """The limit of every point: speed in GFLOP/s, traffic in GB/s; origin: the machine, or the best point."""

    speed: float
    traffic: float
    origin: str

    @property
    def names(self) -> tuple[str, str]:
        """Traffic and speed, in words."""
        return f"{short_number(self.traffic)} GB/s", f"{short_number(self.speed)} GFLOP/s"

    def line(self, ends: tuple[float, float]) -> list[tuple[float, float]]:
        """Return its ends and its corner, between two numbers of operations a byte."""
        corner = self.speed / self.traffic
        middle = [corner] if ends[0] < corner < ends[1] else []
        return [(x, min(self.speed, x * self.traffic)) for x in (ends[0], *middle, ends[1])]


class Plot(Struct, frozen=True):
    """One plot.

    across, up: what its axes are of, with units. marks: the numbers below it, else round ones. ends:
    numbers that must have a place on the axis upwards. joined: whether lines run through the points.
    """

    title: str
    across: str
    up: str
    series: tuple[Series, ...]
    marks: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()
    roof: Roof | None = None
    joined: bool = True

    @property
    def bars(self) -> list[tuple[Series, Point]]:
        """Each series with its point, the highest first, if lines would have no length; else []."""
        if not self.joined or len(set(self.numbers[0])) > 1:
            return []
        drawn = [(curve, curve.points[0]) for curve in self.series if curve.points]
        return sorted(drawn, key=lambda one: -one[1].y)

    @property
    def numbers(self) -> tuple[list[float], list[float]]:
        """The numbers on the axis across, and on the one upwards; 1 if there are none."""
        points = [point for series in self.series for point in series.points]
        up = [*(point.y for point in points), *self.ends, *([self.roof.speed] if self.roof else [])]
        across = [*(point.x for point in points), *self.marks]
        return across or [1.0], up or [1.0]


def notes(plots: Iterable[Plot], hollow: str = "hollow") -> list[str]:
    """Return why points are missing, each reason once, and what a hollow one is. hollow: its name."""
    found: dict[tuple[str, str], dict[float, None]] = {}
    drawn: set[str] = set()
    is_hollow = False
    for plot in plots:
        for curve in plot.series:
            drawn |= {curve.name} if curve.points else set()
            is_hollow |= any(point.hollow for point in curve.points)
            for x, why in curve.missing:
                found.setdefault((curve.name, why), {})[x] = None
    lines = []
    for (name, why), places in found.items():
        at = joined([short_number(x) for x in sorted(places)])
        lines.append(f"✗ {name}{f' at {at}' if name in drawn else ''}: {why}")
    return lines + [f"{hollow}: the time is unstable"] * is_hollow


# ---- a plot in characters --------------------------------------------------------------------


def printed(plots: Sequence[Plot], page: Page) -> str:
    """Return plots as bars, those of one place on the axis across together, and why points are missing.

    Of a roofline only the limits are printed: its points are the bars of the other plots.
    """
    lines: list[str] = []
    names = [*dict.fromkeys(curve.name for plot in plots for curve in plot.series if curve.points)]
    for plot in plots:
        lines += [page.styled(line, "bold") for line in wrapped(plot.title, page.width)]
        lines += wrapped(f"limit: {' and '.join(plot.roof.names)}", page.width) if plot.roof else []
        drawn = plot.series if plot.joined else ()
        points = [(point, curve.name) for curve in drawn for point in curve.points]
        places = sorted({point.x for point, _ in points})
        name_width = max((len(name) for _, name in points), default=0)
        room = max(4, min(page.width, _WIDEST) - name_width - len(f"1.23k {plot.up}") - 4)
        for place in places:
            lines += [f"{plot.across}: {short_number(place)}"] if len(places) > 1 else []
            here = [(point, name) for point, name in points if point.x == place]
            for point, name in sorted(here, key=lambda one: -one[0].y):
                sign = page.sign("░", "~") if point.hollow else page.sign("█", "#")
                bar = sign * max(1, round(room * point.y / max(plot.numbers[1])))
                bar = page.styled(bar, _COLORS[names.index(name) % len(_COLORS)])
                lines.append(f"  {name:<{name_width}} {bar} {short_number(point.y)} {plot.up}")
        lines.append("")
    for note in notes(plots, page.sign("░", "~")):
        lines += wrapped(note, page.width, "", "  ")
    return page.fitted("\n".join(lines).rstrip("\n") + "\n")
