"""Shapes, words and a legend on an SVG drawing; coordinates are pixels from the upper left."""

import textwrap
from collections.abc import Iterable, Sequence
from html import escape

from mlbackends_cli.text.plain import one_line

#: Average width of a letter in each text size; slightly too large, so that words fit.
_WIDTHS = {"bold": 7.8, "axis": 7.4, "headline": 12.6}
_MOST_COLOURS = 8
#: The marks of series, by their corners around a point: they differ even without colours.
_SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    (),  # a circle
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    ((0, -1.3), (1.1, 0), (0, 1.3), (-1.1, 0)),
    ((0, 1.2), (1.1, -0.8), (-1.1, -0.8)),
    ((-1, -0.4), (0, -1.2), (1, -0.4), (0.7, 0.9), (-0.7, 0.9)),
    ((-1.2, 0), (0.8, -1.1), (0.8, 1.1)),
    ((1.2, 0), (-0.8, -1.1), (-0.8, 1.1)),
)
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

    def mark(
        self, x: float, y: float, radius: float, shape: int, kind: str, hint: str = ""
    ) -> None:
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

    def words(
        self, x: float, y: float, text: str, room: float, size: str, anchor: str = "start"
    ) -> None:
        """Write one line, its foot at `y`; what has no room ends in an ellipsis, the hint has all."""
        text = one_line(text)
        fitting = int(room / width_of("n", size))
        if fitting < 2 or not text:
            return
        shown, full = text, ""
        if len(text) > fitting:
            shown, full = text[: fitting - 1].rstrip() + "…", _title(text)
        place = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(
            f'<text class="{size}" x="{_n(x)}" y="{_n(y)}"{place}>{full}{_text(shown)}</text>'
        )

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
            letters = width_of(name, "axis") * (1.3 if name.isupper() else 1)
            room = min(letters + 22, width)
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
