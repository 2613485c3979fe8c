"""Lines of a page: cells that align, and text that breaks between words or at the separators of a path."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from msgspec.structs import replace

from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import cleaned

#: Where text may be broken, the best first, and what stands there on one line.
_BREAKS = tuple(
    (re.compile(pattern), glue)
    for pattern, glue in (
        (r" · ", " · "),
        (r"\s+", " "),
        (r"(?<=[/\\])", ""),
        (r"(?<=[-_.,:;=+&?@|])", ""),
    )
)
_STYLE = re.compile("\033\\[[0-9;]*m")
_WORDS = re.compile(r"\s+|(?<=[/\\])")
#: Text that would get fewer columns than this, or than its longest word, begins on a line of its own.
_NARROW = 24
_GAP = 3
# Bold, underlined and dim read on a light background and on a dark one; the colours are the terminal's own.
HEADING, NAME, DIM = "1;4", "1", "2"


class Cell(NamedTuple):
    """Text in one of the terminal's styles, by its numbers."""

    text: str
    style: str = ""


Row = Sequence[Cell]


def width(text: str) -> int:
    """Return how many columns of a terminal a line takes, without the styles in it."""
    text = _STYLE.sub("", text) if "\033" in text else text
    if text.isascii() or max(text) < "\u0300":
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.combining(each) > 0 for each in text)


def wrapped(text: str, room: int, level: int = 0) -> list[str]:
    """Return lines of at most `room` columns; a word is broken only where it alone is wider."""
    if width(text) <= room:
        return [text]
    if level == len(_BREAKS):
        most = room if width(text) == len(text) else room // 2
        return [text[at : at + most] for at in range(0, len(text), most)]
    pattern, glue = _BREAKS[level]
    lines = [""]
    for part in pattern.split(text):
        joined = f"{lines[-1]}{glue}{part}" if lines[-1] else part
        lines[-1:] = (
            [joined] if width(joined) <= room else [lines[-1], *wrapped(part, room, level + 1)]
        )
    return [line for line in lines if line]


def cropped(text: str, room: int) -> str:
    """Return as much of a text as fits into so many columns; an ellipsis ends one that was cut."""
    if not text or width(text) <= room:
        return text
    while text and width(text) >= room:
        text = text[:-1]
    return text + "…" * (room > 0)


def widths(rows: Iterable[Row]) -> list[int]:
    """Return how wide each column is at most; rows may be of different lengths."""
    columns = zip_longest(*rows, fillvalue=Cell(""))
    return [max(width(cleaned(cell.text)) for cell in column) for column in columns]


def grid(rows: Iterable[Row], columns: Sequence[int], page: Page, indent: int = 0) -> Iterator[str]:
    """Yield rows as lines of the page, each cell wrapped in its column; a column of width 0 is left out."""
    for row in rows:
        pairs = [(cell, room) for cell, room in zip(row, columns, strict=True) if room]
        cells = [
            [line for part in cell.text.split("\n") for line in wrapped(cleaned(part), room)]
            for cell, room in pairs
        ]
        for texts in zip_longest(*cells, fillvalue=""):
            whole, blanks = "", indent
            for text, (cell, room) in zip(texts, pairs, strict=True):
                if text:
                    whole += " " * blanks + page.styled(text, cell.style)
                    blanks = 0
                blanks += room - width(text) + 2
            yield whole


def lines(
    rows: Sequence[Row], page: Page, columns: Sequence[int] | None = None, indent: int = 2
) -> Iterator[str]:
    """Yield rows of short cells with a text behind them, which goes below them on a narrow page.

    columns: how wide the short cells are; as wide as these rows need by default.
    """
    columns = widths(row[:-1] for row in rows) if columns is None else columns
    before = indent + sum(each + 2 for each in columns if each)
    widest = max((width(part) for row in rows for part in row[-1].text.split("\n")), default=0)
    room, below = page.width - before, page.width - indent - 2
    for row in rows:
        *cells, text = row
        word = max(map(width, _WORDS.split(text.text)))
        if min(_NARROW, widest) <= room and not room < word <= below:
            yield from grid([row], [*columns, max(room, 1)], page, indent)
            continue
        heads = [cell for cell in cells if cell.text]
        sizes = widths([heads])
        left = page.width - indent - sum(sizes) - 2 * len(sizes)
        if "\n" not in text.text and width(text.text) <= left:
            yield from grid([[*heads, text]], [*sizes, max(left, 1)], page, indent)
            continue
        if heads:
            sizes[-1] = max(1, min(sizes[-1], sizes[-1] + left + 2))
            yield from grid([heads], sizes, page, indent)
        yield from grid([[text]], [below], page, indent + 2)


def sections(
    found: Iterable[tuple[str, Sequence[Row]]], page: Page, style: str = HEADING
) -> Iterator[str]:
    """Yield rows below their titles; the short cells of all align."""
    found = [*found]
    columns = widths(row[:-1] for _, rows in found for row in rows)
    for title, rows in found:
        yield page.styled(title, style)
        for row in rows:
            yield from lines([row], page, columns[: len(row) - 1])


def side_by_side(left: Iterable[str], right: Iterable[str], page: Page) -> Iterator[str]:
    """Yield two columns of lines, each of half the page."""
    room = half(page).width + _GAP
    for one, other in zip_longest(left, right, fillvalue=""):
        yield one + " " * (room - width(one)) + other if other else one


def half(page: Page) -> Page:
    """Return the page as wide as one of two columns."""
    return replace(page, width=(page.width - _GAP) // 2)
