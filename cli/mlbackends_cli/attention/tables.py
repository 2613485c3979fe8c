"""A table of short cells that fits the page: where it is narrow, the less telling columns go."""

from collections.abc import Iterator, Sequence

from mlbackends_cli.terminal import Page

ROOMY = 200
"""So many columns of text have room for every column of a table."""

Row = tuple[str, tuple[str, ...]]
"""A mark and the cells."""


def lines(
    columns: Sequence[str],
    rows: Sequence[Row],
    spared: Sequence[tuple[str, ...]],
    page: Page,
) -> Iterator[str]:
    """Yield the lines of a table. spared: the columns that go first, together.

    Columns that no row has anything in are left out.
    """
    if not rows:
        return
    widths = _widths(columns, rows)
    for names in spared:
        if _taken(widths) <= page.width:
            break
        for name in names:
            widths.pop(columns.index(name), None)
    head = "  ".join(_cell(columns[at], width, at) for at, width in widths.items())
    yield styled(f"    {head}", "2", page)
    for mark, row in rows:
        told = "  ".join(_cell(row[at], width, at) for at, width in widths.items())
        yield f"  {mark} {told}".rstrip()


def fits(columns: Sequence[str], rows: Sequence[Row], page: Page) -> bool:
    """Tell whether the page has room for every column of a table."""
    return not rows or _taken(_widths(columns, rows)) <= page.width


def _widths(columns: Sequence[str], rows: Sequence[Row]) -> dict[int, int]:
    """Return how wide each column is that has something in it, by its place."""
    used = [at for at in range(len(columns)) if not at or any(row[at] for _, row in rows)]
    return {at: max(len(columns[at]), *(len(row[at]) for _, row in rows)) for at in used}


def _taken(widths: dict[int, int]) -> int:
    return sum(widths.values()) + 2 * len(widths) + 2


def duration(seconds: float) -> str:
    """Return a time in three digits, with its unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def speed(gflops: float) -> str:
    """Return GFLOP/s in three digits."""
    return f"{gflops:.3g}" if gflops < 1000 else f"{gflops:.0f}"


def styled(text: str, color: str, page: Page) -> str:
    """Return text in one of the terminal's styles, where the page has any."""
    return f"\033[{color}m{text}\033[0m" if page.color else text


def _cell(text: str, width: int, at: int) -> str:
    return text.ljust(width) if at == 0 else text.rjust(width)
