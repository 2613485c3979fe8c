"""Who can take an attention problem, for people: on a terminal, and in Markdown."""

import textwrap
from collections.abc import Iterator, Sequence

from mlbackends.model.explanation import Explained, Explanation
from mlbackends.model.problem import Verdict
from mlbackends_cli.plain import one_line
from mlbackends_cli.terminal import Page

_WIDEST = 110
_FEW = 4
"""So many problems are told with all reasons; of more, who takes each, unless details are asked for."""


def printed(explanation: Explanation, page: Page) -> str:
    """Return the verdicts for a terminal."""
    if len(explanation.problems) > _FEW and not page.details:
        lines = list(_grid(explanation, page))
    else:
        lines = [line for each in explanation.problems for line in _told(each, explanation, page)]
    text = "\n".join(lines).rstrip("\n") + "\n"
    if page.unicode:
        return text
    return (
        text.replace("✓", "+")
        .replace("✗", "x")
        .replace("→", "->")
        .encode("ascii", "replace")
        .decode()
    )


def _told(told: Explained, explanation: Explanation, page: Page) -> Iterator[str]:
    yield _bold(told.text, page)
    yield f"on {told.device}: {told.device_title}"
    yield ""
    yield from _section("mlbackends would take", told.chosen or "nobody", told.verdicts, page)
    torch = f"{_torch(told, explanation)} would take"
    if told.torch_untold:
        yield f"  torch {explanation.torch}: {told.torch_untold}"
        yield ""
    else:
        taken = told.torch_chosen or "nobody, and raise"
        yield from _section(torch, taken, told.torch_verdicts, page)


def _torch(told: Explained, explanation: Explanation) -> str:
    cudnn = f" with cuDNN {told.torch_cudnn}" if told.torch_cudnn else ""
    return f"torch {explanation.torch}{cudnn}"


def _section(title: str, taken: str, verdicts: Sequence[Verdict], page: Page) -> Iterator[str]:
    yield f"  {title} {_bold(taken, page)}"
    room = max((len(each.backend) for each in verdicts), default=0)
    for each in verdicts:
        yield from _verdict(each, room, page)
    yield ""


def _verdict(verdict: Verdict, room: int, page: Page) -> Iterator[str]:
    width = min(page.width, _WIDEST)
    mark, color = ("✓", "32") if verdict.usable else ("✗", "31")
    indent = " " * (room + 8)
    lines: list[str] = []
    for reason in verdict.reasons:
        said = one_line(f"{reason.message} [{reason.code}]")
        lines += _wrapped(said, width, indent, indent)
        if reason.hint:
            lines += _wrapped(f"→ {one_line(reason.hint)}", width, indent, f"{indent}  ")
    first = lines[0].strip() if lines else "can"
    shown = f"\033[{color}m{mark}\033[0m" if page.color else mark
    yield f"    {shown} {verdict.backend.ljust(room)}  {first}"
    yield from lines[1:]


def _grid(explanation: Explanation, page: Page) -> Iterator[str]:
    """Yield one row for each problem: who takes it."""
    rows = [("problem", "mlbackends", f"torch {explanation.torch}")]
    rows += [_row(each) for each in explanation.problems]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    for number, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield _bold(line.rstrip(), page) if not number else line.rstrip()
    yield ""
    yield "--all tells why, for each."


def _row(told: Explained) -> tuple[str, str, str]:
    torch = "not known" if told.torch_untold else told.torch_chosen or "raises"
    return told.text, told.chosen or "nobody", torch


def markdown(explanation: Explanation) -> str:
    """Return the verdicts as Markdown: a table for each problem."""
    from mlbackends_cli.markdown import code, literal, table

    parts = []
    for told in explanation.problems:
        who, ours, torch = _row(told)
        parts.append(f"### {code(who, in_table=False)}\n")
        parts.append(
            f"On {literal(told.device)} ({literal(told.device_title)}) mlbackends would take"
            f" **{literal(ours)}**, {literal(_torch(told, explanation))} **{literal(torch)}**.\n"
        )
        rows = [
            (literal(side), literal(each.backend), "yes" if each.usable else "no", _reasons(each))
            for side, verdicts in (
                ("mlbackends", told.verdicts),
                (f"torch {explanation.torch}", told.torch_verdicts),
            )
            for each in verdicts
        ]
        parts.append(table(("whose", "backend", "can", "why not"), rows) + "\n")
    return "\n".join(parts)


def _reasons(verdict: Verdict) -> str:
    from mlbackends_cli.markdown import literal

    return "<br>".join(
        literal(f"{each.message} [{each.code}]{f' → {each.hint}' if each.hint else ''}")
        for each in verdict.reasons
    )


def _bold(text: str, page: Page) -> str:
    return f"\033[1m{text}\033[0m" if page.color else text


def _wrapped(text: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, len(others) + 24),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )
