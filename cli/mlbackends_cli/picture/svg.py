"""Shapes and words on an SVG drawing. Colours are left to the page: shapes have classes."""

from html import escape

from mlbackends_cli.plain import one_line

_WIDTHS = {"small": 5.7, "bold": 7.8, "tiny": 5, "": 6.4}
"""How wide a letter is on average, in each size of text; a little too wide, so that words fit."""


class Drawing:
    """Collects shapes; coordinates are in pixels, from the upper left."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        """The shapes so far, each an element of SVG."""

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, said: str = ""
    ) -> None:
        """Draw a rectangle of some kind; `said` is what it says to who points at it."""
        inside = f"<title>{_text(said)}</title>" if said else ""
        self.parts.append(
            f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}"'
            f' height="{_n(height)}" rx="{_n(min(4, height / 4))}">{inside}</rect>'
        )

    def add(self, other: "Drawing") -> None:
        """Take over what another drawing has collected, on top of what is here."""
        self.parts += other.parts

    def path(self, steps: str, kind: str, said: str = "", stroke: float = 0) -> None:
        """Draw a path, from steps in SVG's own language."""
        inside = f"<title>{_text(said)}</title>" if said else ""
        width = f' stroke-width="{_n(stroke)}"' if stroke else ""
        self.parts.append(f'<path class="{kind}" d="{steps}"{width}>{inside}</path>')

    def words(
        self, x: float, y: float, text: str, room: float, size: str = "", anchor: str = "start"
    ) -> None:
        """Write one line, its foot at `y`; what has no room ends in an ellipsis, and is told in full."""
        text = one_line(text)
        fitting = int(room / _WIDTHS[size])
        if fitting < 2 or not text:
            return
        shown, full = text, ""
        if len(text) > fitting:
            shown, full = text[: fitting - 1].rstrip() + "…", f"<title>{_text(text)}</title>"
        kind = f' class="{size}"' if size else ""
        place = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(f'<text{kind} x="{_n(x)}" y="{_n(y)}"{place}>{full}{_text(shown)}</text>')

    def upright(self, x: float, y: float, text: str, room: float) -> None:
        """Write one line from bottom to top around a point, where it has room."""
        if width_of(text, "small") <= room:
            self.parts.append(
                f'<text class="small" text-anchor="middle"'
                f' transform="translate({_n(x)} {_n(y)}) rotate(-90)">{_text(text)}</text>'
            )

    def document(self, name: str, width: float, height: float, title: str, told: str) -> str:
        """Return the drawing as one element that a screen reader can read out."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{name}" role="img"'
            f' aria-labelledby="{name}-title {name}-told" viewBox="0 0 {_n(width)} {_n(height)}">'
            f'<title id="{name}-title">{_text(title)}</title>'
            f'<desc id="{name}-told">{_text(told)}</desc>' + "".join(self.parts) + "</svg>"
        )


def width_of(text: str, size: str = "") -> float:
    """Return about how wide a text is."""
    return len(text) * _WIDTHS[size]


def folded(text: str, room: float, size: str = "") -> list[str]:
    """Return the lines of a text that is broken after its middle dots where it has no room."""
    lines = [""]
    for part in text.split(" · "):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if lines[-1] and width_of(longer, size) > room:
            lines.append(part)
        else:
            lines[-1] = longer
    return lines


def _text(text: str) -> str:
    return escape(one_line(text))


def _n(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")
