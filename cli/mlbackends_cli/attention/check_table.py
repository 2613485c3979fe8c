"""A check of attention backends for people: on a terminal, and in Markdown."""

from mlbackends.base.errors import counted
from mlbackends.model.checked import Checked, Ended
from mlbackends.sdpa.verify.outcome import summary
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.tables import GRADIENTS, Section, ran
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import code, literal, table
from mlbackends_cli.text.plain import one_line, wrapped

COLUMNS = (
    *("backend", "median", "slower by", "spread", "GFLOP/s", "TFLOP/s", "of peak", "of stated"),
    *("of memory", "launch", "max error", "of allowed"),
    *("relative", "error ratio", "out", *GRADIENTS.values(), "memory"),
)
#: The columns that a narrow page leaves out, in this order.
_SPARED = (
    ("spread",),
    ("relative",),
    ("error ratio",),
    ("out", *GRADIENTS.values()),
    ("GFLOP/s",),
    ("launch",),
    ("of stated",),
    ("memory",),
    ("of memory",),
    ("max error",),
    ("of peak",),
)


def printed(checked: Checked, page: Page) -> str:
    """Return a table for each problem, as wide as the page allows."""
    sections = []
    for problem in checked.problems:
        ours, torch = problem.chosen or "no backend", problem.torch_chosen or "none"
        about = [f"  mlbackends chooses {ours}, torch would choose {torch}"]
        about += [f"  {line}" for line in tables.about(problem)]
        lines = [line for text in about for line in wrapped(text, page.width, "", " " * 4)]
        before = [page.styled(line, "dim") for line in lines]
        if problem.failure:
            sign = page.styled(page.sign("✗", "x"), "red")
            before += wrapped(f"  {sign} {one_line(problem.failure)}", page.width, "", " " * 4)
        rows, results = tables.rows(problem), list(problem.results)
        sections.append(Section(problem.text, before, rows, results))
    return tables.printed(sections, COLUMNS, _SPARED, notes(checked), page)


def notes(checked: Checked) -> list[str]:
    """Return the summary, and what the columns mean."""
    count = len(checked.problems)
    bad = sum(not problem.good for problem in checked.problems)
    idle = sum(problem.idle for problem in checked.problems)
    ending = f"{bad} of {count} with something wrong" if bad else "nothing wrong"
    if idle and not bad:
        ending = "no backend ran" if idle == count else f"{ending} in what ran"
    if 0 < idle < count:
        ending += f"; no backend ran for {idle} of {count}"
    summary = f"{counted(count, 'problem')} on {tables.hardware_of(checked)}: {ending}"
    results = [each for problem in checked.problems for each in ran(problem)]
    if not results:
        return [summary]
    measures = ["slower by"] * any(result.timing for result in results) + [
        "max error",
        "of allowed",
    ]
    measures += ["relative", "error ratio"]
    measures += ["gradients"] * any(problem.problem.wants_gradient for problem in checked.problems)
    measured = {result.memory.measured_by for result in results if result.memory}
    memory = [
        f"memory: extra memory during the call, measured by {each}" for each in sorted(measured)
    ]
    return [summary, *tables.notes_of(checked.problems, *measures), *memory]


def markdown(checked: Checked, _page: Page) -> str:
    """Return a table for each problem with why a backend gave no result or a wrong one, and the notes."""
    parts = []
    for problem in checked.problems:
        rows = [
            tuple(literal(row.get(name, "")) for name in COLUMNS) for _, row in tables.rows(problem)
        ]
        failures = [
            f"- {literal(result.backend)}: {literal(f'{result.ended}: {summary(result)}')}"
            for result in problem.results
            if result.ended is not Ended.RAN or not result.good
        ]
        parts += [
            f"### {code(problem.text, in_table=False)}",
            literal(problem.failure) or ("" if rows else "No backend ran."),
            "\n".join(f"- {literal(line)}" for line in tables.about(problem) if problem.speeds),
            table(COLUMNS, rows),
            "\n".join(failures),
        ]
    return "\n\n".join(filter(None, [*parts, *map(literal, notes(checked))])) + "\n"
