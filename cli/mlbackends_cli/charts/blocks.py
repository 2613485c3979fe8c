"""A plot in characters: lines of braille, marks that differ without colour, and names next to the lines."""

from collections.abc import Sequence
from itertools import pairwise

from mlbackends_cli.charts.plot import Logarithmic, Plot, Point, Series, notes, short_number
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import wrapped

_WIDEST, _TALL = 110, 15
#: The bits of a braille character, by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_MARKS, _HOLLOW, _PLAIN = "●■▲◆▼★", "○□△◇▽☆", "o#^*v+"
_COLORS = ("blue", "yellow", "green", "magenta", "cyan", "red")


def printed(plots: Sequence[Plot], page: Page) -> str:
    """Return plots below one another, as wide as the page, and why points are missing."""
    names = dict.fromkeys(each.name for plot in plots for each in plot.series if each.points)
    parts = [
        "\n".join(_barred(plot, list(names), page) or _Canvas(plot, list(names), page).lines())
        for plot in plots
    ]
    below = [
        line
        for note in notes(plots, page.sign("hollow", "~"))
        for line in wrapped(note, page.width, "", "  ")
    ]
    return page.fitted("\n\n".join([*parts, "\n".join(below)]).rstrip("\n") + "\n")


def _barred(plot: Plot, names: list[str], page: Page) -> list[str]:
    """Return a bar for each series, from 0 on, if a plot has one point of each; else []."""
    bars = plot.bars
    if not bars:
        return []
    lines = [page.styled(line, "bold") for line in wrapped(plot.title, page.width)]
    texts = [f"{short_number(point.y)} {plot.up}" for _, point in bars]
    name = max(len(series.name) for series, _ in bars)
    room = max(4, min(page.width, _WIDEST) - name - max(map(len, texts)) - 4)
    for (series, point), text in zip(bars, texts, strict=True):
        sign = page.sign("░", "~") if point.hollow else page.sign("█", "#")
        drawn = sign * max(1, round(room * point.y / bars[0][1].y))
        color = _COLORS[names.index(series.name) % len(_COLORS)]
        lines.append(f"  {series.name:<{name}} {page.styled(drawn, color)} {text}")
    return lines


class _Canvas:
    """The cells of one plot, each a character in a style; a cell is two dots wide and four tall."""

    def __init__(self, plot: Plot, names: list[str], page: Page) -> None:
        self._plot, self._page, self._names = plot, page, names
        self._drawn = [each for each in plot.series if each.points]
        width = min(page.width, _WIDEST)
        across, up = plot.numbers
        self._up = Logarithmic(up, 4 * _TALL - 2, 1)
        self._rows = {int(self._up.at(tick)) // 4: short_number(tick) for tick in self._up.ticks(8)}
        self._gutter = max(map(len, self._rows.values()), default=0)
        room = max((len(each.name) for each in self._drawn), default=0) + 3
        self._columns = max(10, width - self._gutter - 2 - room)
        self._across = Logarithmic(across, 0, 2 * self._columns - 1, plot.marks)
        self._dots: dict[tuple[int, int], tuple[int, str]] = {}
        self._cells: dict[tuple[int, int], str] = {}

    def lines(self) -> list[str]:
        """Return the plot's lines, from its title to the name of the axis below it."""
        plot, page = self._plot, self._page
        if plot.roof:
            self._join(plot.roof.line(self._across.ends), "dim")
        for each in self._drawn if plot.joined else ():
            for part in each.lines():
                self._join([(point.x, point.y) for point in part], self._color(each))
        for each in self._drawn:
            for point in each.points:
                self._cells[self._cell(point)] = self._mark(each, hollow=point.hollow)
        names = self._names_by_row()
        about = f"{plot.up}   {' and '.join(plot.roof.names)}" if plot.roof else plot.up
        found = [page.styled(line, "bold") for line in wrapped(plot.title, page.width)]
        found += wrapped(about, page.width)
        for row in range(_TALL):
            number = self._rows.get(row, "").rjust(self._gutter)
            cells = "".join(
                self._cells.get((column, row)) or self._dotted(column, row)
                for column in range(self._columns)
            )
            edge = page.sign("┤" if number.strip() else "│", "|")
            found.append(f"{number}{edge}{cells} {names.get(row, '')}".rstrip())
        blank, edge = " " * self._gutter, page.sign("│", "|")
        for each in self._drawn:
            if each.missing:
                cross = page.styled(page.sign("✗", "x"), self._color(each))
                places = {int(self._across.at(x)) // 2 for x, _ in each.missing}
                cells = "".join(cross if at in places else " " for at in range(self._columns))
                found.append(f"{blank}{edge}{cells} {cross} {each.name}")
        return [*found, *self._foot()]

    def _color(self, series: Series) -> str:
        return _COLORS[self._names.index(series.name) % len(_COLORS)]

    def _mark(self, series: Series, *, hollow: bool = False) -> str:
        at = self._names.index(series.name) % len(_MARKS)
        mark = self._page.sign((_HOLLOW if hollow else _MARKS)[at], "~" if hollow else _PLAIN[at])
        return self._page.styled(mark, self._color(series))

    def _cell(self, point: Point) -> tuple[int, int]:
        return int(self._across.at(point.x)) // 2, int(self._up.at(point.y)) // 4

    def _join(self, corners: Sequence[tuple[float, float]], style: str) -> None:
        """Set the dots of a line through some points."""
        places = [(self._across.at(x), self._up.at(y)) for x, y in corners]
        for (x0, y0), (x1, y1) in pairwise(places):
            count = max(1, round(max(abs(x1 - x0), abs(y1 - y0))))
            for step in range(count + 1):
                x = round(x0 + (x1 - x0) * step / count)
                y = round(y0 + (y1 - y0) * step / count)
                cell = x // 2, y // 4
                bits, _ = self._dots.get(cell, (0, ""))
                self._dots[cell] = bits | _DOTS[y % 4][x % 2], style

    def _dotted(self, column: int, row: int) -> str:
        bits, style = self._dots.get((column, row), (0, ""))
        return self._page.styled(self._page.sign(chr(0x2800 + bits), "."), style) if bits else " "

    def _names_by_row(self) -> dict[int, str]:
        """Return each name at the right of its last point, else in the nearest row that is free."""
        found: dict[int, str] = {}
        for each in self._drawn:
            _, row = self._cell(each.points[-1])
            free = [other for other in range(_TALL) if other not in found]
            if free:
                nearest = min(free, key=lambda other: abs(other - row))
                found[nearest] = f"{self._mark(each)} {each.name}"
        return found

    def _foot(self) -> list[str]:
        """Return the axis below with its numbers and its name."""
        edge, numbers = [self._page.sign("─", "-")] * self._columns, " " * (self._columns + 8)
        for tick in self._across.ticks(14):
            at = int(self._across.at(tick)) // 2
            edge[at] = self._page.sign("┬", "+")
            text = short_number(tick)
            start = max(0, min(at - len(text) // 2, self._columns - len(text) + 1))
            numbers = numbers[:start] + text + numbers[start + len(text) :]
        indent = " " * (self._gutter + 1)
        corner = self._page.sign("└", "+")
        name = self._plot.across.center(self._columns)[: self._page.width - len(indent)]
        lines = (f"{indent[1:]}{corner}{''.join(edge)}", f"{indent}{numbers}", f"{indent}{name}")
        return [line.rstrip() for line in lines]
