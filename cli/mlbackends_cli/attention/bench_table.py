"""The speed of attention backends compared with each other, as text and as Markdown."""

from mlbackends.base.errors import counted
from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends.model.checked import Ended, Result
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.tables import Row, Section, speed
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import code, literal, table
from mlbackends_cli.text.plain import wrapped

_SPARED = (
    ("of stated",),
    ("launch",),
    ("of memory",),
    ("spread",),
    ("GFLOP/s",),
    ("quarters",),
    ("slower by",),
)


def baseline(benched: Benched) -> str:
    """Return the backend for comparison: the first peer that was timed, else the slowest of ours."""
    timed = [
        (not result.peer, -result.timing.median_seconds, result.backend)
        for problem in benched.problems
        for result in problem.checked.results
        if result.timing is not None
    ]
    peers = [name for is_ours, _, name in timed if not is_ours]
    return peers[0] if peers else min(timed)[2] if timed else ""


def columns(benched: Benched, base: str) -> tuple[str, ...]:
    """Return the heads of the columns."""
    measured = (
        *("backend", "median", "slower by", "spread", "GFLOP/s", "TFLOP/s", "of peak"),
        *("of stated", "of memory", "launch"),
    )
    is_compared = any(problem.changes for problem in benched.problems)
    changes = ("× saved", "by peak") if is_compared else ()
    return (*measured, f"× {base}", "quarters", *changes)


def printed(benched: Benched, page: Page, base: str) -> str:
    """Return a table for each problem. base: the backend that others are compared with."""
    sections = []
    for problem in benched.problems:
        above = tables.about(problem.checked) if problem.checked.speeds else []
        lines = [f"  {line}" for line in above] + [f"    {problem.checked.failure}"]
        before = [each for line in lines for each in wrapped(line, page.width, "", " " * 4)]
        found = rows(problem, benched, base)
        uncompared = {change.backend for change in problem.changes if not change.by_time}
        # `check` lists the backends that do not support a problem; here they would hide the numbers.
        explained = [
            result
            for result in problem.checked.results
            if result.ended is not Ended.CANNOT
            or result.required
            or result.peer
            or result.backend in uncompared
            or not found
        ]
        sections.append(Section(problem.checked.text, before, found, explained))
    return tables.printed(sections, columns(benched, base), _SPARED, notes(benched, base), page)


def rows(problem: BenchedProblem, benched: Benched, base: str) -> list[tuple[Result, Row]]:
    """Return the rows of the backends that ran, with what `columns` has."""
    found = tables.rows(problem.checked)
    memory = benched.bandwidth_bytes_per_second
    changes = {change.backend: change for change in problem.changes}
    for result, row in found:
        if problem.checked.speeds is None and (
            memory and result.timing and result.timing.median_seconds
        ):
            row["of memory"] = f"{problem.least_bytes / result.timing.median_seconds / memory:.0%}"
        if ratio := problem.ratio(result.backend, base):
            row[f"× {base}"] = speed(ratio.median)
            row["quarters"] = f"{speed(ratio.lower)}-{speed(ratio.upper)}"
        if change := changes.get(result.backend):
            row["× saved"] = f"{change.by_time:.2f}"
            row["by peak"] = f"{change.by_share:.2f}" if change.by_share else ""
    return found


def notes(benched: Benched, base: str) -> list[str]:
    """Return the summary, and what the columns mean."""
    problems = [problem.checked for problem in benched.problems]
    idle, count = sum(problem.idle for problem in problems), len(problems)
    ending = f" for {idle} of {count}" if idle < count else ""
    ending = f": no backend ran{ending}" if idle else ""
    found = [f"{tables.hardware_of(benched)}, {counted(benched.rounds, 'round')}{ending}"]
    on_cpu = [problem for problem in problems if problem.speeds is None]
    if peaks := [each.peak_gflops for each in on_cpu if each.peak_gflops]:
        by = next(each.peak_by for each in on_cpu if each.peak_by)
        ends = dict.fromkeys(speed(pick(peaks)) for pick in (min, max))
        found.append(f"peak: {' to '.join(ends)} GFLOP/s, {by}")
    if benched.bandwidth_bytes_per_second:
        rate = f"{speed(benched.bandwidth_bytes_per_second / 1e9)} GB/s, {benched.bandwidth_by}"
        found.append(f"memory: {rate}; of memory: inputs and result once")
    if any(ratio.to == base for problem in benched.problems for ratio in problem.ratios):
        found.append(f"× {base}: speed ratio in the same round, median and middle half")
    columns_shown = ["changes"] if any(problem.changes for problem in benched.problems) else []
    return found + tables.notes_of(problems, *columns_shown)


def markdown(benched: Benched, _page: Page, base: str) -> str:
    """Return one table of all problems."""
    heads = columns(benched, base)
    found = [
        (code(problem.checked.text), *(literal(row.get(name, "")) for name in heads))
        for problem in benched.problems
        for result, row in rows(problem, benched, base)
        if result.timing is not None
    ]
    problems = [problem.checked for problem in benched.problems if problem.checked.speeds]
    above = dict.fromkeys(line for problem in problems for line in tables.about(problem))
    texts = map(literal, (*above, *notes(benched, base)))
    return "\n\n".join([table(("problem", *heads), found), *texts]) + "\n"
