"""Show which backends support a problem, on this machine or another; nothing is computed.

The page has all reasons of all backends, the backend that mlbackends would choose, and torch's choice.
DEVICE need not be present: its rules are data. The switches of torch.backends apply as they are set
in this environment. If one of our CUDA backends supports a problem, that does not mean that it has run
there: none has run on a GPU yet. Exit 0 if one of ours supports every problem, else 1.

Examples:
  backends sdpa explain --shape 2,8,1024,64
  backends sdpa explain --shape 2,8,1024,64 --dtype float16 --causal --device sm80,sm90,gfx942
  backends sdpa explain --shape 2,8,1024,200 --dtype float16 --backward --device sm86
  backends sdpa explain --shape 1,32,1,128 --kv-len 4096 --kv-heads 8 --gqa --format json
"""

from typing import Any

from msgspec.structs import replace

from mlbackends.base.errors import some
from mlbackends.model.explanation import Explained, Explanation
from mlbackends.model.problem import Verdict
from mlbackends.sdpa import explaining
from mlbackends_cli import exits, formats
from mlbackends_cli.attention.options import FORMAT, backend_option, problem_options, wordings_of
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import option
from mlbackends_cli.output import log
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import code, literal, table


@documented()
@problem_options
@backend_option("Explain only this backend of ours (repeatable).")
@backend_option("Exit 1 unless this backend supports every problem.", "--require required NAME")
@option("--all details", "Print all reasons, even for many problems.")
@FORMAT
def command(names: tuple[str, ...], required: tuple[str, ...], details: bool, **words: Any) -> int:
    wordings = wordings_of(words)
    explaining.chosen_backends(required)
    explanation = explaining.explain(wordings, (*names, *required) if names else ())
    own = {"table": printed, "markdown": markdown}
    formats.show(explanation, own, details=details, **words)
    is_met = all(problem.answered for problem in explanation.problems)
    for name in dict.fromkeys(required):
        unmet = {
            problem.text: "may" if verdict.undecided else "does"
            for problem in explanation.problems
            for verdict in problem.verdicts
            if verdict.backend == name and not verdict.usable
        }
        if unmet:
            is_met, word = False, "does" if "does" in unmet.values() else "may"
            log(f"{name} is required, but {word} not support {some(tuple(unmet))}")
    return exits.YES if is_met else exits.NO


_WIDEST = 110
#: Up to this number of problems, all reasons are printed; for more, only the choices, unless --all is given.
_FEW = 4


def printed(explanation: Explanation, page: Page) -> str:
    """Return the verdicts for a terminal; for many problems, only the choices."""
    from mlbackends_cli.text.layout import Cell, grid, lines, widths, wrapped  # with rich

    narrow = replace(page, width=min(page.width, _WIDEST))
    found: list[str] = []
    hints: set[str] = set()
    if len(explanation.problems) > _FEW and not page.details:
        rows = [[*map(Cell, _choices(problem))] for problem in explanation.problems]
        heads = ("problem", f"torch {explanation.torch}", "mlbackends")
        rows.insert(0, [Cell(head, "bold") for head in heads])
        ends = [
            *wrapped(explanation.torch_basis, page.width),
            "--all prints the reasons for each problem.",
        ]
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
                [Cell(*_MARKS[_state(verdict)]), Cell(verdict.backend), Cell(_text(verdict, hints))]
                for verdict in verdicts
                if not verdict.is_elsewhere
            ]
            if elsewhere := [verdict.backend for verdict in verdicts if verdict.is_elsewhere]:
                text = f"not for tensors on {problem.problem.platform} [wrong-device]"
                rows.append([Cell("–", "dim"), Cell(", ".join(elsewhere)), Cell(text)])
            found += lines(rows, narrow, indent=4)
        found.append("")
    found += (page.styled(line, "dim") for line in wrapped(explanation.torch_basis, page.width))
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
    return f"torch {explanation.torch}{cudnn}"


def _ours(explained: Explained) -> str:
    chosen = explained.chosen
    is_missing = any(verdict.missing for verdict in explained.verdicts if verdict.backend == chosen)
    return f"{chosen}, if installed" if is_missing else chosen


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
