"""How fast attention backends are beside one another, for people: on a terminal, and in Markdown."""

from collections.abc import Iterator

from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends.model.checked import Ended, Result
from mlbackends.model.errors import counted
from mlbackends_cli.attention.check_table import (
    BACKWARD,
    BEYOND_PEAK,
    is_beyond_peak,
    mark,
    name_of,
    why,
    wrapped,
)
from mlbackends_cli.attention.tables import ROOMY, Row, duration, fits, lines, speed, styled
from mlbackends_cli.terminal import Page

_SPARED = (("of memory",), ("spread",), ("GFLOP/s",), ("quarters",))


def baseline(benched: Benched) -> str:
    """Return whom the others are compared with: the first peer that was timed, else the slowest of ours."""
    timed = [
        (not each.peer, -each.timing.median_seconds, each.backend)
        for problem in benched.problems
        for each in problem.checked.results
        if each.timing is not None
    ]
    peers = [name for is_ours, _, name in timed if not is_ours]
    return peers[0] if peers else min(timed)[2] if timed else ""


def columns(base: str, *, changed: bool) -> tuple[str, ...]:
    """Return the heads of the columns."""
    found = (
        "backend",
        "median",
        "spread",
        "GFLOP/s",
        "of peak",
        "of memory",
        f"× {base}",
        "quarters",
    )
    return (*found, "× saved", "by peak") if changed else found


def printed(benched: Benched, base: str, page: Page) -> str:
    """Return a table for each problem. base: whom the others are compared with."""
    told = [line for each in benched.problems for line in _problem(each, benched, base, page)]
    told += list(_notes(benched, base, page))
    text = "\n".join(told).rstrip("\n") + "\n"
    return text if page.unicode else text.replace("×", "x").encode("ascii", "replace").decode()


def _problem(problem: BenchedProblem, benched: Benched, base: str, page: Page) -> Iterator[str]:
    yield styled(problem.checked.text, "1", page)
    if problem.checked.failure:
        yield from wrapped(f"    {problem.checked.failure}", 4, page)
    head, rows = columns(base, changed=_changed(benched)), _rows(problem, benched, base, page)
    yield from lines(head, rows, _SPARED, page)
    gone = {each.backend for each in problem.changes if not each.by_time}
    for result in problem.checked.results:
        # Who cannot take a problem is `check`'s to tell; here it would hide the numbers, if there are any.
        expected = result.required or result.peer or result.backend in gone
        if result.ended is not Ended.CANNOT or expected or not rows:
            yield from why(result, page)
    yield ""


def _rows(problem: BenchedProblem, benched: Benched, base: str, page: Page) -> list[Row]:
    ran = [each for each in problem.checked.results if each.ended is Ended.RAN]
    return [(mark(each, page), cells(problem, each, benched, base)) for each in ran]


def cells(problem: BenchedProblem, result: Result, benched: Benched, base: str) -> tuple[str, ...]:
    """Return the row of a backend that ran, as `columns` says."""
    row = [name_of(result), *[""] * 7]
    timing, memory = result.timing, benched.bandwidth_bytes_per_second
    if timing is not None:
        row[1] = duration(timing.median_seconds)
        row[2] = f"{duration(timing.lower_seconds)}-{duration(timing.upper_seconds)}"
        row[3] = speed(timing.gflops)
        row[4] = "" if timing.share_of_peak is None else f"{timing.share_of_peak:.0%}"
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
    counts = counted(benched.threads, "thread"), counted(benched.rounds, "round")
    idle, count = sum(each.checked.idle for each in benched.problems), len(benched.problems)
    ending = f" for {idle} of {count}" if idle < count else ""
    told = f": no backend ran{ending}" if idle else ""
    yield ", ".join((benched.processor or "this processor", *counts)) + told
    peaks = [each.checked.peak_gflops for each in benched.problems if each.checked.peak_gflops]
    notes = []
    if peaks:
        by = next(each.checked.peak_by for each in benched.problems if each.checked.peak_by)
        ends = dict.fromkeys(speed(pick(peaks)) for pick in (min, max))
        notes.append(f"peak: {' to '.join(ends)} GFLOP/s, {by}")
    if any(is_beyond_peak(each.checked) for each in benched.problems):
        notes.append(BEYOND_PEAK)
    if any(each.checked.problem.wants_gradient for each in benched.problems):
        notes.append(BACKWARD)
    if benched.bandwidth_bytes_per_second:
        rate = speed(benched.bandwidth_bytes_per_second / 1e9)
        notes.append(
            f"memory: {rate} GB/s, {benched.bandwidth_by}; of memory: inputs and result once"
        )
    if any(ratio.to == base for each in benched.problems for ratio in each.ratios):
        notes.append(f"× {base}: times as fast in the same round, the median and the middle half")
    if _changed(benched):
        notes.append("× saved: times as fast as then; by peak: of the peak beside it, then and now")
    head = columns(base, changed=_changed(benched))
    if not all(fits(head, _rows(each, benched, base, page), page) for each in benched.problems):
        notes.append(f"a wider page, such as with COLUMNS={ROOMY}, has more columns")
    for note in notes:
        yield from (styled(line, "2", page) for line in wrapped(note, 2, page))


def markdown(benched: Benched, base: str) -> str:
    """Return one table of all problems."""
    from mlbackends_cli.markdown import code, literal, table

    head = ("problem", *columns(base, changed=_changed(benched)))
    rows = [
        (code(problem.checked.text), *map(literal, cells(problem, each, benched, base)))
        for problem in benched.problems
        for each in problem.checked.results
        if each.timing is not None
    ]
    notes = [literal(line) for line in _notes(benched, base, Page(width=10_000))]
    return "\n\n".join([table(head, rows), *notes]) + "\n"
