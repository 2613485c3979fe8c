"""Drawings as SVG or PNG: shapes, words and a legend, in pixels from the upper left; plots made of these."""

import os
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TypeVar

from mlbackends.base.errors import BadInput, shown
from mlbackends.base.installed import install_command
from mlbackends.base.tables import table
from mlbackends_cli.charts.plot import Logarithmic, Plot, Point, short_number
from mlbackends_cli.text.plain import one_line

#: Average width of a letter in each text size; slightly too large, so that words fit.
_WIDTHS = {"bold": 7.8, "axis": 7.4, "headline": 12.6}
_MOST_COLOURS = 8
#: The marks of series, by their corners around a point: they differ even without colours.
_SHAPES: list[list[tuple[float, float]]] = table(os.path.join(os.path.dirname(__file__), "shapes"))["marks"]
#: The class of all series beyond the first eight, which share a colour.
OTHER = "series other"


class Drawing:
    """Collects shapes, each an element of SVG. hint: shown to a reader who points at the shape."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a rectangle of some kind."""
        self.parts.append(
            f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}"'
            f' height="{_n(height)}" rx="{_n(min(4, height / 4))}"></rect>'
        )

    def path(self, steps: str, kind: str, hint: str = "") -> None:
        """Draw a path, from steps in SVG's own language."""
        self.parts.append(f'<path class="{kind}" d="{steps}">{_title(hint)}</path>')

    def line(self, points: Iterable[tuple[float, float]], kind: str, hint: str = "") -> None:
        """Draw a line through points."""
        self.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), kind, hint)

    def mark(self, x: float, y: float, radius: float, shape: int, kind: str, hint: str = "") -> None:
        """Draw the mark of a series around a point. shape: its place among the series."""
        corners = _SHAPES[shape % len(_SHAPES)]
        if corners:
            steps = "L".join(f"{x + a * radius:.1f} {y + b * radius:.1f}" for a, b in corners)
            self.path(f"M{steps}z", kind, hint)
            return
        r, across = _n(radius), _n(2 * radius)
        steps = f"M{x - radius:.1f} {y:.1f}a{r} {r} 0 1 0 {across} 0"
        self.path(f"{steps}a{r} {r} 0 1 0 -{across} 0z", kind, hint)

    def cross(self, x: float, y: float, radius: float, kind: str, hint: str) -> None:
        """Draw a cross, for a missing point."""
        across = _n(2 * radius)
        slopes = f"l{across} {across}m0-{across}l-{across} {across}"
        self.path(f"M{x - radius:.1f} {y - radius:.1f}{slopes}", kind, hint)

    def words(self, x: float, y: float, text: str, room: float, size: str, anchor: str = "start") -> None:
        """Write one line, its foot at `y`; what has no room ends in an ellipsis, the hint has all."""
        text = one_line(text)
        fitting = int(room / width_of("n", size))
        if fitting < 2 or not text:
            return
        shown, full = text, ""
        if len(text) > fitting:
            shown, full = text[: fitting - 1].rstrip() + "…", _title(text)
        place = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(f'<text class="{size}" x="{_n(x)}" y="{_n(y)}"{place}>{full}{_text(shown)}</text>')

    def notes(self, texts: Sequence[str], y: float, width: float, x: float = 2) -> float:
        """Write sentences below a chart, broken between words; return their height."""
        top = y
        most = max(10, int((width - 4) / width_of("n", "axis")))
        for text in texts:
            for line in textwrap.wrap(text, most):
                self.words(x, top + 12, line, width, "axis")
                top += 17
        return top - y

    def document(
        self, name: str, width: float, height: float, title: str, about: str, style: str = ""
    ) -> str:
        """Return the drawing as one element that a screen reader can read out.

        style: the rules of a standalone picture, which also gets a width.
        """
        alone = f' width="{_n(width)}"><style>{style}</style>' if style else ">"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{name}" role="img"'
            f' aria-labelledby="{name}-title {name}-about" viewBox="0 0 {_n(width)} {_n(height)}"{alone}'
            f'<title id="{name}-title">{_text(title)}</title>'
            f'<desc id="{name}-about">{_text(about)}</desc>' + "".join(self.parts) + "</svg>"
        )


class Colours:
    """Gives each of the first eight series its own colour, and all others one colour."""

    def __init__(self, series: Iterable[str]) -> None:
        names = list(dict.fromkeys(series))
        self._kinds = {name: f"series s{i}" for i, name in enumerate(names[:_MOST_COLOURS])}
        self._more = len(names) > _MOST_COLOURS

    def place(self, series: str) -> int:
        """Return which one it is among the series; of those without a colour, the number of colours."""
        return list(self._kinds).index(series) if series in self._kinds else _MOST_COLOURS

    def of(self, series: str) -> str:
        """Return the class of a series' shapes."""
        return self._kinds.get(series, OTHER)

    def legend(self, drawing: Drawing, x: float, y: float, width: float) -> float:
        """Draw a square and a name for each colour, in rows; return their height."""
        left, top = x, y
        named = [*self._kinds.items(), *([("others", OTHER)] if self._more else [])]
        for name, kind in named:
            # A routine's name in capitals is wider than words are.
            room = min(width_of(name, "axis") * (1.3 if name.isupper() else 1) + 22, width)
            if left > x and left + room > x + width:
                left, top = x, top + 17
            drawing.box(left, top, 10, 10, kind)
            drawing.words(left + 15, top + 10, name or "?", room - 14, "axis")
            left += room + 8
        return top - y + 17 if named else 0


def width_of(text: str, size: str) -> float:
    """Return the approximate width of a text."""
    return len(text) * _WIDTHS[size.partition(" ")[0]]


def _title(hint: str) -> str:
    return f"<title>{_text(hint)}</title>" if hint else ""


def _text(text: str) -> str:
    return escape(one_line(text))


def _n(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")


#: Room around a frame: for its title and an axis' name, for numbers and a name, and for numbers.
_ABOVE, _BELOW, _LEFT = 44.0, 42.0, 46.0
#: How tall the row of a backend that refused is, and a line of text.
_ROW, _LINE = 18.0, 16.0


def draw_plot(
    drawing: Drawing, plot: Plot, colours: Colours, place: tuple[float, float], size: tuple[float, float]
) -> None:
    """Draw a plot within a box, whose upper left corner is at `place`.

    size: its width and height; the rows of what is missing and the names of lines are inside.
    """
    drawn = [curve for curve in plot.series if curve.points]
    (x, y), (width, height) = place, size
    edge, top, foot = x + width, y + _ABOVE, y + height - _BELOW
    drawing.words(x + 2, y + 15, plot.title, width - 4, "bold")
    if plot.bars:
        _draw_bars(drawing, plot, colours, (x + 2, y + 35), (edge, foot + _BELOW))
        return
    drawing.words(x + 2, y + 35, plot.up, width - 4, "axis")
    widest = max((width_of(curve.name, "axis") + 30 for curve in drawn), default=10.0)
    left, right = x + _LEFT, edge - min(widest, width * 0.3)
    # A series without any point is named below the plots: a row of crosses would not add anything.
    refused = [curve for curve in drawn if curve.missing]
    bottom = foot - _ROW * len(refused)
    across, up = (
        Logarithmic(plot.numbers[0], left, right, plot.marks),
        Logarithmic(plot.numbers[1], bottom, top),
    )
    texts: list[tuple[float, float, float]] = []  # from x on, at y, to x

    def write(text: str, x: float, y: float, series: str | None = None) -> None:
        """Write the name of a line or point where there is space: next to it, else above or below."""
        width = width_of(text, "axis") + (16 if series is not None else 0)
        x = max(left, min(x, edge - width - 2))
        places = [y + step * _LINE / 4 for step in sorted(range(-24, 25), key=abs)]
        places = [place for place in places if top <= place <= bottom] or [y]
        occupied = [other for start, other, end in texts if x < end and start < x + width]
        free = (place for place in places if all(abs(place - other) >= _LINE for other in occupied))
        middle = next(free, places[0])
        texts.append((x, middle, x + width))
        # If the name is far from its point, the point's mark comes before it.
        if series is not None and abs(middle - y) > _LINE:
            drawing.mark(x + 6, middle, 4.5, colours.place(series), f"{colours.of(series)} dot", "")
            x += 15
        drawing.words(x, middle + 5, text, edge - x, "axis halo")

    _draw_grid(drawing, plot.across, (across, up), (left, top, right, foot))
    if roof := plot.roof:
        corners = [(across.at(x), up.at(y)) for x, y in roof.line(across.ends)]
        drawing.line(corners, "roof", f"{roof.origin}: {', '.join(roof.names)}")
        traffic, speed = roof.names
        if roof.speed > roof.traffic * across.ends[0] * 2:
            write(traffic, corners[0][0] + 6, corners[0][1] - 16)
        if roof.speed < roof.traffic * across.ends[1] / 1.5:
            write(speed, corners[-1][0] - width_of(speed, "axis") - 6, corners[-1][1] - 11)
    for curve in drawn if plot.joined else ():
        for part in curve.lines():
            ends = ((across.at(point.x), up.at(point.y)) for point in part)
            drawing.line(ends, f"{colours.of(curve.name)} line")
    points = [(point, curve.name) for curve in drawn for point in curve.points]
    # Large ones first, so that they do not hide small ones.
    for point, name in sorted(points, key=lambda one: -one[0].size):
        kind = f"{colours.of(name)} {'hollow' if point.hollow else 'dot'}"
        place = across.at(point.x), up.at(point.y)
        drawing.mark(*place, _radius(point), colours.place(name), kind, point.hint)
    for curve in drawn:
        largest = max(curve.points, key=lambda one: (one.size, one.x))
        last = curve.points[-1] if plot.joined else largest
        write(curve.name, across.at(last.x) + _radius(last) + 4, up.at(last.y), curve.name)
    # A row for each series that lacks points, below the others.
    for row, curve in enumerate(refused):
        y = bottom + _ROW * (row + 0.5)
        for x, why in curve.missing:
            hint = f"{curve.name} at {short_number(x)}: {why}"
            drawing.cross(across.at(x), y, 4.5, f"{colours.of(curve.name)} cross", hint)
        drawing.words(right + 6, y + 5, f"✗ {curve.name}", edge - right - 8, "axis")


def _draw_bars(
    drawing: Drawing, plot: Plot, colours: Colours, place: tuple[float, float], end: tuple[float, float]
) -> None:
    """Draw a bar for each series, from 0 on, with its name above it."""
    (x, y), (edge, foot), bars = place, end, plot.bars
    step = min(3 * _ROW, (foot - y) / len(bars))
    room = edge - x - width_of(f"1.23k {plot.up}", "axis") - 12
    for row, (series, point) in enumerate(bars):
        top, length = y + row * step, room * point.y / bars[0][1].y
        kind = f"{colours.of(series.name)} {'hollow' if point.hollow else 'dot'}"
        drawing.words(x, top, series.name, edge - x, "axis")
        drawing.box(x, top + 5, length, max(2.0, step - 26), kind)
        text = f"{short_number(point.y)} {plot.up}"
        drawing.words(x + length + 6, top + 1 + step / 2, text, edge - x, "axis")


def _draw_grid(
    drawing: Drawing,
    name: str,
    axes: tuple[Logarithmic, Logarithmic],
    box: tuple[float, float, float, float],
) -> None:
    """Draw the ticks of two axes and their lines, and the name of the one across."""
    (across, up), (left, top, right, foot) = axes, box
    drawing.box(left, top, right - left, foot - top, "plot")
    columns = {tick: across.at(tick) for tick in across.ticks(40)}
    rows = {tick: up.at(tick) for tick in up.ticks(18)}
    lines = [f"M{x:.1f} {top:.1f}V{foot:.1f}" for x in columns.values()]
    lines += [f"M{left:.1f} {y:.1f}H{right:.1f}" for y in rows.values()]
    drawing.path("".join(lines), "grid")
    for number, x in columns.items():
        drawing.words(x, foot + 17, short_number(number), 60, "axis", "middle")
    for number, y in rows.items():
        drawing.words(left - 6, y + 5, short_number(number), _LEFT, "axis", "end")
    drawing.words((left + right) / 2, foot + 36, name, right - left + _LEFT, "axis", "middle")


def _radius(point: Point) -> float:
    return 3.0 + 10.0 * point.size


Record = TypeVar("Record")

#: Pixels of a PNG for each of the drawing's, as many as a projector of 1920 has.
_ZOOM = 2.0
#: Families for those that only a desktop has: resvg takes no other for a family that is missing.
_FONTS = (
    'svg,text{font-family:"Arial","Helvetica","Liberation Sans","DejaVu Sans","Noto Sans","Roboto",'
    '"Segoe UI","Open Sans","Ubuntu","FreeSans",sans-serif}'
)
_WORD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    '<style>{}</style><text x="2" y="14">{}</text></svg>'
)
_NO_FONT = "install a font, such as Debian's fonts-dejavu-core, or write FILE.svg"


#: Draws a record as SVG, with the style rules of a standalone picture.
Sheet = Callable[[Record, str], str]


def drawing(path: str, sheet: Sheet[Record]) -> Callable[[Record], str | bytes]:
    """Return the function that draws a record for a file. Raises BadInput for an unknown image type."""
    ending = os.path.splitext(path)[1].lower()
    if ending == ".png":
        if (reason := why_no_png()) is not None:
            raise reason
        import resvg_py

        # resvg knows no variables: the first value of each is the light one.
        rules = re.sub(r"@media[^}]*\}\}", "", style_alone())
        colours = dict(re.findall(r"(--\w+):(#\w+)", rules))
        rules = re.sub(r"var\((--\w+)\)", lambda found: colours[found[1]], rules)
        look = {"style_sheet": _FONTS, "zoom": _ZOOM, "background": colours["--paper"]}
        return lambda record: bytes(resvg_py.svg_to_bytes(svg_string=sheet(record, rules), **look))
    if ending != ".svg" and path != "-":
        raise BadInput(f"{shown(path)} is not an image type that can be written", "use FILE.svg or FILE.png")
    return lambda record: sheet(record, style_alone())


def why_no_png() -> BadInput | None:
    """Return why a PNG cannot be made here, None if it can.

    resvg makes it, which needs no browser and no library of the system, only a font.
    """
    try:
        import resvg_py
    except ImportError:
        return BadInput(
            "PNG needs resvg-py, which is not installed",
            f"{install_command('png')}, or write FILE.svg",
        )
    # Without a font, resvg omits text silently.
    words = (_WORD.format(_FONTS, text) for text in ("", "font"))
    empty, word = (bytes(resvg_py.svg_to_bytes(svg_string=word)) for word in words)
    if empty == word:
        return BadInput("PNG needs a font, and no font is installed", _NO_FONT)
    return None


def style_alone() -> str:
    """Return the style rules of a standalone picture."""
    texts = []
    for name in ("standalone.css", "charts.css"):
        with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
            texts.append(file.read())
    return re.sub(r"/\*.*?\*/", "", "".join(texts)).replace("\n", "")
