"""What an inference engine chooses for a model, for people."""

from msgspec.structs import replace

from mlbackends.model.explanation import EngineExplanation, EngineLayers, EngineVerdict
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import literal, table

_WIDEST = 110


def printed(explanation: EngineExplanation, page: Page) -> str:
    """Return the verdicts for a terminal."""
    from mlbackends_cli.text.layout import Cell, lines, wrapped  # with rich

    narrow = replace(page, width=min(page.width, _WIDEST))
    found = [
        page.styled(f"{explanation.engine} {explanation.release} with {explanation.model}", "bold"),
        f"on {explanation.device}: {explanation.device_title}",
    ]
    for layers in explanation.layers:
        facts = f"  {_facts(layers)}"
        found += ["", f"  {_title(layers)} {page.styled(_choice(layers), 'bold')}", page.styled(facts, "dim")]
        rows = [
            [
                Cell("✗", "red") if verdict.reasons else Cell("✓", "green"),
                Cell(verdict.backend),
                Cell(_why(verdict)),
            ]
            for verdict in layers.verdicts
        ]
        found += lines(rows, narrow, indent=4)
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
            (
                literal(verdict.backend),
                "no" if verdict.reasons else "yes",
                literal(_why(verdict)).replace("\n", "<br>"),
            )
            for verdict in layers.verdicts
        ]
        parts += [
            f"{literal(_title(layers))} **{literal(_choice(layers))}**.",
            table(("backend", "can", "why"), rows),
        ]
    return "\n\n".join([*parts, literal(f"Assumed: {explanation.assumed}.")]) + "\n"


def _title(layers: EngineLayers) -> str:
    return f"layers with {'a ' if layers.kind == 'sliding window' else ''}{layers.kind}: it would choose"


def _choice(layers: EngineLayers) -> str:
    return layers.chosen or "none: it would raise an error"


def _facts(layers: EngineLayers) -> str:
    facts = layers.facts
    said = [f"head size {facts['head_size']}", str(facts["dtype"]), f"KV cache {facts['kv_dtype']}"]
    said += [f"blocks of {facts['block_size']}"] if facts["block_size"] else []
    words = {"mla": "MLA", "sparse": "sparse", "sinks": "attention sinks"}
    return ", ".join([*said, *(word for name, word in words.items() if facts[name])])


def _why(verdict: EngineVerdict) -> str:
    return "\n".join(f"{reason.message} [{reason.code}]" for reason in verdict.reasons) or "can"
