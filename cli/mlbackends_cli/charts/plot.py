"""What a plot over two logarithmic axes shows; `vector` and `blocks` draw it."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from mlbackends.base.errors import joined
from mlbackends_cli.charts.axes import short_number


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
        drawn = [(each, each.points[0]) for each in self.series if each.points]
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
        for each in plot.series:
            drawn |= {each.name} if each.points else set()
            is_hollow |= any(point.hollow for point in each.points)
            for x, why in each.missing:
                found.setdefault((each.name, why), {})[x] = None
    lines = []
    for (name, why), places in found.items():
        at = joined([short_number(x) for x in sorted(places)])
        lines.append(f"✗ {name}{f' at {at}' if name in drawn else ''}: {why}")
    return lines + [f"{hollow}: the time is unstable"] * is_hollow
