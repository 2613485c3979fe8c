"""Attention backends, and which can take a problem, for people: on a terminal, and in Markdown."""

from collections.abc import Iterator, Sequence

from mlbackends.model.explanation import BackendEntry, BackendList, Explained, Explanation
from mlbackends.model.problem import Verdict
from mlbackends.sdpa.named_devices import HERE, NAMED
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import plain
from mlbackends_cli.text.markdown import code, literal, table
from mlbackends_cli.text.plain import Passage, one_line, wrapped

_WIDEST = 110
#: Up to this number of problems, all reasons are printed; for more, only the choices, unless --all is given.
_FEW = 4


def printed(explanation: Explanation, page: Page) -> str:
    """Return the verdicts for a terminal; for many problems, only the choices."""
    if len(explanation.problems) <= _FEW or page.details:
        lines = [
            line
            for problem in explanation.problems
            for line in _reasons(problem, explanation, page)
        ]
        return page.fitted("\n".join(lines).rstrip("\n") + "\n")
    rows = [("problem", "mlbackends", f"torch {explanation.torch}")]
    rows += [_choices(problem) for problem in explanation.problems]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return page.fitted(
        "\n".join(
            [page.styled(head, "bold"), *lines, "", "--all prints the reasons for each problem.\n"]
        )
    )


def _reasons(explained: Explained, explanation: Explanation, page: Page) -> Iterator[str]:
    yield page.styled(explained.text, "bold")
    yield f"on {explained.device}: {explained.device_title}"
    yield ""
    ours = explained.chosen or "no backend"
    yield from _section("mlbackends would choose", ours, explained.verdicts, page)
    if explained.torch_unknown_reason:
        yield f"  torch {explanation.torch}: {explained.torch_unknown_reason}"
        yield ""
    else:
        torch = f"{_torch(explained, explanation)} would choose"
        choice = explained.torch_chosen or "none: it would raise an error"
        yield from _section(torch, choice, explained.torch_verdicts, page)


def _torch(explained: Explained, explanation: Explanation) -> str:
    cudnn = f" with cuDNN {explained.torch_cudnn}" if explained.torch_cudnn else ""
    return f"torch {explanation.torch}{cudnn}"


def _section(title: str, choice: str, verdicts: Sequence[Verdict], page: Page) -> Iterator[str]:
    yield f"  {title} {page.styled(choice, 'bold')}"
    room = max((len(verdict.backend) for verdict in verdicts), default=0)
    indent = " " * (room + 8)
    width = max(min(page.width, _WIDEST), len(indent) + 26)
    for verdict in verdicts:
        mark = page.styled("✓", "green") if verdict.usable else page.styled("✗", "red")
        lines: list[str] = []
        for reason in verdict.reasons:
            message = one_line(f"{reason.message} [{reason.code}]")
            lines += wrapped(message, width, indent, indent)
            if reason.hint:
                lines += wrapped(f"→ {one_line(reason.hint)}", width, indent, f"{indent}  ")
        if verdict.usable:
            lines += wrapped(one_line(verdict.note or "can"), width, indent, indent)
        first = lines[0].strip()
        yield f"    {mark} {verdict.backend.ljust(room)}  {first}"
        yield from lines[1:]
    yield ""


def _choices(explained: Explained) -> tuple[str, str, str]:
    torch = "not known" if explained.torch_unknown_reason else explained.torch_chosen or "raises"
    return explained.text, explained.chosen or "none", torch


def markdown(explanation: Explanation, _page: Page) -> str:
    """Return the verdicts as Markdown: a table for each problem."""

    def reasons(verdict: Verdict) -> str:
        return "<br>".join(
            literal(f"{reason.message} [{reason.code}]{f' → {reason.hint}' if reason.hint else ''}")
            for reason in verdict.reasons
        ) or literal(verdict.note)

    parts = []
    for problem in explanation.problems:
        text, ours, torch = _choices(problem)
        sides = (
            ("mlbackends", problem.verdicts),
            (f"torch {explanation.torch}", problem.torch_verdicts),
        )
        rows = [
            (
                literal(side),
                literal(verdict.backend),
                "yes" if verdict.usable else "no",
                reasons(verdict),
            )
            for side, verdicts in sides
            for verdict in verdicts
        ]
        device = f"On {literal(problem.device)} ({literal(problem.device_title)})"
        torch_version = literal(_torch(problem, explanation))
        parts += [
            f"### {code(text, in_table=False)}",
            f"{device} mlbackends would choose **{literal(ours)}**, {torch_version} **{literal(torch)}**.",
            table(("whose", "backend", "can", "why not"), rows),
        ]
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
    lines = [*HERE.items(), *((each.name, each.title) for each in NAMED.values())]
    return plain.printed((Passage("Devices", tuple(lines)),), page)
