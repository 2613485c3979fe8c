"""A check of attention backends for people: on a terminal, and in Markdown."""

from collections.abc import Iterator

from mlbackends.model.checked import Checked, CheckedProblem, Ended, Result
from mlbackends.model.errors import counted
from mlbackends_cli.attention.tables import ROOMY, Row, duration, fits, lines, speed, styled
from mlbackends_cli.catalogue import binary_size
from mlbackends_cli.plain import one_line
from mlbackends_cli.terminal import Page

COLUMNS = (
    "backend",
    "max error",
    "relative",
    "of plain",
    "out",
    "dQ",
    "dK",
    "dV",
    "dM",
    "median",
    "spread",
    "GFLOP/s",
    "of peak",
    "memory",
)
_GRADIENTS = {"query": "dQ", "key": "dK", "value": "dV", "mask": "dM"}
_SPARED = (
    ("spread",),
    ("relative",),
    ("out", *_GRADIENTS.values()),
    ("GFLOP/s",),
    ("memory",),
)
"""What a narrow page has no room for, the least telling first."""
BACKWARD = (
    "with --backward, time and memory are of that pass alone, and GFLOP/s of its five products"
)
_ERRORS = (
    "max error, relative: against float64; of plain: in units of the same type's plain formula's"
)
_ALLOWED = (
    "allowed: the backend's tolerance times the plain formula's error, and beside it 4 units in the last"
    " place of the largest number in float32 and float64, 1 in float16 and bfloat16"
)
_GRADIENT_ERRORS = (
    "of the result and its gradients, they are of the one nearest to its limit; the largest number of a"
    " gradient may be one that it is the difference of"
)
BEYOND_PEAK = (
    "more than 100% of the peak: instructions for 16 bits pass that of float32, or something else had the"
    " processors while it was measured"
)
_MARKS = {
    "good": ("✓", "+", "32"),
    "bad": ("✗", "x", "31"),
    "cannot": ("–", "-", "2"),
    "open": ("?", "?", "33"),
}


def printed(checked: Checked, page: Page) -> str:
    """Return a table for each problem, as wide as the page allows."""
    told = [line for each in checked.problems for line in _problem(each, page)]
    told += list(_notes(checked, page))
    text = "\n".join(told).rstrip("\n") + "\n"
    return text if page.unicode else text.replace("×", "x").encode("ascii", "replace").decode()


def _problem(problem: CheckedProblem, page: Page) -> Iterator[str]:
    yield styled(problem.text, "1", page)
    torch = problem.torch_chosen or "nobody"
    yield f"mlbackends takes {problem.chosen or 'nobody'}, torch would take {torch}"
    if problem.failure:
        sign = styled("✗" if page.unicode else "x", "31", page)
        yield from wrapped(f"  {sign} {one_line(problem.failure)}", 4, page)
    yield from lines(COLUMNS, _rows(problem, page), _SPARED, page)
    for result in problem.results:
        yield from why(result, page)
    if problem.peak_gflops:
        yield styled(f"  peak: {problem.peak_gflops:.0f} GFLOP/s, {problem.peak_by}", "2", page)
    yield ""


def _rows(problem: CheckedProblem, page: Page) -> list[Row]:
    return [(mark(each, page), cells(each)) for each in _ran(problem)]


def _ran(problem: CheckedProblem) -> list[Result]:
    return [each for each in problem.results if each.ended is Ended.RAN]


def cells(result: Result) -> tuple[str, ...]:
    """Return the row of a backend that ran, as COLUMNS says."""
    told = {"backend": name_of(result)}
    if result.worst is not None:
        _, errors = result.worst
        told["max error"] = f"{errors.largest_absolute:.1e}"
        told["relative"] = f"{errors.largest_relative:.1e}"
        if errors.in_reference_errors is not None:
            told["of plain"] = f"{errors.in_reference_errors:.2f}×"
    if result.errors is not None and result.gradients:
        told["out"] = f"{result.errors.largest_absolute:.1e}"
    for name, errors in result.gradients.items():
        told[_GRADIENTS[name]] = f"{errors.largest_absolute:.1e}"
    if (timing := result.timing) is not None:
        told["median"] = duration(timing.median_seconds)
        told["spread"] = f"{duration(timing.lower_seconds)}-{duration(timing.upper_seconds)}"
        told["GFLOP/s"] = speed(timing.gflops)
        if timing.share_of_peak is not None:
            told["of peak"] = f"{timing.share_of_peak:.0%}"
    if result.memory is not None:
        told["memory"] = f"+{binary_size(result.memory.extra_bytes)}"
    return tuple(told.get(column, "") for column in COLUMNS)


def is_beyond_peak(problem: CheckedProblem) -> bool:
    """Tell whether a backend was faster than the machine was seen to be, in what the page says of it."""
    timings = [each.timing for each in problem.results if each.timing is not None]
    return any((each.share_of_peak or 0.0) >= 1.005 for each in timings)  # 101%, as it is rounded


def name_of(result: Result) -> str:
    """Return a backend's name with what tells it from others of that name, such as an instruction set."""
    told = ["peer"] if result.peer else []
    told += [result.told[name] for name in ("instruction set", "version") if name in result.told]
    return f"{result.backend} ({', '.join(told)})" if told else result.backend


def why(result: Result, page: Page) -> Iterator[str]:
    """Yield why a backend gave no result, or a wrong one, and what to type to see that again."""
    if result.ended is not Ended.RAN:
        sign = mark(result, page)
        word = "" if result.ended is Ended.CANNOT else f"{result.ended}: "
        for number, reason in enumerate(result.reasons):
            name = f"{sign} {result.backend}: {word}" if not number else "  "
            yield from wrapped(f"  {name}{one_line(reason.message)} [{reason.code}]", 6, page)
            if reason.hint:
                arrow = "→" if page.unicode else "->"
                yield from wrapped(f"      {arrow} {one_line(reason.hint)}", 8, page)
    elif not result.right:
        from mlbackends.sdpa.verify.outcome import said

        yield from wrapped(f"    {result.backend} is wrong: {said(result)}", 6, page)
    elif result.incomparable:
        yield from wrapped(f"    {result.backend} is not compared: {result.incomparable}", 6, page)
    if not result.good:
        # On a line of its own and never broken: it is there to be copied.
        yield f"      {result.command}"


def _notes(checked: Checked, page: Page) -> Iterator[str]:
    count = len(checked.problems)
    bad = sum(not each.good for each in checked.problems)
    idle = sum(each.idle for each in checked.problems)
    ending = f"{bad} of {count} with something wrong" if bad else "nothing wrong"
    if idle and not bad:
        ending = "no backend ran" if idle == count else f"{ending} in what ran"
    if 0 < idle < count:
        ending += f"; no backend ran for {idle} of {count}"
    where = f"{checked.processor or 'this processor'}, {counted(checked.threads, 'thread')}"
    yield f"{counted(count, 'problem')} on {where}: {ending}"
    measured = {
        each.memory.measured_by
        for problem in checked.problems
        for each in problem.results
        if each.memory
    }
    notes = [_ERRORS, _ALLOWED]
    if any(each.problem.wants_gradient for each in checked.problems):
        notes += [_GRADIENT_ERRORS, BACKWARD]
    if any(map(is_beyond_peak, checked.problems)):
        notes.append(BEYOND_PEAK)
    notes += [f"memory: beyond inputs and result, by {each}" for each in sorted(measured)]
    if not all(fits(COLUMNS, _rows(each, page), page) for each in checked.problems):
        notes.append(f"a wider page, such as with COLUMNS={ROOMY}, has more columns")
    if any(map(_ran, checked.problems)):
        for note in notes:
            yield from (styled(line, "2", page) for line in wrapped(note, 2, page))


def markdown(checked: Checked) -> str:
    """Return a table of all problems, and below it why a backend gave no result or a wrong one."""
    from mlbackends.sdpa.verify.outcome import said
    from mlbackends_cli.markdown import code, literal, table

    parts = []
    for problem in checked.problems:
        parts.append(f"### {code(problem.text, in_table=False)}\n")
        if problem.failure:
            parts.append(f"{literal(problem.failure)}\n")
        rows = [tuple(map(literal, cells(each))) for each in _ran(problem)]
        if not rows and not problem.failure:
            parts.append("No backend ran.\n")
        if rows:
            parts.append(table(COLUMNS, rows) + "\n")
        others = [
            f"- {literal(each.backend)}: {literal(f'{each.ended}: {said(each)}')}"
            for each in problem.results
            if each.ended is not Ended.RAN or not each.good
        ]
        if others:
            parts.append("\n".join(others) + "\n")
    return "\n".join(parts)


def mark(result: Result, page: Page) -> str:
    """Return the sign of how it ended."""
    if result.good and result.ended is Ended.RAN:
        word = "open" if result.incomparable else "good"
    else:
        word = "cannot" if result.good and result.ended is Ended.CANNOT else "bad"
    if not result.right:
        word = "bad"
    fancy, plain, color = _MARKS[word]
    return styled(fancy if page.unicode else plain, color, page)


def wrapped(text: str, indent: int, page: Page) -> list[str]:
    """Return lines as wide as the page, indented from the second on."""
    import textwrap

    return textwrap.wrap(
        text,
        max(page.width, 40),
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
        drop_whitespace=True,
    )
