"""Tables of a trace on a page that is narrower than they are: fewer columns, then shorter words in them."""

from collections.abc import Sequence

from msgspec.structs import replace

from mlbackends_cli.listing import Listing
from mlbackends_cli.terminal import Page

_FIRST_TO_GO = ("±", "cumulative", "GB/s", "tracer", "min", "max", "median", "mean", "GFLOP/s")
_NUMBERS = frozenset(
    {*_FIRST_TO_GO, "calls", "time", "share", "before", "after", "ratio", "FLOP/byte"} - {"tracer"}
)
_GAP = 2
_INDENT = 2
_LEAST = 10
_LEAST_OF = {"dtype": 8, "shape": 12, "implementation": 14, "call": 13}
"""So many columns a word keeps at least, where the page lets it."""
_ARROW = " → "
_ALIKE = 4


def narrowed(listing: Listing, page: Page) -> Listing:
    """Make a table fit the page side by side, and say what that cost; unchanged where nothing helps.

    Columns go, the least telling first, then the middles of long words. Numbers stay whole, and stand at
    the right of their columns.
    """
    # A page without "→" and "…" gets "->" for the one: a column more.
    width = page.width if page.unicode else page.width - 1
    made, gone = _without_columns(listing, width)
    widths = _widths(made)
    room = width - _GAP * (len(widths) - 1)
    shortened = _shrunk(made.columns, widths, room, _indent(made))
    if sum(shortened) > room:
        return listing if not gone else _noted(made, gone, cut=False)
    made = _laid_out(made, shortened)
    return _noted(made, gone, cut=shortened != widths)


def _noted(listing: Listing, gone: Sequence[str], *, cut: bool) -> Listing:
    more = [*gone, "whole names"] if cut else gone
    if not more:
        return listing
    return replace(listing, notes=(*listing.notes, f"a wider page has also: {', '.join(more)}"))


def _without_columns(listing: Listing, width: int) -> tuple[Listing, list[str]]:
    wide = _widths(listing)
    columns = list(range(len(listing.columns)))
    gone = []
    for name in _FIRST_TO_GO:
        if sum(wide[place] + _GAP for place in columns) - _GAP <= width:
            break
        if name in listing.columns and len(columns) > 1:
            columns.remove(listing.columns.index(name))
            gone.append(name)
    if not gone:
        return listing, []
    groups = tuple(
        replace(group, rows=tuple(_kept(row, columns) for row in group.rows))
        for group in listing.groups
    )
    names = tuple(listing.columns[place] for place in columns)
    return replace(listing, columns=names, groups=groups), gone


def _kept(row: tuple[str, ...], columns: list[int]) -> tuple[str, ...]:
    first, *others = columns
    # A row of what is left over says so in its first cell.
    return (row[first] or row[0], *(row[place] for place in others))


def _widths(listing: Listing) -> list[int]:
    rows = [row for group in listing.groups for row in group.rows]
    widths = [
        max(len(name), *(len(row[place]) for row in rows), 0)
        for place, name in enumerate(listing.columns)
    ]
    widths[0] += _indent(listing)
    return widths


def _indent(listing: Listing) -> int:
    """Return how far the first column is moved in: below titles, and its name counts too."""
    return _INDENT if any(group.title for group in listing.groups) else 0


def _shrunk(names: Sequence[str], widths: Sequence[int], room: int, indent: int) -> list[int]:
    """Return widths that fit the room, taken from what is furthest above its least."""
    found = list(widths)
    least = [
        width if name in _NUMBERS else min(width, max(len(name), _LEAST_OF.get(name, _LEAST)))
        for name, width in zip(names, widths, strict=True)
    ]
    least[0] = min(widths[0], least[0] + indent)
    while sum(found) > room and found != least:
        at = max(range(len(found)), key=lambda each: found[each] - least[each])
        found[at] -= 1
    return found


def _laid_out(listing: Listing, widths: Sequence[int]) -> Listing:
    inside = [widths[0] - _indent(listing), *widths[1:]]
    names = listing.columns

    def laid(row: tuple[str, ...], room: Sequence[int]) -> tuple[str, ...]:
        return tuple(
            cell.rjust(width) if name in _NUMBERS else middle_left_out(cell, width)
            for cell, width, name in zip(row, room, names, strict=True)
        )

    groups = tuple(
        replace(group, rows=tuple(laid(row, inside) for row in group.rows))
        for group in listing.groups
    )
    return replace(listing, columns=laid(names, inside), groups=groups)


def middle_left_out(text: str, width: int) -> str:
    """Return a text in so many columns: "brg_ma…_bf16"; of "a → b" each half is shortened for itself.

    Halves that end alike lose their ends, since the others tell them apart.
    """
    if len(text) <= width:
        return text
    before, arrow, after = text.partition(_ARROW)
    if arrow and width > len(_ARROW) + 1:
        room = width - len(_ARROW)
        left = max(room // 2, room - len(after))
        left = min(left, len(before))
        shorter = _end_out if before[-_ALIKE:] == after[-_ALIKE:] else _middle_out
        return shorter(before, left) + _ARROW + shorter(after, room - left)
    return _middle_out(text, width)


def _end_out(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _middle_out(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    head = width // 2
    tail = width - head - 1
    return f"{text[:head]}…{text[len(text) - tail :]}" if width > 1 else "…"[:width]
