"""Show which backends support a problem, on this machine or another; nothing is computed.

The page has all reasons of all backends, the backend that mlbackends would choose, and torch's choice.
DEVICE need not be present: its rules are data. The switches of torch.backends apply as they are set
in this environment. If one of our CUDA backends supports a problem, that does not mean that it has run
there: none has run on a GPU yet. Exit 0 if one of ours supports every problem, else 1.

Examples:
  backends sdpa explain --shape 2,8,1024,64
  backends sdpa explain --shape 2,8,1024,64 --dtype float16 --causal --device sm80,sm90,gfx942
  backends sdpa explain --shape 2,8,1024,200 --dtype float16 --backward --device sm86
  backends sdpa explain --shape 2,8,1,64 --kv-len 128 --device b200 --torch 2.13 --cudnn 9.20
  backends sdpa explain --shape 2,8,1024,64 --matrix --torch 2.5..2.15
  backends sdpa explain --shape 1,32,1,128 --kv-len 4096 --kv-heads 8 --gqa --format json
  backends sdpa explain --engine vllm --model ./config.json --device h100 --kv-dtype fp8
  backends sdpa explain --engine sglang --model ./config.json --device b200 --block-size 1
  backends sdpa explain --engine transformer-engine --model ./config.json --device a100 --with flash-attn
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

import click
from msgspec.structs import replace

from mlbackends.base.errors import BadInput, some
from mlbackends.model.explanation import Explained, Explanation
from mlbackends.model.problem import Verdict
from mlbackends.sdpa import engines, explaining, problem_text
from mlbackends.sdpa.named_devices import GPUS
from mlbackends_cli import exits, formats
from mlbackends_cli.attention import engine_page
from mlbackends_cli.attention.bounds import bound_text, time_text
from mlbackends_cli.attention.options import (
    FORMAT,
    backend_option,
    problem_options,
    versions_of,
    wordings_of,
)
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import VERSIONS, completing, option, typed
from mlbackends_cli.output import log
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import code, literal, table


@documented()
@problem_options
@backend_option("Explain only this backend of ours (repeatable).")
@backend_option("Exit 1 unless this backend supports every problem.", "--require required NAME")
@VERSIONS
@option(
    "--engine NAME[==VERSION]",
    f"Explain what an inference engine chooses for a model instead of a problem: {', '.join(engines.NAMES)}.",
    shell_complete=completing(partial(iter, engines.NAMES)),
)
@option("--model FILE", "The model's config.json, or its folder; for --engine.")
@option("--kv-dtype TYPE", "The type of the KV cache, as the engine names it; for --engine.", usual="auto")
@option("--block-size N", "Tokens in a block of the KV cache; for --engine.", kind=click.IntRange(1, 65536))
@option(
    "--attention asked NAME", "The attention that the engine is asked for by name, such as flex_attention."
)
@option(
    "--with PACKAGE[==VERSION]",
    "Assume that this package is installed (repeatable); for --engine.",
    many=True,
)
@option("--matrix", "Print a table of devices, and of versions of torch, against backends.")
@option("--all details", "Print all reasons, even for many problems.")
@FORMAT
def command(
    names: tuple[str, ...],
    required: tuple[str, ...],
    details: bool,
    matrix: bool,
    engine: str | None,
    model: str | None,
    kv_dtype: str,
    block_size: int | None,
    asked: str | None,
    **words: Any,
) -> int:
    packages = words.pop("with")
    torch, versions = versions_of(words)
    if engine:
        if len(torch) > 1:
            raise BadInput("--engine needs one release of torch", f"such as --torch {torch[-1]}")
        versions |= {"torch": torch[0]} if torch else {}
        given = {"kv_dtype": kv_dtype, "block_size": block_size, "asked": asked or "not asked"}
        return _engine(engine, model, versions, packages, given)
    if model or block_size or packages or asked or kv_dtype != "auto":
        raise BadInput(
            "--model, --kv-dtype, --block-size, --attention and --with need an engine", "add --engine vllm"
        )
    if matrix and not words["device"]:
        words["device"] = (",".join(GPUS),)
    wordings = wordings_of(words)
    explaining.chosen_backends(required)
    among = (*names, *required) if names else ()
    explanation = explaining.explain(wordings, among, torch, versions)
    own = {"table": printed, "markdown": markdown}
    if matrix:
        own = {"table": matrix_text, "markdown": matrix_markdown}
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


_LONGEST_PROMPT = 1 << 24
#: What --engine goes together with.
_WITH_ENGINE = {"engine", "model", "device", "kv_dtype", "block_size", "asked", "with", "torch", "cudnn"}
_WITH_ENGINE |= {"cuda", "dtype", "kv_len", "mask", "backward", "form", "output", "color"}


def _engine(
    engine: str, model: str | None, versions: dict[str, str], packages: Sequence[str], given: dict[str, Any]
) -> int:
    """Print what an engine chooses for a model."""
    for name, typed_option in typed().items():
        if name not in _WITH_ENGINE:
            raise BadInput(f"{typed_option} is for a problem, --engine for a model", "leave one of them out")
    words = click.get_current_context().params
    typed_words = {
        name: list(words[name.replace("-", "_")]) for name in ("device", "dtype", "kv-len", "mask")
    }
    wording, *more = problem_text.wordings({"shape": ["1,1"], **typed_words})
    if not model or not words["device"] or more:
        needed = "--model FILE" if not model else "one --device, and one value of each option"
        raise BadInput(f"--engine needs {needed}", "such as --engine vllm --model config.json --device h100")
    if wording.mask not in ("none", "bool", "float"):
        raise BadInput(f"--mask {wording.mask} is for a problem", "write --mask bool or --mask float")
    if wording.kv_len is not None and not 2 <= wording.kv_len <= _LONGEST_PROMPT:
        raise BadInput(f"--kv-len {wording.kv_len}: a prompt has 2 to {_LONGEST_PROMPT} tokens")
    given |= {"mask": wording.mask, "backward": words["backward"]}
    given |= {"dtype": wording.dtype} if words["dtype"] else {}
    given |= {"tokens": wording.kv_len} if wording.kv_len is not None else {}
    installed = {name.strip(): value for name, _, value in (text.partition("==") for text in packages)}
    found = engines.explain(engine, model, words["device"][0], versions, installed, **given)
    own = {"table": engine_page.printed, "markdown": engine_page.markdown}
    formats.show(found, own, form=words["form"], output=words["output"], color=words["color"])
    return exits.YES if found.answered else exits.NO


_WIDEST = 110
#: Up to this number of problems, all reasons are printed; for more, only the choices, unless --all is given.
_FEW = 4


def _bound_text(explained: Explained) -> str:
    return bound_text(explained.bound, explained.problem.wants_gradient) if explained.bound else ""


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
            code, *signs = [Cell(*_MARKS.get(mark, ("–", "dim"))) for mark in (wheel, *marks)]
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

    narrow = replace(page, width=min(page.width, _WIDEST))
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
                [Cell(*_MARKS[_state(verdict)]), Cell(verdict.backend), Cell(_text(verdict, hints))]
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
    return f"torch {explained.torch or explanation.torch}{cudnn}"


def _ours(explained: Explained) -> str:
    chosen = explained.chosen
    is_missing = any(verdict.missing for verdict in explained.verdicts if verdict.backend == chosen)
    return f"{chosen}, if installed" if is_missing else chosen


def _brief(explained: Explained) -> tuple[str, ...]:
    text, torch, ours = _choices(explained)
    chosen = [verdict for verdict in explained.torch_verdicts if verdict.backend == torch]
    wrong = ", but known wrong" if any(verdict.known_wrong for verdict in chosen) else ""
    least = time_text(explained.bound.seconds) if explained.bound else "not known"
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
