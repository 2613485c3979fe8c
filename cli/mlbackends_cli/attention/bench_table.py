"""How fast attention backends are beside one another, for people: on a terminal, and in Markdown."""

from collections.abc import Iterator

from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends.model.checked import Ended, Result
from mlbackends.model.errors import counted
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.tables import ran, speed, styled, wrapped
from mlbackends_cli.terminal import Page

_SPARED = (("of memory",), ("spread",), ("GFLOP/s",), ("quarters",))


def baseline(benched: Benched) -> str:
    """Return the backend to compare others with: the first peer that was timed, else the slowest of ours."""
    timed = [
        (not each.peer, -each.timing.median_seconds, each.backend)
        for problem in benched.problems
        for each in problem.checked.results
        if each.timing is not None
    ]
    peers = [name for is_ours, _, name in timed if not is_ours]
    return peers[0] if peers else min(timed)[2] if timed else ""


def columns(benched: Benched, base: str) -> tuple[str, ...]:
    """Return the heads of the columns."""
    heads = (
        "backend",
        "median",
        "spread",
        "GFLOP/s",
        "of peak",
        "of memory",
        f"× {base}",
        "quarters",
    )
    return (*heads, "× saved", "by peak") if _changed(benched) else heads


def printed(benched: Benched, base: str, page: Page) -> str:
    """Return a table for each problem. base: the backend that others are compared with."""
    lines = [
        line for each in benched.problems for line in _problem_lines(each, benched, base, page)
    ]
    return tables.text_of([*lines, *_notes(benched, base, page)], page)


def _problem_lines(
    problem: BenchedProblem, benched: Benched, base: str, page: Page
) -> Iterator[str]:
    yield styled(problem.checked.text, "1", page)
    if problem.checked.failure:
        yield from wrapped(f"    {problem.checked.failure}", 4, page)
    rows = _rows(problem, benched, base, page)
    yield from tables.table_lines(columns(benched, base), rows, _SPARED, page)
    gone = {each.backend for each in problem.changes if not each.by_time}
    for result in problem.checked.results:
        # `check` lists the backends that cannot take a problem; here they would hide the numbers.
        expected = result.required or result.peer or result.backend in gone
        if result.ended is not Ended.CANNOT or expected or not rows:
            yield from tables.why_lines(result, page)
    yield ""


def _rows(problem: BenchedProblem, benched: Benched, base: str, page: Page) -> list[tables.Row]:
    return [
        (tables.mark(each, page), cells(problem, each, benched, base))
        for each in ran(problem.checked)
    ]


def cells(problem: BenchedProblem, result: Result, benched: Benched, base: str) -> tuple[str, ...]:
    """Return the row of a backend that ran, as `columns` says."""
    row = [tables.name_of(result), *[""] * 7]
    timing, memory = result.timing, benched.bandwidth_bytes_per_second
    if timing is not None:
        row[1:5] = tables.timing_cells(timing)
        if memory and timing.median_seconds:
            row[5] = f"{problem.least_bytes / timing.median_seconds / memory:.0%}"
    if ratio := problem.ratio(result.backend, base):
        row[6] = speed(ratio.median)
        row[7] = f"{speed(ratio.lower)}-{speed(ratio.upper)}"
    if _changed(benched):
        found = next((each for each in problem.changes if each.backend == result.backend), None)
        row.append(f"{found.by_time:.2f}" if found else "")
        row.append(f"{found.by_share:.2f}" if found and found.by_share else "")
    return tuple(row)


def _changed(benched: Benched) -> bool:
    return any(each.changes for each in benched.problems)


def _notes(benched: Benched, base: str, page: Page) -> Iterator[str]:
    problems = [each.checked for each in benched.problems]
    counts = counted(benched.threads, "thread"), counted(benched.rounds, "round")
    idle, count = sum(each.idle for each in problems), len(problems)
    ending = f" for {idle} of {count}" if idle < count else ""
    ending = f": no backend ran{ending}" if idle else ""
    yield ", ".join((benched.processor or "this processor", *counts)) + ending
    peaks = [each.peak_gflops for each in problems if each.peak_gflops]
    notes = []
    if peaks:
        by = next(each.peak_by for each in problems if each.peak_by)
        ends = dict.fromkeys(speed(pick(peaks)) for pick in (min, max))
        notes.append(f"peak: {' to '.join(ends)} GFLOP/s, {by}")
    if any(map(tables.is_beyond_peak, problems)):
        notes.append(tables.BEYOND_PEAK)
    if any(each.problem.wants_gradient for each in problems):
        notes.append(tables.BACKWARD)
    if benched.bandwidth_bytes_per_second:
        rate = f"{speed(benched.bandwidth_bytes_per_second / 1e9)} GB/s, {benched.bandwidth_by}"
        notes.append(f"memory: {rate}; of memory: inputs and result once")
    if any(ratio.to == base for each in benched.problems for ratio in each.ratios):
        notes.append(f"× {base}: times as fast in the same round, the median and the middle half")
    if _changed(benched):
        notes.append("× saved: times as fast as then; by peak: of the peak beside it, then and now")
    rows = [_rows(each, benched, base, page) for each in benched.problems]
    yield from tables.notes_lines(notes, columns(benched, base), rows, page)


def markdown(benched: Benched, base: str) -> str:
    """Return one table of all problems."""
    from mlbackends_cli.text.markdown import code, literal, table

    rows = [
        (code(problem.checked.text), *map(literal, cells(problem, each, benched, base)))
        for problem in benched.problems
        for each in problem.checked.results
        if each.timing is not None
    ]
    notes = [literal(line) for line in _notes(benched, base, Page(width=10_000))]
    return "\n\n".join([table(("problem", *columns(benched, base)), rows), *notes]) + "\n"
