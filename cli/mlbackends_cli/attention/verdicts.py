"""Which backends can take an attention problem, for people: on a terminal, and in Markdown."""

import textwrap
from collections.abc import Iterator, Sequence

from mlbackends.model.explanation import Explained, Explanation
from mlbackends.model.problem import Verdict
from mlbackends_cli.attention.tables import styled, text_of
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import one_line

_WIDEST = 110
_FEW = 4
"""So many problems are printed with all reasons; of more, the choices alone, unless --all is given."""


def printed(explanation: Explanation, page: Page) -> str:
    """Return the verdicts for a terminal."""
    lines = _grid if len(explanation.problems) > _FEW and not page.details else _all_lines
    return text_of(lines(explanation, page), page)


def _all_lines(explanation: Explanation, page: Page) -> Iterator[str]:
    for each in explanation.problems:
        yield styled(each.text, "1", page)
        yield f"on {each.device}: {each.device_title}"
        yield ""
        ours = each.chosen or "no backend"
        yield from _section("mlbackends would take", ours, each.verdicts, page)
        if each.torch_untold:
            yield f"  torch {explanation.torch}: {each.torch_untold}"
            yield ""
        else:
            torch = f"{_torch(each, explanation)} would take"
            kind = each.torch_chosen or "none, and raise"
            yield from _section(torch, kind, each.torch_verdicts, page)


def _torch(explained: Explained, explanation: Explanation) -> str:
    cudnn = f" with cuDNN {explained.torch_cudnn}" if explained.torch_cudnn else ""
    return f"torch {explanation.torch}{cudnn}"


def _section(title: str, choice: str, verdicts: Sequence[Verdict], page: Page) -> Iterator[str]:
    yield f"  {title} {styled(choice, '1', page)}"
    room = max((len(each.backend) for each in verdicts), default=0)
    indent = " " * (room + 8)
    for verdict in verdicts:
        mark, color = ("✓", "32") if verdict.usable else ("✗", "31")
        lines: list[str] = []
        for reason in verdict.reasons:
            lines += _wrapped(one_line(f"{reason.message} [{reason.code}]"), indent, indent, page)
            if reason.hint:
                lines += _wrapped(f"→ {one_line(reason.hint)}", indent, f"{indent}  ", page)
        first = lines[0].strip() if lines else "can"
        yield f"    {styled(mark, color, page)} {verdict.backend.ljust(room)}  {first}"
        yield from lines[1:]
    yield ""


def _wrapped(text: str, first: str, others: str, page: Page) -> list[str]:
    return textwrap.wrap(
        text,
        max(min(page.width, _WIDEST), len(others) + 24),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _grid(explanation: Explanation, page: Page) -> Iterator[str]:
    """Yield one row for each problem: the choices."""
    rows = [("problem", "mlbackends", f"torch {explanation.torch}")]
    rows += [_choices(each) for each in explanation.problems]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    for number, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield line.rstrip() if number else styled(line.rstrip(), "1", page)
    yield ""
    yield "--all prints the reasons, for each."


def _choices(explained: Explained) -> tuple[str, str, str]:
    torch = "not known" if explained.torch_untold else explained.torch_chosen or "raises"
    return explained.text, explained.chosen or "none", torch


def markdown(explanation: Explanation) -> str:
    """Return the verdicts as Markdown: a table for each problem."""
    from mlbackends_cli.text.markdown import code, literal, table

    def reasons(verdict: Verdict) -> str:
        return "<br>".join(
            literal(f"{each.message} [{each.code}]{f' → {each.hint}' if each.hint else ''}")
            for each in verdict.reasons
        )

    parts = []
    for problem in explanation.problems:
        text, ours, torch = _choices(problem)
        parts.append(f"### {code(text, in_table=False)}\n")
        parts.append(
            f"On {literal(problem.device)} ({literal(problem.device_title)}) mlbackends would take"
            f" **{literal(ours)}**, {literal(_torch(problem, explanation))} **{literal(torch)}**.\n"
        )
        sides = (
            ("mlbackends", problem.verdicts),
            (f"torch {explanation.torch}", problem.torch_verdicts),
        )
        rows = [
            (literal(side), literal(each.backend), "yes" if each.usable else "no", reasons(each))
            for side, verdicts in sides
            for each in verdicts
        ]
        parts.append(table(("whose", "backend", "can", "why not"), rows) + "\n")
    return "\n".join(parts)
