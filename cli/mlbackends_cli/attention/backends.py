"""Attention backends, and which can take a problem, for people: on a terminal, and in Markdown."""

from msgspec.structs import replace

from mlbackends.model.explanation import BackendEntry, BackendList, Explained, Explanation
from mlbackends.model.problem import Verdict
from mlbackends.sdpa.named_devices import HERE, NAMED
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import plain
from mlbackends_cli.text.markdown import code, literal, table
from mlbackends_cli.text.plain import Passage

_WIDEST = 110
#: Up to this number of problems, all reasons are printed; for more, only the choices, unless --all is given.
_FEW = 4


def printed(explanation: Explanation, page: Page) -> str:
    """Return the verdicts for a terminal; for many problems, only the choices."""
    from mlbackends_cli.text.layout import (  # rich, which JSON does not need
        Cell,
        grid,
        lines,
        widths,
    )

    narrow = replace(page, width=min(page.width, _WIDEST))
    found: list[str] = []
    hints: set[str] = set()
    if len(explanation.problems) > _FEW and not page.details:
        rows = [[*map(Cell, _choices(problem))] for problem in explanation.problems]
        heads = ("problem", f"torch {explanation.torch}", "mlbackends")
        rows.insert(0, [Cell(head, "bold") for head in heads])
        ends = [explanation.torch_basis, "--all prints the reasons for each problem."]
        found = [*grid(rows, widths(rows), page), "", *ends]
        return page.fitted("\n".join(found) + "\n")
    for problem in explanation.problems:
        torch = _torch(problem, explanation)
        found += [page.styled(problem.text, "bold"), f"on {problem.device}: {problem.device_title}"]
        ours = ("mlbackends would choose", problem.chosen or "no backend", problem.verdicts)
        theirs = problem.torch_chosen or "none: it would raise an error"
        sides = [(f"{torch} would choose", theirs, problem.torch_verdicts), ours]
        if problem.torch_unknown_reason:
            found += ["", f"  torch {explanation.torch}: {problem.torch_unknown_reason}"]
        for title, choice, verdicts in sides[1:] if problem.torch_unknown_reason else sides:
            found += ["", f"  {title} {page.styled(choice, 'bold')}"]
            rows = [
                [Cell(*_MARKS[_state(verdict)]), Cell(verdict.backend), Cell(_text(verdict, hints))]
                for verdict in verdicts
                if not verdict.is_elsewhere
            ]
            if elsewhere := [verdict.backend for verdict in verdicts if verdict.is_elsewhere]:
                text = f"not for tensors on {problem.problem.platform} [wrong-device]"
                rows.append([Cell("–", "dim"), Cell(", ".join(elsewhere)), Cell(text)])
            found += lines(rows, narrow, indent=4)
        found.append("")
    found.append(page.styled(explanation.torch_basis, "dim"))
    return page.fitted("\n".join(found).rstrip("\n") + "\n")


#: How a verdict is shown: with a sign and a colour.
_MARKS = {"yes": ("✓", "green"), "no": ("✗", "red"), "not known": ("?", "yellow")}
_MARKS |= {"yes, if installed": ("?", "yellow"), "yes, but": ("!", "yellow")}


def _state(verdict: Verdict) -> str:
    """Return whether a backend can compute: a name in _MARKS."""
    if verdict.reasons:
        return "no"
    if verdict.undecided:
        return "not known"
    is_torch = verdict.backend == verdict.answers_to
    return (
        "yes, if installed"
        if verdict.missing
        else "yes, but"
        if is_torch and verdict.note
        else "yes"
    )


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
        lines.append(verdict.note or "can")
    return "\n".join(lines)


def _torch(explained: Explained, explanation: Explanation) -> str:
    cudnn = f" with cuDNN {explained.torch_cudnn}" if explained.torch_cudnn else ""
    return f"torch {explanation.torch}{cudnn}"


def _choices(explained: Explained) -> tuple[str, str, str]:
    torch = "not known" if explained.torch_unknown_reason else explained.torch_chosen or "raises"
    return explained.text, torch, explained.chosen or "none"


def markdown(explanation: Explanation, _page: Page) -> str:
    """Return the verdicts as Markdown: a table for each problem."""
    parts = []
    hints: set[str] = set()
    for problem in explanation.problems:
        text, torch, ours = _choices(problem)
        sides = (
            (f"torch {explanation.torch}", problem.torch_verdicts),
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
    parts.append(literal(explanation.torch_basis))
    return "\n\n".join(parts) + "\n"


def printed_list(listed: BackendList, page: Page) -> str:
    """Return a passage for each backend."""
    parts = []
    for entry in listed.backends:
        lines = [("is", f"{entry.summary} ({_kind(entry)})")]
        lines += [("supports", "; ".join(entry.takes))] if entry.takes else []
        lines += [("can", ", ".join(entry.can))] if entry.can else []
        if entry.tolerance:
            limits = ", ".join(f"{dtype} {times:g}×" for dtype, times in entry.tolerance.items())
            limits += " the error of plain attention, plus a few units in the last place"
            lines.append(("tolerance", limits))
        if not entry.unavailable_reasons:
            lines.append(("status", "installed; --peers runs it" if entry.peer else "usable"))
        for title, reasons in (
            ("not usable", entry.unavailable_reasons),
            ("slower", entry.slower_reasons),
        ):
            for reason in reasons:
                hint = f"; {reason.hint}" if reason.hint else ""
                lines.append((title, f"{reason.message} [{reason.code}]{hint}"))
        mark, color = ("✗", "red") if entry.unavailable_reasons else ("✓", "green")
        mark, color = ("!", "yellow") if entry.slower_reasons else (mark, color)
        passage = Passage(f"{mark} {entry.name}", tuple(lines))
        parts.append(plain.printed((passage,), page, f"bold {color}"))
    return page.fitted("\n".join(parts))


def _kind(entry: BackendEntry) -> str:
    return f"{entry.answers_to}, a peer" if entry.peer else entry.answers_to


def markdown_list(listed: BackendList, _page: Page) -> str:
    """Return a table of the backends."""
    rows = [
        (
            backend.name,
            _kind(backend),
            "; ".join(backend.takes),
            ", ".join(backend.can),
            next(
                (
                    reason.message
                    for reason in (*backend.unavailable_reasons, *backend.slower_reasons)
                ),
                "yes",
            ),
        )
        for backend in listed.backends
    ]
    heads = ("backend", "kind", "supports", "can", "usable here")
    return table(heads, [tuple(map(literal, row)) for row in rows]) + "\n"


def devices(page: Page) -> str:
    """Return the names that --device takes, with what each is."""
    lines = [*HERE.items(), *((backend.name, backend.title) for backend in NAMED.values())]
    return plain.printed((Passage("Devices", tuple(lines)),), page)
