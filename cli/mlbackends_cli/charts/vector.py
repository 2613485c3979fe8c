"""A plot as SVG: a title, axes with units, and a name next to each line."""

from mlbackends_cli.charts.axes import Logarithmic, short_number
from mlbackends_cli.charts.plot import Plot, Point, Roof
from mlbackends_cli.charts.svg import Colours, Drawing, width_of

#: Room around a frame: for its title and an axis' name, for numbers and a name, and for numbers.
_ABOVE, _BELOW, _LEFT = 44.0, 42.0, 46.0
#: How tall the row of a backend that refused is, and a line of text.
_ROW, _LINE = 18.0, 16.0


class Frame:
    """A plot drawn within a box, whose upper left corner is at `place`.

    size: its width and height; the rows of what is missing and the names of lines are inside.
    """

    def __init__(
        self,
        drawing: Drawing,
        plot: Plot,
        colours: Colours,
        place: tuple[float, float],
        size: tuple[float, float],
    ) -> None:
        self._drawing, self._plot, self._colours = drawing, plot, colours
        self._drawn = [each for each in plot.series if each.points]
        # A series without any point is named below the plots: a row of crosses would not add anything.
        self._refused = [each for each in self._drawn if each.missing]
        self._texts: list[tuple[float, float, float]] = []  # from x on, at y, to x
        names = [width_of(each.name, "axis") + 30 for each in self._drawn]
        (x, y), (width, height) = place, size
        self._edge = x + width
        self._left, self._right = x + _LEFT, x + width - min(max(names, default=10), width * 0.3)
        self._top, self._foot = y + _ABOVE, y + height - _BELOW
        self._bottom = self._foot - _ROW * len(self._refused)
        across, up = plot.numbers
        self._across = Logarithmic(across, self._left, self._right, plot.marks)
        self._up = Logarithmic(up, self._bottom, self._top)
        drawing.words(x + 2, y + 15, plot.title, width - 4, "bold")
        if plot.bars:
            self._draw_bars(x + 2, y + 35)
            return
        drawing.words(x + 2, y + 35, plot.up, width - 4, "axis")
        self._draw_grid()
        if plot.roof:
            self._draw_roof(plot.roof)
        self._draw_points()
        self._draw_missing()

    def _draw_bars(self, x: float, y: float) -> None:
        """Draw a bar for each series, from 0 on, with its name above it."""
        bars, draw = self._plot.bars, self._drawing
        step = min(3 * _ROW, (self._foot + _BELOW - y) / len(bars))
        room = self._edge - x - width_of(f"1.23k {self._plot.up}", "axis") - 12
        for row, (series, point) in enumerate(bars):
            top, length = y + row * step, room * point.y / bars[0][1].y
            kind = f"{self._colours.of(series.name)} {'hollow' if point.hollow else 'dot'}"
            draw.words(x, top, series.name, self._edge - x, "axis")
            draw.box(x, top + 5, length, max(2.0, step - 26), kind)
            text = f"{short_number(point.y)} {self._plot.up}"
            draw.words(x + length + 6, top + 1 + step / 2, text, self._edge - x, "axis")

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self._across.at(x), self._up.at(y)

    def _draw_grid(self) -> None:
        left, right, top, foot = self._left, self._right, self._top, self._foot
        draw = self._drawing
        draw.box(left, top, right - left, foot - top, "plot")
        columns = {tick: self._across.at(tick) for tick in self._across.ticks(40)}
        rows = {tick: self._up.at(tick) for tick in self._up.ticks(18)}
        lines = [f"M{x:.1f} {top:.1f}V{foot:.1f}" for x in columns.values()]
        lines += [f"M{left:.1f} {y:.1f}H{right:.1f}" for y in rows.values()]
        draw.path("".join(lines), "grid")
        for number, x in columns.items():
            draw.words(x, foot + 17, short_number(number), 60, "axis", "middle")
        for number, y in rows.items():
            draw.words(left - 6, y + 5, short_number(number), _LEFT, "axis", "end")
        middle, room = (left + right) / 2, right - left + _LEFT
        draw.words(middle, foot + 36, self._plot.across, room, "axis", "middle")

    def _draw_roof(self, roof: Roof) -> None:
        ends = self._across.ends
        corners = [self._at(x, y) for x, y in roof.line(ends)]
        self._drawing.line(corners, "roof", f"{roof.origin}: {', '.join(roof.names)}")
        traffic, speed = roof.names
        if roof.speed > roof.traffic * ends[0] * 2:
            self._write(traffic, corners[0][0] + 6, corners[0][1] - 16)
        if roof.speed < roof.traffic * ends[1] / 1.5:
            self._write(speed, corners[-1][0] - width_of(speed, "axis") - 6, corners[-1][1] - 11)

    def _draw_points(self) -> None:
        for each in self._drawn if self._plot.joined else ():
            for part in each.lines():
                corners = [self._at(point.x, point.y) for point in part]
                self._drawing.line(corners, f"{self._colours.of(each.name)} line")
        points = [(point, each.name) for each in self._drawn for point in each.points]
        # Large ones first, so that they do not hide small ones.
        for point, name in sorted(points, key=lambda one: -one[0].size):
            kind = f"{self._colours.of(name)} {'hollow' if point.hollow else 'dot'}"
            shape, spot = self._colours.place(name), self._at(point.x, point.y)
            self._drawing.mark(*spot, _radius(point), shape, kind, point.hint)
        for each in self._drawn:
            last = each.points[-1]
            if not self._plot.joined:
                last = max(each.points, key=lambda one: (one.size, one.x))
            x, y = self._at(last.x, last.y)
            self._write(each.name, x + _radius(last) + 4, y, each.name)

    def _draw_missing(self) -> None:
        """Draw a row for each series that lacks points, below the others."""
        for row, each in enumerate(self._refused):
            y = self._bottom + _ROW * (row + 0.5)
            kind = f"{self._colours.of(each.name)} cross"
            for x, why in each.missing:
                hint = f"{each.name} at {short_number(x)}: {why}"
                self._drawing.cross(self._across.at(x), y, 4.5, kind, hint)
            room = self._edge - self._right - 8
            self._drawing.words(self._right + 6, y + 5, f"✗ {each.name}", room, "axis")

    def _write(self, text: str, x: float, y: float, series: str | None = None) -> None:
        """Write the name of a line or point where there is space: next to it, else above or below."""
        width = width_of(text, "axis") + (16 if series is not None else 0)
        x = max(self._left, min(x, self._edge - width - 2))
        places = [y + step * _LINE / 4 for step in sorted(range(-24, 25), key=abs)]
        places = [place for place in places if self._top <= place <= self._bottom] or [y]
        occupied = [other for start, other, end in self._texts if x < end and start < x + width]
        free = (place for place in places if all(abs(place - other) >= _LINE for other in occupied))
        middle = next(free, places[0])
        self._texts.append((x, middle, x + width))
        # If the name is far from its point, the point's mark comes before it.
        if series is not None and abs(middle - y) > _LINE:
            kind = f"{self._colours.of(series)} dot"
            self._drawing.mark(x + 6, middle, 4.5, self._colours.place(series), kind, "")
            x += 15
        self._drawing.words(x, middle + 5, text, self._edge - x, "axis halo")


def _radius(point: Point) -> float:
    return 3.0 + 10.0 * point.size
