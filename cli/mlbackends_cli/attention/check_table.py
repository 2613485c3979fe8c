"""A check of attention backends for people: on a terminal, and in Markdown."""

from mlbackends.model.checked import Checked, Ended, Result
from mlbackends.model.errors import counted
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.tables import Section, ran
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import code, literal, table
from mlbackends_cli.text.plain import binary_size, one_line
from mlbackends_cli.text.prose import wrapped

_GRADIENTS = {"query": "dQ", "key": "dK", "value": "dV", "mask": "dM"}
COLUMNS = (
    *("backend", "max error", "relative", "error ratio", "out", *_GRADIENTS.values()),
    *("median", "spread", "GFLOP/s", "of peak", "memory"),
)
_SPARED = (
    ("spread",),
    ("relative",),
    ("out", *_GRADIENTS.values()),
    ("GFLOP/s",),
    ("memory",),
)
"""The columns that a narrow page leaves out, in this order."""
_ERRORS = (
    "max error: against float64; relative: by the largest number of its row; error ratio: max error by that"
    " of the plain formula in the same type"
)
_ALLOWED = (
    "allowed: the backend's tolerance times the plain formula's error, and beside it 4 units in the last"
    " place of the largest number in float32 and float64, 1 in float16 and bfloat16"
)
_GRADIENT_ERRORS = (
    "of the result and its gradients, they are of the one nearest to its limit; the largest number of a"
    " gradient may be one that it is the difference of"
)


def printed(checked: Checked, page: Page) -> str:
    """Return a table for each problem, as wide as the page allows."""
    sections = []
    for problem in checked.problems:
        ours, torch = problem.chosen or "no backend", problem.torch_chosen or "none"
        before, after = [f"mlbackends takes {ours}, torch would take {torch}"], []
        if problem.failure:
            sign = page.styled(page.sign("✗", "x"), "31")
            before += wrapped(f"  {sign} {one_line(problem.failure)}", page.width, "", " " * 4)
        if problem.peak_gflops:
            peak = f"  peak: {problem.peak_gflops:.0f} GFLOP/s, {problem.peak_by}"
            after.append(page.styled(peak, "2"))
        rows = [(each, cells(each)) for each in ran(problem)]
        sections.append(Section(problem.text, before, rows, list(problem.results), after))
    return tables.printed(sections, COLUMNS, _SPARED, _notes(checked), page)


def cells(result: Result) -> tuple[str, ...]:
    """Return the row of a backend that ran, as COLUMNS says."""
    row = {"backend": tables.name_of(result)}
    if result.worst is not None:
        _, errors = result.worst
        row["max error"] = f"{errors.largest_absolute:.1e}"
        row["relative"] = f"{errors.largest_relative:.1e}"
        if errors.in_reference_errors is not None:
            row["error ratio"] = f"{errors.in_reference_errors:.2f}×"
    if result.errors is not None and result.gradients:
        row["out"] = f"{result.errors.largest_absolute:.1e}"
    for name, errors in result.gradients.items():
        row[_GRADIENTS[name]] = f"{errors.largest_absolute:.1e}"
    if (timing := result.timing) is not None:
        row["median"], row["spread"], row["GFLOP/s"], row["of peak"] = tables.timing_cells(timing)
    if result.memory is not None:
        row["memory"] = f"+{binary_size(result.memory.extra_bytes)}"
    return tuple(row.get(column, "") for column in COLUMNS)


def _notes(checked: Checked) -> list[str]:
    count = len(checked.problems)
    bad = sum(not each.good for each in checked.problems)
    idle = sum(each.idle for each in checked.problems)
    ending = f"{bad} of {count} with something wrong" if bad else "nothing wrong"
    if idle and not bad:
        ending = "no backend ran" if idle == count else f"{ending} in what ran"
    if 0 < idle < count:
        ending += f"; no backend ran for {idle} of {count}"
    where = f"{checked.processor or 'this processor'}, {counted(checked.threads, 'thread')}"
    notes = [f"{counted(count, 'problem')} on {where}: {ending}"]
    results = [each for problem in checked.problems for each in ran(problem)]
    if not results:
        return notes
    notes += [_ERRORS, _ALLOWED]
    if any(each.problem.wants_gradient for each in checked.problems):
        notes += [_GRADIENT_ERRORS, tables.BACKWARD]
    if any(map(tables.is_beyond_peak, checked.problems)):
        notes.append(tables.BEYOND_PEAK)
    notes += tables.unstable_notes(checked.problems)
    measured = {each.memory.measured_by for each in results if each.memory}
    return notes + [f"memory: beyond inputs and result, by {each}" for each in sorted(measured)]


def markdown(checked: Checked, _page: Page) -> str:
    """Return a table of all problems, and below it why a backend gave no result or a wrong one."""
    from mlbackends.sdpa.verify.outcome import summary

    parts = []
    for problem in checked.problems:
        rows = [tuple(map(literal, cells(each))) for each in ran(problem)]
        nothing = "" if rows else "No backend ran."
        others = [
            f"- {literal(each.backend)}: {literal(f'{each.ended}: {summary(each)}')}"
            for each in problem.results
            if each.ended is not Ended.RAN or not each.good
        ]
        parts += [
            f"### {code(problem.text, in_table=False)}",
            literal(problem.failure) or nothing,
            table(COLUMNS, rows),
            "\n".join(others),
        ]
    return "\n\n".join(filter(None, parts)) + "\n"
