"""What an inference engine chooses for a model, for people."""

from collections.abc import Sequence

from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.model.explanation import EngineCall, EngineExplanation, EngineLayers
from mlbackends_cli.attention.explain_page import MARKS, WIDEST, bound_text
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import literal, table
from mlbackends_cli.text.plain import binary_size


def printed(explanation: EngineExplanation, page: Page) -> str:
    """Return the verdicts for a terminal."""
    from mlbackends_cli.text.layout import Cell, lines, wrapped  # with rich

    narrow = replace(page, width=min(page.width, WIDEST))
    found = [
        page.styled(f"{explanation.engine} {explanation.release} with {explanation.model}", "bold"),
        f"on {explanation.device}: {explanation.device_title}",
    ]
    for layers in explanation.layers:
        title, choice = _title(layers), _choice(layers)
        if len(title) + len(choice) + 3 <= narrow.width:
            found += ["", f"  {title} {page.styled(choice, 'bold')}"]
        else:
            found += ["", *(f"  {line}" for line in wrapped(title, narrow.width - 2))]
            found += (page.styled(f"    {line}", "bold") for line in wrapped(choice, narrow.width - 4))
        found += (page.styled(f"  {line}", "dim") for line in wrapped(_facts(layers), narrow.width - 2))
        rows = [[Cell(*MARKS[can]), Cell(name), Cell(why)] for name, can, why in _verdicts(layers)]
        found += lines(rows, narrow, indent=4)
        if layers.call:
            found += (f"  {line}" for line in wrapped(_call(layers.call), narrow.width - 2))
    found += [
        "",
        *(page.styled(line, "dim") for line in wrapped(f"assumed: {explanation.assumed}", narrow.width)),
    ]
    return page.fitted("\n".join(found) + "\n")


def markdown(explanation: EngineExplanation, _page: Page) -> str:
    """Return the verdicts as Markdown: a table for each kind of layer."""
    parts = [f"### {literal(f'{explanation.engine} {explanation.release} on {explanation.device}')}"]
    for layers in explanation.layers:
        rows = [
            (literal(name), can, "<br>".join(map(literal, why.split("\n"))))
            for name, can, why in _verdicts(layers)
        ]
        parts += [
            f"{literal(_title(layers))} **{literal(_choice(layers))}**.",
            table(("backend", "can", "why"), rows),
        ]
        parts += [literal(_call(layers.call))] if layers.call else []
    return "\n\n".join([*parts, literal(f"Assumed: {explanation.assumed}.")]) + "\n"


def _verdicts(layers: EngineLayers) -> list[tuple[str, str, str]]:
    """Return the backends, whether each can, and why not; at last those that torch alone chooses among."""
    theirs = layers.call.verdicts if layers.call else ()
    is_torch = [verdict.backend for verdict in theirs] == [verdict.backend for verdict in layers.verdicts]
    found: list[tuple[str, str, list[str]]] = []
    for own in () if is_torch else layers.verdicts:
        can = "no" if own.reasons else "not known" if own.undecided else "yes, but" if own.warnings else "yes"
        why = _lines(own.reasons or own.undecided) or _can(_lines(own.warnings))
        found.append((own.backend, can, why))
    for verdict in theirs:
        reports = [report.text for report in verdict.known_wrong]
        can = "no" if verdict.reasons else "yes, but" if reports else "yes"
        name = verdict.backend if is_torch else f"torch's {verdict.backend}"
        found.append((name, can, _lines(verdict.reasons) or _can(reports)))
    return [(name, can, "\n".join(why)) for name, can, why in found]


def _can(but: list[str]) -> list[str]:
    return ["can, but" if but else "can", *but]


def _lines(reasons: Sequence[Reason]) -> list[str]:
    return [f"{reason.message} [{reason.code}]" for reason in reasons]


def _title(layers: EngineLayers) -> str:
    article = "a " if layers.kind.startswith("sliding window") else ""
    would = "its choice is not known:" if layers.unknown_reason else "it would choose"
    return f"layers with {article}{layers.kind}: {would}"


def _choice(layers: EngineLayers) -> str:
    return layers.chosen or layers.unknown_reason or "none: it would raise an error"


def _call(call: EngineCall) -> str:
    """Return what torch does with a call, and what it costs at least, as sentences."""
    found = [f"torch {call.torch} computes it with {call.chosen or 'nothing: it raises an error'}"]
    found *= bool(call.torch)
    found = [call.unknown_reason] if call.unknown_reason else found
    found += [f"the plain formula holds at least {binary_size(call.score_bytes)} of scores"] * bool(
        call.score_bytes
    )
    found += [bound_text(call.bound, "--backward" in call.text)] if call.bound else []
    return "; ".join([*found, f"this is: backends sdpa explain {call.text}"])


#: How facts are shown that are not false.
_FACTS = {
    "head_size": "head size {}",
    "dtype": "{}",
    "kv_dtype": "KV cache {}",
    "block_size": "blocks of {}",
    "mla": "MLA",
    "sparse": "sparse",
    "sinks": "attention sinks",
    "asked": "asked for {}",
    "tokens": "{} tokens",
    "mask": "mask {}",
    "backward": "with gradients",
    "cuda": "CUDA {}",
    "cudnn": "cuDNN {}",
    "value_size": "values of {}",
    "softcap": "softcap",
}
#: What is not shown: nothing is asked for, or there is no mask.
_HIDDEN = (None, False, "none", "not asked")


def _facts(layers: EngineLayers) -> str:
    return ", ".join(
        _FACTS[name].format(value) for name, value in layers.facts.items() if value not in _HIDDEN
    )
