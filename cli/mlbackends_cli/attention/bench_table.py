"""How fast attention backends are beside one another, for people: on a terminal, and in Markdown."""

from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends.model.checked import Ended, Result
from mlbackends.model.errors import counted
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.tables import Section, ran, speed
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import code, literal, table
from mlbackends_cli.text.prose import wrapped

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


def _is_compared(benched: Benched) -> bool:
    return any(each.changes for each in benched.problems)


def columns(benched: Benched, base: str) -> tuple[str, ...]:
    """Return the heads of the columns."""
    measured = ("backend", "median", "spread", "GFLOP/s", "of peak", "of memory")
    changes = ("× saved", "by peak") if _is_compared(benched) else ()
    return (*measured, f"× {base}", "quarters", *changes)


def printed(benched: Benched, page: Page, base: str) -> str:
    """Return a table for each problem. base: the backend that others are compared with."""
    sections = []
    for problem in benched.problems:
        before = wrapped(f"    {problem.checked.failure}", page.width, "", " " * 4)
        rows = [(each, cells(problem, each, benched, base)) for each in ran(problem.checked)]
        gone = {each.backend for each in problem.changes if not each.by_time}
        # `check` lists the backends that cannot take a problem; here they would hide the numbers.
        explained = [
            each
            for each in problem.checked.results
            if each.ended is not Ended.CANNOT
            or each.required
            or each.peer
            or each.backend in gone
            or not rows
        ]
        sections.append(Section(problem.checked.text, before, rows, explained, []))
    return tables.printed(sections, columns(benched, base), _SPARED, _notes(benched, base), page)


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
    if _is_compared(benched):
        found = next((each for each in problem.changes if each.backend == result.backend), None)
        row.append(f"{found.by_time:.2f}" if found else "")
        row.append(f"{found.by_share:.2f}" if found and found.by_share else "")
    return tuple(row)


def _notes(benched: Benched, base: str) -> list[str]:
    problems = [each.checked for each in benched.problems]
    counts = counted(benched.threads, "thread"), counted(benched.rounds, "round")
    idle, count = sum(each.idle for each in problems), len(problems)
    ending = f" for {idle} of {count}" if idle < count else ""
    ending = f": no backend ran{ending}" if idle else ""
    notes = [", ".join((benched.processor or "this processor", *counts)) + ending]
    if peaks := [each.peak_gflops for each in problems if each.peak_gflops]:
        by = next(each.peak_by for each in problems if each.peak_by)
        ends = dict.fromkeys(speed(pick(peaks)) for pick in (min, max))
        notes.append(f"peak: {' to '.join(ends)} GFLOP/s, {by}")
    notes += tables.unstable_notes(problems)
    if any(map(tables.is_beyond_peak, problems)):
        notes.append(tables.BEYOND_PEAK)
    if any(each.problem.wants_gradient for each in problems):
        notes.append(tables.BACKWARD)
    if benched.bandwidth_bytes_per_second:
        rate = f"{speed(benched.bandwidth_bytes_per_second / 1e9)} GB/s, {benched.bandwidth_by}"
        notes.append(f"memory: {rate}; of memory: inputs and result once")
    if any(ratio.to == base for each in benched.problems for ratio in each.ratios):
        notes.append(f"× {base}: times as fast in the same round, the median and the middle half")
    if _is_compared(benched):
        notes.append("× saved: times as fast as then; by peak: of the peak beside it, then and now")
    return notes


def markdown(benched: Benched, _page: Page, base: str) -> str:
    """Return one table of all problems."""
    rows = [
        (code(problem.checked.text), *map(literal, cells(problem, each, benched, base)))
        for problem in benched.problems
        for each in problem.checked.results
        if each.timing is not None
    ]
    notes = map(literal, _notes(benched, base))
    return "\n\n".join([table(("problem", *columns(benched, base)), rows), *notes]) + "\n"
