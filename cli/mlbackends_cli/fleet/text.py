"""A fleet as text: numbers of nodes by status, then kinds of nodes with the deviations in each."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from mlbackends.base.errors import counted
from mlbackends.fleet.nodesets import folded
from mlbackends.model.fleet import (
    RECORD,
    Change,
    Deviation,
    Difference,
    Fleet,
    FleetDifference,
    FleetFacts,
    Kind,
    Status,
)
from mlbackends.model.records import FactValue
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import literal
from mlbackends_cli.text.markdown import table as markdown_table
from mlbackends_cli.text.plain import amount, one_line, quantity, without_commands

_MOST_RANGES = 12
_MOST_CAUSES = 6
_MOST_ALSO = 3
_LONGEST = 80


class Cause(NamedTuple):
    """Facts that a deviation has otherwise by the same two values."""

    name: str
    others: tuple[str, ...]
    value: str
    usual: str


def headline(fleet: Fleet) -> str:
    """Return the number of nodes, of those that reported, and the statuses of the others."""
    counts = Counter({Status.OK: fleet.reported})
    for group in fleet.silent:
        counts[group.status] += len(group.nodes)
    words = [f"{counts[Status.OK]:,} reported"]
    words += [f"{counts[status]:,} {status}" for status in Status if status in counts][1:]
    forms = counted(len(fleet.configurations), "configuration")
    return f"{number_of(counts.total())}: {', '.join(words)}; {forms}"


def number_of(nodes: int) -> str:
    """Return a number of nodes, in words."""
    return f"{nodes:,} node{'' if nodes == 1 else 's'}"


def heading(kind: Kind) -> str:
    """Return the number of nodes of a kind, and what they have in common."""
    values = [
        f"{value} records" if name == RECORD else shown(name, value)
        for name, value in kind.title.items()
        if value is not None
    ]
    return ": ".join(filter(None, (number_of(kind.nodes), ", ".join(filter(None, values)))))


def agreement(kind: Kind, compared_with: str) -> str:
    """Return the number of nodes of a kind that do not deviate."""
    return f"{kind.alike:,} of {kind.nodes:,} agree with {one_line(compared_with)} in everything"


def nodes_of(nodes: Sequence[str], *, whole: bool = False) -> str:
    """Return nodes as a folded node set, the first ranges of a long one."""
    return folded(nodes, 0 if whole else _MOST_RANGES)


def causes(deviation: Deviation) -> list[Cause]:
    """Return the differences of a deviation; those between the same two values as one.

    Where there are more or fewer devices, what else is so of as many devices goes without saying.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    counts = {
        f"{difference.name}."
        for difference in deviation.differences
        if difference.name.endswith(".devices")
    }
    for difference in deviation.differences:
        both = (difference.value, difference.usual)
        if difference.name.startswith(tuple(counts)) and all(
            isinstance(table, dict) for table in both
        ):
            was, now = ({*table} for table in both if isinstance(table, dict))
            if was == now:
                continue
        groups.setdefault(_values(difference), []).append(difference.name)
    return [
        Cause(one_line(first), tuple(map(one_line, others)), value, usual)
        for (value, usual), (first, *others) in groups.items()
    ]


def sentence(cause: Cause, most: int = _MOST_ALSO) -> str:
    """Return one difference on one line."""
    more = len(cause.others) - most
    names = ", ".join(cause.others[:most]) + (f" and {more} more" if more > 0 else "")
    also = f"; also {names}" if names else ""
    return f"{cause.name}: {cause.value} ({cause.usual}){also}"


def far_figures(fleet: Fleet) -> dict[str, list[str]]:
    """Return, by node, the metrics that are far from those of the others, the farthest first, in words."""
    found: dict[str, list[tuple[float, str]]] = {}
    for outlier in fleet.outliers:
        ratio = outlier.value / outlier.median if outlier.median else 0.0
        times = f"{ratio:.3g} times " if ratio > 0 else ""
        value, usual = quantity(outlier.name, outlier.value), quantity(outlier.name, outlier.median)
        parts = re.findall(r"\[([^\]]*)\]", outlier.name)
        name = " ".join([*parts, outlier.name.rpartition("]")[2].lstrip(".")])
        text = f"{name}: {value}, {times}the median of {outlier.nodes:,} nodes ({usual})"
        distance = max(ratio, 1 / ratio) if ratio > 0 else math.inf
        found.setdefault(outlier.node, []).append((distance, one_line(text)))
    nodes = sorted(found.items(), key=lambda item: -max(item[1])[0])
    return {node: [text for _, text in sorted(texts, reverse=True)] for node, texts in nodes}


def _values(difference: Difference) -> tuple[str, str]:
    value, usual, name = difference.value, difference.usual, difference.name
    if isinstance(value, list) and isinstance(usual, list):
        # Of two long lists, only the differences.
        texts = [{shown(name, item): None for item in side} for side in (value, usual)]
        extra = [text for text in texts[0] if text not in texts[1]]
        lacking = [text for text in texts[1] if text not in texts[0]]
        both = [("with", extra), ("without", lacking)]
        if extra or lacking:
            parts = (f"{word} {_cut(', '.join(some))}" for word, some in both if some)
            return " and ".join(parts), "compared with the others"
    return shown(name, value), f"others {shown(name, usual)}"


def shown(name: str, value: FactValue | None) -> str:
    """Return a value as text; for devices, their numbers."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        return _cut(", ".join(f"{count}x {text}" for text, count in value.items()))
    if isinstance(value, list):
        texts = (
            item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in value
        )
        return _cut(", ".join(texts) or "empty")
    return _cut(amount(name, value))


def _cut(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


#: A title, and below it rows of a few words and a text.
_Part = tuple[str, list[tuple[str, str]]]


def _printed(parts: Iterable[_Part], notes: Iterable[str], page: Page) -> str:
    """Return parts with their titles for a terminal, and notes below them."""
    from mlbackends_cli.text.layout import Cell, lines  # rich, which JSON does not need

    found: list[str] = []
    for title, rows in parts:
        cells = [[Cell(word), Cell(text)] for word, text in rows]
        found += [
            *lines([[Cell(one_line(title), "bold")]], page, indent=0),
            *lines(cells, page),
            "",
        ]
    found += (line for note in notes for line in lines([[Cell(one_line(note))]], page, indent=0))
    text = "\n".join(found).rstrip("\n") + "\n"
    return page.fitted(without_commands(text, page.sign("·", ".")))


def table(fleet: Fleet, page: Page) -> str:
    """Return the fleet for a terminal."""
    rows = []
    for group in fleet.silent:
        nodes = nodes_of(group.nodes, whole=page.details)
        rows.append(
            (str(group.status), f"{number_of(len(group.nodes))}: {nodes}  {one_line(group.error)}")
        )
    for hazard in fleet.hazards:
        check, nodes = hazard.check, nodes_of(hazard.nodes, whole=page.details)
        text = f"{number_of(len(hazard.nodes))}: {one_line(check.message or check.title)} [{check.code}]"
        rows.append((str(check.severity), f"{text}\n{nodes}"))
    for node, (first, *others) in far_figures(fleet).items():
        also = f"; also {counted(len(others), 'other figure')}" if others else ""
        rows.append((node, "\n".join((first, *others)) if page.details else first + also))
    parts = [(headline(fleet), rows)]
    for kind in fleet.kinds:
        rows = [("", agreement(kind, fleet.compared_with))]
        for deviation in kind.deviations:
            found = causes(deviation)
            most = len(found) if page.details else _MOST_CAUSES
            texts = [nodes_of(deviation.nodes, whole=page.details)]
            texts += [
                sentence(cause, len(cause.others) if page.details else _MOST_ALSO)
                for cause in found[:most]
            ]
            texts += [f"and {len(found) - most} more; --all shows them"] if found[most:] else []
            rows.append((f"{len(deviation.nodes):,} of {kind.nodes:,}", "\n".join(texts)))
        if kind.not_compared:
            most = len(kind.not_compared) if page.details else _MOST_CAUSES
            names, more = ", ".join(kind.not_compared[:most]), len(kind.not_compared) - most
            names += f" and {more} more" if more > 0 else ""
            rows.append(
                ("", f"not compared, nearly every node has its own value: {one_line(names)}")
            )
        parts.append((heading(kind), rows))
    return _printed(parts, fleet.notes, page)


def markdown(fleet: Fleet, page: Page) -> str:
    """Return the fleet for a ticket."""
    parts = [f"**{literal(headline(fleet))}**"]
    rows = [
        (
            str(group.status),
            str(len(group.nodes)),
            literal(nodes_of(group.nodes)),
            literal(group.error),
        )
        for group in fleet.silent
    ]
    parts.append(markdown_table(("status", "nodes", "which", "why"), rows))
    hazards = [
        (
            str(hazard.check.severity),
            str(len(hazard.nodes)),
            literal(hazard.check.message or hazard.check.title),
            literal(nodes_of(hazard.nodes, whole=page.details)),
        )
        for hazard in fleet.hazards
    ]
    parts.append(markdown_table(("severity", "nodes", "hazard", "which"), hazards))
    figures = [
        (literal(node), literal(text))
        for node, texts in far_figures(fleet).items()
        for text in texts
    ]
    parts.append(markdown_table(("node", "figure"), figures))
    for kind in fleet.kinds:
        parts.append(f"### {literal(heading(kind))}")
        parts.append(literal(agreement(kind, fleet.compared_with)))
        deviations = [
            (
                str(len(deviation.nodes)) if not at else "",
                literal(nodes_of(deviation.nodes, whole=page.details)) if not at else "",
                literal(", ".join((cause.name, *cause.others[:_MOST_ALSO]))),
                literal(cause.value),
                literal(cause.usual),
            )
            for deviation in kind.deviations
            for at, cause in enumerate(causes(deviation)[: None if page.details else _MOST_CAUSES])
        ]
        parts.append(markdown_table(("nodes", "which", "differ in", "is", "usual"), deviations))
    parts += map(literal, fleet.notes)
    return "\n\n".join(filter(None, parts)) + "\n"


# ---- facts and changes ---------------------------------------------------------------------------


def facts_table(facts: FleetFacts, page: Page) -> str:
    """Return facts with their values for a terminal, the rarest first."""
    parts = []
    for fact in facts.facts:
        rows = [
            (
                f"{len(holders.nodes):>6,}",
                f"{shown(fact.name, holders.value)}  {nodes_of(holders.nodes, whole=page.details)}",
            )
            for holders in fact.values
        ]
        parts.append((fact.name, rows))
    return _printed(parts, [] if parts else ["every fact has the same value on all nodes"], page)


def facts_markdown(facts: FleetFacts, page: Page) -> str:
    """Return facts with their values for a ticket."""
    rows = [
        (
            literal(fact.name) if not at else "",
            str(len(holders.nodes)),
            literal(shown(fact.name, holders.value)),
            literal(nodes_of(holders.nodes, whole=page.details)),
        )
        for fact in facts.facts
        for at, holders in enumerate(fact.values)
    ]
    return markdown_table(("fact", "nodes", "value", "which"), rows) + "\n"


def _steps(change: Change) -> list[tuple[str, str]]:
    """Return the steps of a change as (name, values); those between the same two values as one."""
    groups: dict[str, list[str]] = {}
    for step in change.steps:
        values = f"{shown(step.name, step.before)} → {shown(step.name, step.after)}"
        groups.setdefault(values, []).append(one_line(step.name))
    found = []
    for values, (first, *others) in groups.items():
        more = len(others) - _MOST_ALSO
        also = ", ".join(others[:_MOST_ALSO]) + (f" and {more} more" if more > 0 else "")
        found.append((first, values + (f"; also {also}" if also else "")))
    return found


def _comings(difference: FleetDifference, *, whole: bool) -> Iterator[tuple[str, str]]:
    """Yield what became of nodes that did not report both times, as (word, sentence)."""
    if difference.new:
        yield ("new", f"{number_of(len(difference.new))}: {nodes_of(difference.new, whole=whole)}")
    for group in difference.silent:
        nodes = f"{number_of(len(group.nodes))}: {nodes_of(group.nodes, whole=whole)}"
        yield str(group.status), f"{nodes}: {one_line(group.error)}"


def changes_table(difference: FleetDifference, page: Page) -> str:
    """Return what became of a fleet for a terminal."""
    rows = [*_comings(difference, whole=page.details)]
    parts = [(f"{number_of(difference.nodes)} reported both times", rows)]
    for change in difference.changes:
        nodes = nodes_of(change.nodes, whole=page.details)
        steps = _steps(change)
        most = len(steps) if page.details else _MOST_CAUSES
        rows = steps[:most]
        rows += [("", f"and {len(steps) - most} more; --all shows them")] if steps[most:] else []
        if change.left_behind:
            left = nodes_of(change.left_behind, whole=page.details)
            rows.append(("", f"{len(change.left_behind):,} left behind: {left}"))
        title = f"on {len(change.nodes):,} of {difference.nodes:,} nodes: {nodes}"
        parts.append((title, rows))
    unchanged = [] if difference.changes else ["no node changed"]
    return _printed(parts, [*unchanged, *difference.notes], page)


def changes_markdown(difference: FleetDifference, page: Page) -> str:
    """Return what became of a fleet for a ticket."""
    parts = [f"**{number_of(difference.nodes)} reported both times**"]
    comings = [(word, literal(text)) for word, text in _comings(difference, whole=page.details)]
    parts.append(markdown_table(("what", "which"), comings))
    rows = [
        (
            str(len(change.nodes)) if not at else "",
            literal(name),
            literal(text),
            literal(nodes_of(change.left_behind, whole=page.details)) if not at else "",
        )
        for change in difference.changes
        for at, (name, text) in enumerate(_steps(change)[: None if page.details else _MOST_CAUSES])
    ]
    parts.append(markdown_table(("nodes", "fact", "change", "left behind"), rows))
    parts += map(literal, difference.notes)
    return "\n\n".join(filter(None, parts)) + "\n"
