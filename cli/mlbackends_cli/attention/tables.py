"""Tables of results that fit the page, and what is written below them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlbackends.model.checked import CheckedProblem, Result, Timing
from mlbackends.model.errors import some
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import one_line
from mlbackends_cli.text.prose import wrapped

BACKWARD = (
    "with --backward, time and memory are of that pass alone, and GFLOP/s of its five products"
)
BEYOND_PEAK = (
    "more than 100% of the peak: instructions for 16 bits pass that of float32, or something else had the"
    " processors while it was measured"
)
_WIDER = "a wider page, such as with COLUMNS=200, has more columns"
_MARKS = {
    "good": ("✓", "+", "32"),
    "bad": ("✗", "x", "31"),
    "cannot": ("–", "-", "2"),
    "open": ("?", "?", "33"),
}


class Section(NamedTuple):
    """What is printed of a problem: lines, a table with a row for each result that has one, and reasons.

    explained: the results of which it is said why there is none, or a wrong one.
    """

    title: str
    before: list[str]
    rows: list[tuple[Result, tuple[str, ...]]]
    explained: list[Result]
    after: list[str]


def printed(
    sections: Sequence[Section],
    columns: Sequence[str],
    spared: Sequence[Sequence[str]],
    notes: Sequence[str],
    page: Page,
) -> str:
    """Return all as text, as wide as the page.

    spared: groups of columns that a narrow page leaves out, in order. notes: the first is the summary.
    """
    lines: list[str] = []
    is_cut = False
    for section in sections:
        lines += [page.styled(section.title, "1"), *section.before]
        # The width of each column that is not empty, by its place.
        used = [at for at in range(len(columns)) if any(cells[at] for _, cells in section.rows)]
        table = [columns, *(cells for _, cells in section.rows)]
        widths = {at: max(len(cells[at]) for cells in table) for at in used}
        for names in spared:
            if sum(widths.values()) + 2 * len(widths) + 2 <= page.width:
                break
            is_cut = True
            for name in names:
                widths.pop(columns.index(name), None)
        head, *texts = (
            "  ".join(
                cells[at].rjust(width) if at else cells[at].ljust(width)
                for at, width in widths.items()
            )
            for cells in table
        )
        lines += [page.styled(f"    {head}", "2")] if widths else []
        for (result, _), text in zip(section.rows, texts, strict=True):
            lines.append(f"  {_mark(result, page)} {text}".rstrip())
        lines += [line for each in section.explained for line in _why_lines(each, page)]
        lines += [*section.after, ""]
    lines.append(notes[0])
    for note in (*notes[1:], *([_WIDER] if is_cut else [])):
        lines += [page.styled(line, "2") for line in wrapped(note, page.width, "", "  ")]
    return page.fitted("\n".join(lines).rstrip("\n") + "\n")


def duration(seconds: float) -> str:
    """Return a time in three digits, with its unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def speed(gflops: float) -> str:
    """Return GFLOP/s in three digits."""
    return f"{gflops:.3g}" if gflops < 1000 else f"{gflops:.0f}"


def timing_cells(timing: Timing) -> tuple[str, str, str, str]:
    """Return the cells of median, spread, GFLOP/s and share of the peak."""
    spread = f"{duration(timing.lower_seconds)}-{duration(timing.upper_seconds)}"
    share = "" if timing.share_of_peak is None else f"{timing.share_of_peak:.0%}"
    median = f"{'~' * bool(timing.unstable)}{duration(timing.median_seconds)}"
    return median, spread, speed(timing.gflops), share


def ran(problem: CheckedProblem) -> list[Result]:
    """Return the results of the backends that ran."""
    return [each for each in problem.results if each.ended == "ran"]


def _mark(result: Result, page: Page) -> str:
    """Return the sign of how it ended."""
    word = "bad"
    if result.right and result.good:
        word = "cannot" if result.ended == "cannot" else "bad"
        if result.ended == "ran":
            word = "open" if result.incomparable else "good"
    fancy, plain, color = _MARKS[word]
    return page.styled(page.sign(fancy, plain), color)


def name_of(result: Result) -> str:
    """Return a backend's name with what distinguishes it from others of that name."""
    words = ["peer"] if result.peer else []
    words += [result.told[name] for name in ("instruction set", "version") if name in result.told]
    return f"{result.backend} ({', '.join(words)})" if words else result.backend


def unstable_notes(problems: Sequence[CheckedProblem]) -> list[str]:
    """Return why times are marked with ~, if any are."""
    found: dict[str, list[str]] = {}
    for result in (each for problem in problems for each in problem.results):
        if result.timing is not None and result.timing.unstable:
            found.setdefault(result.timing.unstable, []).append(result.backend)
    whys = [f"{some(tuple(dict.fromkeys(names)))}: {why}" for why, names in found.items()]
    return [f"~: unstable, and compared with nothing; {'; '.join(whys)}"] if whys else []


def is_beyond_peak(problem: CheckedProblem) -> bool:
    """Tell whether a backend was faster than the measured peak, as the page rounds it."""
    timings = [each.timing for each in problem.results if each.timing is not None]
    return any((each.share_of_peak or 0.0) >= 1.005 for each in timings)


def _why_lines(result: Result, page: Page) -> Iterator[str]:
    """Yield why a backend gave no result, or a wrong one, and what to type to repeat that."""
    if result.ended != "ran":
        word = "" if result.ended == "cannot" else f"{result.ended}: "
        start = f"{_mark(result, page)} {result.backend}: {word}"
        for reason in result.reasons:
            text = f"  {start}{one_line(reason.message)} [{reason.code}]"
            yield from wrapped(text, page.width, "", " " * 6)
            start = "  "
            if reason.hint:
                hint = f"      {page.sign('→', '->')} {one_line(reason.hint)}"
                yield from wrapped(hint, page.width, "", " " * 8)
    elif not result.right:
        from mlbackends.sdpa.verify.outcome import summary

        text = f"    {result.backend} is wrong: {summary(result)}"
        yield from wrapped(text, page.width, "", " " * 6)
    elif result.incomparable:
        text = f"    {result.backend} is not compared: {result.incomparable}"
        yield from wrapped(text, page.width, "", " " * 6)
    if not result.good:
        # On a line of its own and never broken: it is there to be copied.
        yield f"      {result.command}"
