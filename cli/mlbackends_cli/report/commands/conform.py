"""Check whether installed libraries compute right numbers, against a more precise reference.

Operations of NumPy, SciPy, PyTorch, ONNX Runtime, OpenVINO, JAX and TensorFlow on the CPU, in every element
type that they offer, on problems that a seed draws. Each library computes in its own process. Errors are in
units of what the element type allows: up to 8 is right. Without --quick also at the edges (NaN, infinite,
subnormal, empty, 2^31 elements), with fewer instructions, as OPENBLAS_CORETYPE and others set them, and with
one thread. A wrong number is an error, at an edge or with fewer instructions a warning. Exit 1 if there is
an error, see --fail-on; 3 if a library could not be asked.

Examples:
  backends conform
  backends conform --quick
  backends conform torch --python ~/venv/bin/python
  backends conform openvino --problem 'gemm float32 m=64 n=96 k=256 seed=7'
  backends conform --format junit --output conform.xml
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import click

from mlbackends.conform.outcome import outcome_of, severity_of, title_of
from mlbackends.conform.problems import DTYPES, parse
from mlbackends.conform.running import LIBRARIES, conform
from mlbackends.model.audit import Severity
from mlbackends.model.conformity import Answer, Conformities, Conformity, LibraryConformity
from mlbackends_cli import formats
from mlbackends_cli.exits import cleared_up
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import PYTHON, completing, option, timeout_option, written
from mlbackends_cli.output import refuse_unwritable, write
from mlbackends_cli.report.judgement import code, fail_on_option, write_outcome
from mlbackends_cli.terminal import Page, ProgressLine, page
from mlbackends_cli.text.layout import Cell, grid, widths, wrapped

_LEGEND = (
    "Numbers: the largest error, in units of what the element type allows; up to 8 is right. ✗ wrong, ! wrong"
    " for NaN, infinite, subnormal or no numbers only, ~ inexact only where the result is small."
)


@documented()
@click.argument("names", metavar="[LIBRARY]...", nargs=-1, shell_complete=completing(lambda: LIBRARIES))
@option("--quick", "Few problems, without edges, fewer instructions and one thread: under 20 s.")
@option("--seed", "Draw other problems.", usual=0, kind=click.IntRange(0, 1 << 32))
@option("--problem problems LINE", "Compute this problem, as a run printed it (repeatable).", many=True)
@PYTHON
@timeout_option(60.0, "Time limit for an import or an answer before it is stopped.")
@fail_on_option("error")
@option("--all details", "List every wrong, inexact and flushed result, not only the worst.")
@written("outcome")
def command(
    problems: tuple[str, ...], fail_on: str, details: bool, form: str, output: str, color: str, **how: Any
) -> int:
    asked = tuple(map(parse, problems))
    refuse_unwritable(output)
    with (
        cleared_up(),
        ProgressLine(lambda done, total, name: f"{done} of {total} libraries asked, now {name}") as progress,
    ):
        found = conform(**how, problems=asked, progress=progress)
    style = page(color, output, details=details)
    outcome = outcome_of(found)
    if form == "table" or formats.has(form, "record"):
        write(formats.text_of(form, found, style, table=text), output)
    else:
        write_outcome(outcome, form, output, style)
    return code(outcome, fail_on=fail_on, strict=True)


def text(found: Conformities, style: Page) -> str:
    """Return a table for each library: the largest error of each operation and element type, in units."""
    lines: list[str] = []
    digests: dict[tuple[str, str], str] = {}
    for library in found.libraries:
        own = {(library.library, one.problem): one.digest for one in library.answers if one.digest}
        other = sum(digests.get(key, digest) != digest for key, digest in own.items())
        digests = {**own, **digests}
        lines += [*([""] if lines and not library.variables else []), *_library(library, other, style)]
    every = (one for library in found.libraries for one in library.answers)
    answers = [one for one in every if one.answer is not Answer.REFUSED]
    wrong = sum(one.is_wrong for one in answers)
    are = "are" if wrong > 1 else "is"
    summary = f"{wrong or 'None'} of {len(answers):,} answers {are} wrong." if answers else "No answer."
    lines += ["", style.styled(summary, "bold"), *wrapped(_LEGEND, style.width), ""]
    return style.fitted("\n".join(lines))


def _library(library: LibraryConformity, other: int, style: Page) -> Iterator[str]:
    """Yield the lines of a library. other: how many results its variables change."""
    answered = [one for one in library.answers if one.answer is not Answer.REFUSED]
    title = style.styled(title_of(library), "bold")
    if library.variables and not library.failure:
        wrong = sum(one.is_wrong for one in answered)
        title = f"{title}: {wrong} of {len(answered)} wrong, {other} with other bits"
    yield from wrapped(title, style.width)
    if library.failure:
        yield from _indented(f"cannot be asked: {library.failure}", style)
    cells: dict[tuple[str, str], list[Conformity]] = defaultdict(list)
    for one in answered:
        cells[one.operation, one.dtype].append(one)
    dtypes = [name for name in DTYPES if any(dtype == name for _, dtype in cells)]
    rows = [[Cell(head, "dim") for head in ("", *dtypes)]]
    for operation in dict.fromkeys(operation for operation, _ in cells):
        signs = [_sign(library, cells[operation, dtype]) for dtype in dtypes]
        rows.append([Cell(operation), *signs])
    if cells and not library.variables:
        yield from grid(rows, widths(rows), style, indent=2)
    for answers in cells.values():
        shown = [one for one in answers if one.is_wrong or (style.details and one.message)]
        # Without --all the worst ordinary one stands for all.
        shown.sort(key=lambda one: (severity_of(library, one).level, one.units), reverse=True)
        for one in shown if style.details else shown[:1]:
            yield from _indented(f"{one.answer.value}: {one.problem}: {one.message}", style)
    for hint in dict.fromkeys(one.hint for one in library.answers if one.hint):
        yield style.styled(f"  → {hint}", "bold")
    if changing := [one.problem for one in library.answers if not one.repeats]:
        yield from _indented(f"{len(changing)} results differ from call to call: {changing[0]}", style)


def _sign(library: LibraryConformity, answers: list[Conformity]) -> Cell:
    wrong = [severity_of(library, one) for one in answers if one.is_wrong]
    units = max((one.units for one in answers), default=0.0)
    if not answers:
        return Cell("–", "dim")
    if wrong:
        return Cell(f"✗ {units:.2g}", "red") if Severity.ERROR in wrong else Cell(f"! {units:.2g}", "yellow")
    if any(one.answer is Answer.INEXACT for one in answers):
        return Cell(f"~ {units:.2g}", "yellow")
    return Cell(f"✓ {units:.2g}", "green")


def _indented(words: str, style: Page) -> list[str]:
    return [f"  {line}" for line in wrapped(words, style.width - 2)]
