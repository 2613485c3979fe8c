"""Tables of a trace on a page that is narrower than they are: fewer columns, then shorter words in them."""

from collections.abc import Callable, Sequence

from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import Listing

_FIRST_TO_GO = ("±", "cumulative", "GB/s", "tracer", "min", "max", "median", "mean", "GFLOP/s")
_NUMBERS = frozenset(
    {*_FIRST_TO_GO, "calls", "time", "share", "before", "after", "ratio", "FLOP/byte"} - {"tracer"}
)
_GAP = 2
Row = tuple[str, ...]
_LEAST = 10
#: The fewest columns that a word keeps, if the page allows it.
_LEAST_OF = {"dtype": 8, "shape": 12, "implementation": 14, "call": 13}
_ARROW = " → "
_ALIKE = 4


def narrowed(listing: Listing, page: Page) -> Listing:
    """Make a table fit the page side by side, and note what that cost; unchanged where nothing helps.

    Columns go, the least important first, then the middles of long words. Numbers stay whole and
    are right-aligned.
    """
    # A page without "→" and "…" gets "->" for the one: a column more.
    width = page.width if page.unicode else page.width - 1
    # Below titles the first column is moved in, and its name counts too.
    indent = 2 if any(group.title for group in listing.groups) else 0
    widths = dict(enumerate(_widths(listing, indent)))
    dropped = []
    for name in _FIRST_TO_GO:
        if sum(widths.values()) + _GAP * (len(widths) - 1) <= width:
            break
        if name in listing.columns and len(widths) > 1:
            del widths[listing.columns.index(name)]
            dropped.append(name)
    first, *others = widths
    # The row of the remaining groups is labelled in its first cell.
    shortened = _mapped(
        listing, lambda row: (row[first] or row[0], *(row[other] for other in others))
    )
    names = shortened.columns
    wide = _widths(shortened, indent)
    room = width - _GAP * (len(wide) - 1)
    shrunk = _shrunk(names, wide, room, indent)
    if sum(shrunk) <= room:
        dropped += ["whole names"] if shrunk != wide else []
        shrunk[0] -= indent

        def fitted(row: Row) -> Row:
            return tuple(
                cell.rjust(width) if name in _NUMBERS else middle_left_out(cell, width)
                for cell, width, name in zip(row, shrunk, names, strict=True)
            )

        shortened = _mapped(shortened, fitted)
    if not dropped:
        return shortened
    return shortened._replace(
        notes=(*shortened.notes, f"wider pages have more columns: {', '.join(dropped)}")
    )


def _mapped(listing: Listing, change: Callable[[Row], Row]) -> Listing:
    """Return a listing with the names of the columns and each row changed."""
    groups = (group._replace(rows=tuple(map(change, group.rows))) for group in listing.groups)
    return listing._replace(columns=change(listing.columns), groups=tuple(groups))


def _widths(listing: Listing, indent: int) -> list[int]:
    rows = [listing.columns, *(row for group in listing.groups for row in group.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] += indent
    return widths


def _shrunk(names: Sequence[str], widths: Sequence[int], room: int, indent: int) -> list[int]:
    """Return widths that fit the room, taken from what is furthest above its least."""
    found = list(widths)
    least = [
        width if name in _NUMBERS else min(width, max(len(name), _LEAST_OF.get(name, _LEAST)))
        for name, width in zip(names, widths, strict=True)
    ]
    least[0] = min(widths[0], least[0] + indent)
    while sum(found) > room and found != least:
        at = max(range(len(found)), key=lambda column: found[column] - least[column])
        found[at] -= 1
    return found


def middle_left_out(text: str, width: int) -> str:
    """Return a text cut to `width` columns: "brg_ma…_bf16"; of "a → b" each half is shortened for itself.

    Halves with the same end lose their ends, since the beginnings differ.
    """
    if len(text) <= width:
        return text
    before, arrow, after = text.partition(_ARROW)
    if not arrow or width <= len(_ARROW) + 1:
        return _cut(text, width, width // 2)
    room = width - len(_ARROW)
    left = min(max(room // 2, room - len(after)), len(before))
    right = room - left
    if before[-_ALIKE:] == after[-_ALIKE:]:
        return f"{_cut(before, left, left - 1)}{_ARROW}{_cut(after, right, right - 1)}"
    return f"{_cut(before, left, left // 2)}{_ARROW}{_cut(after, right, right // 2)}"


def _cut(text: str, width: int, head: int) -> str:
    """Return a text cut to `width` columns, of which `head` are its beginning."""
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"
