"""What backends are chosen for problems, and why not others, for people: in full, in short or as a matrix."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from msgspec.structs import replace

from mlbackends.model.explanation import Bound, Explained, Explanation
from mlbackends.model.problem import Verdict
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import code, literal, table
from mlbackends_cli.text.plain import binary_size

WIDEST = 110
#: How what a backend can is shown: with a sign and a colour.
MARKS = {"yes": ("✓", "green"), "no": ("✗", "red"), "not known": ("?", "yellow")}
MARKS |= {"yes, if installed": ("?", "yellow"), "yes, but": ("!", "yellow")}
#: Up to this number of problems, all reasons are printed; for more, only the choices, unless --all is given.
_FEW = 4


def matrix_text(explanation: Explanation, page: Page) -> str:
    """Return a row for each problem and torch, with a sign for each backend; the chosen ones are named."""
    from mlbackends_cli.text.layout import Cell, grid, widths  # with rich

    found: list[str] = []
    problems = explanation.problems
    texts = dict.fromkeys(problem.text.partition(" --device ")[0] for problem in problems)
    for text in texts:
        of_text = [problem for problem in problems if problem.text.partition(" --device ")[0] == text]
        columns = list(dict.fromkeys(v.backend for p in of_text for v in (*p.torch_verdicts, *p.verdicts)))
        shown = [name for name in columns if any(not v.is_elsewhere for p in of_text for v in _of(p, name))]
        heads = ("device", "torch", "wheel", "its choice", *map(_short, shown))
        rows = [[Cell(head, "bold") for head in heads]]
        for (device, wheel, chosen, *marks), same in groupby(of_text, partial(_summary, names=shown)):
            torch = [problem.torch for problem in same]
            span = torch[0] if len(torch) == 1 else f"{torch[0]} to {torch[-1]}"
            code, *signs = [Cell(*MARKS.get(mark, ("–", "dim"))) for mark in (wheel, *marks)]
            rows.append([Cell(device), Cell(span), code, Cell(_short(chosen)), *signs])
        found += [page.styled(text, "bold"), *grid(rows, widths(rows), page, indent=2), ""]
    found += ["✓ can   ! can, but known wrong   ✗ cannot   ? not known, or if installed   – not recorded"]
    found += ["wheel: whether torch's wheel for x86-64 Linux on PyPI has code for the GPU"]
    if explanation.torch_basis:
        found += [page.styled(explanation.torch_basis, "dim")]
    return page.fitted("\n".join(found) + "\n")


def matrix_markdown(explanation: Explanation, page: Page) -> str:
    """Return the rows of `matrix_text` as a block of code."""
    return f"```text\n{matrix_text(explanation, replace(page, color=False))}```\n"


def _summary(problem: Explained, names: Sequence[str]) -> tuple[str, ...]:
    """Return the device of a problem, what the wheel has, torch's choice, and the state of each backend."""
    states = (next(map(_state, _of(problem, name)), "not recorded") for name in names)
    wheel = {True: "yes", False: "no", None: "not recorded"}[problem.wheel_has_code]
    return problem.device, wheel, _choices(problem)[1], *states


def _of(problem: Explained, name: str) -> list[Verdict]:
    return [verdict for verdict in (*problem.torch_verdicts, *problem.verdicts) if verdict.backend == name]


def _short(name: str) -> str:
    return name.removesuffix("_ATTENTION")


def printed(explanation: Explanation, page: Page) -> str:
    """Return the verdicts for a terminal; for many problems, only the choices."""
    from mlbackends_cli.text.layout import Cell, grid, lines, widths, wrapped  # with rich

    narrow = replace(page, width=min(page.width, WIDEST))
    found: list[str] = []
    hints: set[str] = set()
    if len(explanation.problems) > _FEW and not page.details:
        rows = [[*map(Cell, _brief(problem))] for problem in explanation.problems]
        heads = ("problem", "torch", "its choice", "mlbackends", "at best")
        rows.insert(0, [Cell(head, "bold") for head in heads])
        basis = wrapped(explanation.torch_basis, page.width) if explanation.torch_basis else []
        ends = [*basis, "--all prints the reasons for each problem."]
        found = [*grid(rows, widths(rows), page), "", *ends]
        return page.fitted("\n".join(found) + "\n")
    for problem in explanation.problems:
        torch = _torch(problem, explanation)
        found += [page.styled(problem.text, "bold"), f"on {problem.device}: {problem.device_title}"]
        ours = ("mlbackends would choose", _ours(problem) or "no backend", problem.verdicts)
        theirs = problem.torch_chosen or "none: it would raise an error"
        sides = [(f"{torch} would choose", theirs, problem.torch_verdicts), ours]
        if problem.torch_unknown_reason:
            found += ["", f"  torch {explanation.torch}: {problem.torch_unknown_reason}"]
        for title, choice, verdicts in sides[1:] if problem.torch_unknown_reason else sides:
            found += ["", f"  {title} {page.styled(choice, 'bold')}"]
            rows = [
                [Cell(*MARKS[_state(verdict)]), Cell(verdict.backend), Cell(_text(verdict, hints))]
                for verdict in verdicts
                if not verdict.is_elsewhere
            ]
            if elsewhere := [verdict.backend for verdict in verdicts if verdict.is_elsewhere]:
                text = f"not for tensors on {problem.problem.platform} [wrong-device]"
                rows.append([Cell("–", "dim"), Cell(", ".join(elsewhere)), Cell(text)])
            if verdicts is problem.torch_verdicts:
                notes = "\n".join(problem.version_notes)
                rows += [[Cell("·", "dim"), Cell("versions"), Cell(notes)]] if notes else []
            found += lines(rows, narrow, indent=4)
        if least := _bound_text(problem):
            found += ["", *(f"  {line}" for line in wrapped(least, narrow.width - 2))]
        found.append("")
    found += (page.styled(line, "dim") for line in wrapped(explanation.torch_basis, page.width))
    return page.fitted("\n".join(found).rstrip("\n") + "\n")


#: How a verdict is shown: with a sign and a colour.
def _state(verdict: Verdict) -> str:
    """Return whether a backend can compute: a name in MARKS."""
    if verdict.reasons:
        return "no"
    if verdict.undecided:
        return "not known"
    if verdict.missing:
        return "yes, if installed"
    return "yes, but" if verdict.known_wrong else "yes"


def _text(verdict: Verdict, hints: set[str]) -> str:
    """Return the reasons, remedies and note of a verdict. hints: the remedies that were printed already."""
    lines = []
    for reason in (*verdict.reasons, *verdict.missing):
        code = f" [{reason.code}]" if verdict.reasons else ""
        lines.append(f"{reason.message}{code}")
        if reason.hint and reason.hint not in hints:
            hints.add(reason.hint)
            lines.append(f"→ {reason.hint}")
    if verdict.note or not lines:
        lines.append(verdict.note or ("can, but" if verdict.known_wrong else "can"))
    lines += [report.text for report in verdict.known_wrong]
    return "\n".join(lines)


def _torch(explained: Explained, explanation: Explanation) -> str:
    cudnn = f" with cuDNN {explained.torch_cudnn}" if explained.torch_cudnn else ""
    return f"torch {explained.torch or explanation.torch}{cudnn}"


def _ours(explained: Explained) -> str:
    chosen = explained.chosen
    is_missing = any(verdict.missing for verdict in explained.verdicts if verdict.backend == chosen)
    return f"{chosen}, if installed" if is_missing else chosen


def _brief(explained: Explained) -> tuple[str, ...]:
    text, torch, ours = _choices(explained)
    chosen = [verdict for verdict in explained.torch_verdicts if verdict.backend == torch]
    wrong = ", but known wrong" if any(verdict.known_wrong for verdict in chosen) else ""
    least = _time(explained.bound.seconds) if explained.bound else "not known"
    return text, explained.torch, torch + wrong, ours, least


def _choices(explained: Explained) -> tuple[str, str, str]:
    torch = "not known" if explained.torch_unknown_reason else explained.torch_chosen or "raises"
    return explained.text, torch, _ours(explained) or "none"


def markdown(explanation: Explanation, _page: Page) -> str:
    """Return the verdicts as Markdown: a table for each problem."""
    parts = []
    hints: set[str] = set()
    for problem in explanation.problems:
        text, torch, ours = _choices(problem)
        sides = (
            (f"torch {problem.torch}", problem.torch_verdicts),
            ("mlbackends", problem.verdicts),
        )
        rows = [
            (
                literal(side),
                literal(verdict.backend),
                _state(verdict),
                "<br>".join(map(literal, _text(verdict, hints).splitlines())),
            )
            for side, verdicts in sides
            for verdict in verdicts
        ]
        device = f"On {literal(problem.device)} ({literal(problem.device_title)})"
        torch_version = literal(_torch(problem, explanation))
        parts += [
            f"### {code(text, in_table=False)}",
            f"{device} {torch_version} would choose **{literal(torch)}**, mlbackends **{literal(ours)}**.",
            table(("whose", "backend", "can", "why"), rows),
        ]
        parts += map(literal, filter(None, (*problem.version_notes, _bound_text(problem))))
    parts += [literal(explanation.torch_basis)] if explanation.torch_basis else []
    return "\n\n".join(parts) + "\n"


def _bound_text(explained: Explained) -> str:
    return bound_text(explained.bound, explained.problem.wants_gradient) if explained.bound else ""


def bound_text(bound: Bound, is_backward: bool) -> str:
    """Return the least time of a pass on a chip as a sentence."""
    what = " for the backward pass" if is_backward else ""
    least = f"at best {_time(bound.seconds)}{what} on {bound.product}: limited by {bound.limited_by}"
    if not bound.math_bytes:
        return least
    more = f"MATH moves {binary_size(bound.math_bytes)} of scores as well"
    return f"{least}; {more}: at best {_time(bound.math_seconds)}"


def _time(seconds: float) -> str:
    """Return a time for people."""
    if seconds >= 1:
        return f"{seconds:,.3g} s" if seconds < 100 else f"{seconds:,.0f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.3g} µs"
