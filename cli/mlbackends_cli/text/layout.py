"""Lines of a page, rendered by rich: cells that align, and text that breaks between phrases and words."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple

from msgspec.structs import replace
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mlbackends.base.patterns import UNFIT, unbroken
from mlbackends_cli.terminal import Page

#: Where text may be broken, the best place first: between phrases and words, and after separators.
_BREAKS = (re.compile("( · )"), re.compile(r"([^\S\xa0]+)"), re.compile(r"((?<=[/\\]))"))
#: The first of these that breaks a word.
_WORD = 2
_STYLE = re.compile("\033\\[[0-9;]*m")
#: Text that would get fewer columns than this, or than its longest word, begins on a new line.
_NARROW = 24
_GAP = 3
#: A mark of so many columns, such as "-", stays with the word after it.
_MARK = 1
# Bold, underlined and dim are readable on light and dark backgrounds; colours are the terminal's own.
HEADING, NAME, DIM = "bold underline", "bold", "dim"


class Cell(NamedTuple):
    """Text in one of rich's styles."""

    text: str
    style: str = ""


Row = Sequence[Cell]


def width(text: str) -> int:
    """Return the number of terminal columns that a line needs, without its styles."""
    return cell_len(_STYLE.sub("", text) if "\033" in text else text)


def wrapped(text: str, room: int, level: int = 0, *, fold: bool = True) -> list[str]:
    """Return lines of at most `room` columns, broken between phrases, else between words.

    A word that is wider, such as a path, is folded, after a separator if possible; or it stays in one
    piece, and makes its line wider. A command that fits is not broken.
    """
    if width(text) <= room:
        return [text]
    text = unbroken(text, room) if level == 0 else text
    if level == len(_BREAKS) or (level == _WORD and not fold):
        return chop_cells(text, max(room, 2)) if fold else [text]
    lines, parts = [""], _BREAKS[level].split(text)
    for glue, part in zip(["", *parts[1::2]], parts[::2], strict=True):
        joined = f"{lines[-1]}{glue}{part}" if lines[-1] else part
        is_wide = level and not fold and width(part) > room
        if width(joined) <= room or (is_wide and width(lines[-1]) <= _MARK):
            lines[-1] = joined
        elif is_wide:
            lines.append(part)
        else:
            lines += wrapped(part, room, level + 1, fold=fold)
    return [line.replace("\xa0", " ") if level == 0 else line for line in lines if line]


def cropped(text: str, room: int) -> str:
    """Return as much of a text as fits into `room` columns, with an ellipsis if it was cut."""
    line = Text(text)
    line.truncate(max(room, 0), overflow="ellipsis")
    return line.plain


def widths(rows: Iterable[Row]) -> list[int]:
    """Return the width of each column; rows may have different lengths."""
    columns = zip_longest(*rows, fillvalue=Cell(""))
    return [max(width(UNFIT.sub("\ufffd", cell.text)) for cell in column) for column in columns]


def grid(rows: Iterable[Row], columns: Sequence[int], page: Page, indent: int = 0) -> Iterator[str]:
    """Yield rows as lines of the page, each cell wrapped in its column; a column of width 0 is left out.

    What is not read on a terminal has wider columns instead of folded words.
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    needed = [*columns]
    for row in rows:
        cells = []
        for at, (cell, room) in enumerate(zip(row, columns, strict=True)):
            if room:
                parts = UNFIT.sub("\ufffd", cell.text).split("\n")
                found = [line for part in parts for line in wrapped(part, room, fold=page.terminal)]
                needed[at] = max(needed[at], *map(width, found), 0)
                cells.append(Text("\n".join(found), cell.style, no_wrap=True))
        table.add_row(*cells)
    for column, room in zip(table.columns, filter(None, needed), strict=False):
        column.width = room
    console = Console(  # the page has already decided about width and colour
        file=io.StringIO(),
        width=indent + sum(needed) + 2 * len(needed),
        color_system="standard" if page.color else None,
        force_terminal=page.color,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    console.print(Padding(table, (0, 0, 0, indent)), end="")
    text = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO from above
    yield from (line.rstrip() for line in text.removesuffix("\n").split("\n"))


def lines(
    rows: Sequence[Row], page: Page, columns: Sequence[int] | None = None, indent: int = 2
) -> Iterator[str]:
    """Yield rows of short cells followed by a text, which goes below them on a narrow page.

    columns: the widths of the short cells; as wide as these rows need by default.
    """
    columns = widths(row[:-1] for row in rows) if columns is None else columns
    room = page.width - indent - sum(column + 2 for column in columns if column)
    below = page.width - indent - 2
    widest = max((width(part) for row in rows for part in row[-1].text.split("\n")), default=0)

    def fits_beside(row: Row) -> bool:
        # A path stays in one piece if a separate line is wide enough for it.
        word = max(map(width, row[-1].text.split()), default=0)
        return min(_NARROW, widest) <= room and not room < word <= below

    for is_beside, group in groupby(rows, fits_beside):
        if is_beside:
            yield from grid(group, [*columns, max(room, 1)], page, indent)
            continue
        for *cells, text in group:
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


def sections(titled: Iterable[tuple[str, Sequence[Row]]], page: Page, style: str = HEADING) -> Iterator[str]:
    """Yield rows below their titles; the short cells of all sections align."""
    titled = [*titled]
    columns = widths(row[:-1] for _, rows in titled for row in rows)
    for title, rows in titled:
        yield page.styled(title, style)
        for length, group in groupby(rows, len):
            yield from lines([*group], page, columns[: length - 1])


def side_by_side(left: Iterable[str], right: Iterable[str], page: Page) -> Iterator[str]:
    """Yield two columns of lines, each half as wide as the page."""
    room = half(page).width + _GAP
    for line, other in zip_longest(left, right, fillvalue=""):
        yield line + " " * (room - width(line)) + other if other else line


def half(page: Page) -> Page:
    """Return the page with the width of one of two columns."""
    return replace(page, width=(page.width - _GAP) // 2)
