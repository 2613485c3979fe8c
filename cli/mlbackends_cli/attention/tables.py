"""Tables of results that fit the page, and what is written below them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from mlbackends_cli.text.plain import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    # Not for `explain`, which has its own records.
    from mlbackends.model.checked import CheckedProblem, Result, Timing
    from mlbackends_cli.terminal import Page

BACKWARD = (
    "with --backward, time and memory are of that pass alone, and GFLOP/s of its five products"
)
BEYOND_PEAK = (
    "more than 100% of the peak: instructions for 16 bits pass that of float32, or something else had the"
    " processors while it was measured"
)
_ROOMY = 200
"""So many columns of text have room for every column of a table."""
_MARKS = {
    "good": ("✓", "+", "32"),
    "bad": ("✗", "x", "31"),
    "cannot": ("–", "-", "2"),
    "open": ("?", "?", "33"),
}
_PLAIN = str.maketrans({"×": "x", "✓": "+", "✗": "x", "→": "->"})

Row = tuple[str, tuple[str, ...]]
"""A mark and the cells."""


def text_of(lines: Iterable[str], page: Page) -> str:
    """Return lines as one text, in ASCII where the terminal has no other characters."""
    text = "\n".join(lines).rstrip("\n") + "\n"
    return text if page.unicode else text.translate(_PLAIN).encode("ascii", "replace").decode()


def table_lines(
    columns: Sequence[str], rows: Sequence[Row], spared: Sequence[Sequence[str]], page: Page
) -> Iterator[str]:
    """Yield the lines of a table. spared: groups of columns that a narrow page leaves out, in order.

    Columns that are empty in every row are left out.
    """
    if not rows:
        return
    widths = _widths(columns, rows)
    for names in spared:
        if _width(widths) <= page.width:
            break
        for name in names:
            widths.pop(columns.index(name), None)

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cells[at].rjust(width) if at else cells[at].ljust(width) for at, width in widths.items()
        )
        return "  ".join(aligned)

    yield styled(f"    {line(columns)}", "2", page)
    for mark, cells in rows:
        yield f"  {mark} {line(cells)}".rstrip()


def notes_lines(
    notes: Sequence[str], columns: Sequence[str], tables: Iterable[Sequence[Row]], page: Page
) -> Iterator[str]:
    """Yield the notes below tables, and that a wider page would have more columns where one was left out."""
    narrow = any(rows and _width(_widths(columns, rows)) > page.width for rows in tables)
    wider = [f"a wider page, such as with COLUMNS={_ROOMY}, has more columns"] if narrow else []
    for note in (*notes, *wider):
        yield from (styled(line, "2", page) for line in wrapped(note, 2, page))


def _widths(columns: Sequence[str], rows: Sequence[Row]) -> dict[int, int]:
    """Return the width of each column that is not empty, by its place."""
    used = [at for at in range(len(columns)) if not at or any(row[at] for _, row in rows)]
    return {at: max(len(columns[at]), *(len(row[at]) for _, row in rows)) for at in used}


def _width(widths: dict[int, int]) -> int:
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


def wrapped(text: str, indent: int, page: Page) -> list[str]:
    """Return lines as wide as the page, indented from the second on."""
    return textwrap.wrap(
        text,
        max(page.width, 40),
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def timing_cells(timing: Timing) -> tuple[str, str, str, str]:
    """Return the cells of median, spread, GFLOP/s and share of the peak."""
    spread = f"{duration(timing.lower_seconds)}-{duration(timing.upper_seconds)}"
    share = "" if timing.share_of_peak is None else f"{timing.share_of_peak:.0%}"
    return duration(timing.median_seconds), spread, speed(timing.gflops), share


def ran(problem: CheckedProblem) -> list[Result]:
    """Return the results of the backends that ran."""
    return [each for each in problem.results if each.ended == "ran"]


def mark(result: Result, page: Page) -> str:
    """Return the sign of how it ended."""
    word = "bad"
    if result.right and result.good:
        word = "cannot" if result.ended == "cannot" else "bad"
        if result.ended == "ran":
            word = "open" if result.incomparable else "good"
    fancy, plain, color = _MARKS[word]
    return styled(fancy if page.unicode else plain, color, page)


def name_of(result: Result) -> str:
    """Return a backend's name with what distinguishes it from others of that name."""
    words = ["peer"] if result.peer else []
    words += [result.told[name] for name in ("instruction set", "version") if name in result.told]
    return f"{result.backend} ({', '.join(words)})" if words else result.backend


def is_beyond_peak(problem: CheckedProblem) -> bool:
    """Tell whether a backend was faster than the measured peak, as the page rounds it."""
    timings = [each.timing for each in problem.results if each.timing is not None]
    return any((each.share_of_peak or 0.0) >= 1.005 for each in timings)


def why_lines(result: Result, page: Page) -> Iterator[str]:
    """Yield why a backend gave no result, or a wrong one, and what to type to repeat that."""
    if result.ended != "ran":
        word = "" if result.ended == "cannot" else f"{result.ended}: "
        start = f"{mark(result, page)} {result.backend}: {word}"
        for reason in result.reasons:
            yield from wrapped(f"  {start}{one_line(reason.message)} [{reason.code}]", 6, page)
            start = "  "
            if reason.hint:
                arrow = "→" if page.unicode else "->"
                yield from wrapped(f"      {arrow} {one_line(reason.hint)}", 8, page)
    elif not result.right:
        from mlbackends.sdpa.verify.outcome import summary

        yield from wrapped(f"    {result.backend} is wrong: {summary(result)}", 6, page)
    elif result.incomparable:
        yield from wrapped(f"    {result.backend} is not compared: {result.incomparable}", 6, page)
    if not result.good:
        # On a line of its own and never broken: it is there to be copied.
        yield f"      {result.command}"
