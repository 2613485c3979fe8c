"""A fleet as text: numbers of nodes by status, then kinds of nodes with the deviations in each."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mlbackends.base.errors import counted
from mlbackends.fleet.collection import MOST_VALUES
from mlbackends.fleet.nodesets import folded
from mlbackends.fleet.records import merged
from mlbackends.model.fleet import (
    RECORD,
    Change,
    Deviation,
    Difference,
    Fleet,
    FleetDifference,
    FleetFacts,
    Hazard,
    Kind,
    Split,
    Status,
)
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import literal
from mlbackends_cli.text.markdown import table as markdown_table
from mlbackends_cli.text.plain import amount, one_line, quantity, without_commands

_MOST_RANGES = 12
_MOST_CAUSES = 6
_MOST_ALSO = 3
_LONGEST = 80
#: The most groups of a split that are shown.
_MOST_GROUPS = 8
#: The characters before the first difference of two long texts.
_BEFORE = 20


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
    own = number_of(kind.nodes - len(kind.others))
    text = ": ".join(filter(None, (own, ", ".join(filter(None, values)))))
    others = f"{len(kind.others):,} of another kind ({nodes_of(kind.others)})"
    return f"{text}; and {others}" if kind.others else text


def agreement(kind: Kind, compared_with: str) -> str:
    """Return the number of nodes of a kind that do not deviate."""
    scope = "everything that is compared" if kind.not_compared else "everything"
    if kind.splits:
        facts = sum(len(split.facts) for split in kind.splits)
        scope = f"everything that has one; {counted(facts, 'fact')} {'has' if facts == 1 else 'have'} none"
    return f"{kind.alike:,} of {kind.nodes:,} agree with {one_line(compared_with)} in {scope}"


def left_out(fleet: Fleet, most: int = 0) -> list[str]:
    """Return which facts are not compared and why, in sentences. most: the number of names; 0 for all."""
    many = f"more than {MOST_VALUES:,} values, so each node is presumed to have its own"
    found = [f"not compared, {many}: {_some(fleet.varying, most)}"] if fleet.varying else []
    if names := {name: None for kind in fleet.kinds for name in kind.not_compared}:
        why = "values for more than half of 50 or more nodes, so each is presumed to have its own"
        found.append(f"not compared, {why}: {_some([*names], most)}")
    return found


def hazards_of(fleet: Fleet) -> list[Hazard]:
    """Return the hazards; those that differ only in numbers are one, which lists the numbers."""
    return merged(fleet.hazards)


def flagged(fleet: Fleet) -> list[tuple[str, list[str]]]:
    """Return why whole reports are suspect, with the nodes."""
    found: dict[str, list[str]] = {}
    for node, why in fleet.flagged.items():
        found.setdefault(f"it reported, but: {one_line(why)}", []).append(node)
    return [*found.items()]


def groups_of(kind: Kind, split: Split, most: int) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """Return the groups of a split: the number of nodes, the nodes, and lines with their values.

    most: the number of lines for facts; 0 for all.
    """
    rows = []
    for at, nodes in enumerate(split.groups):
        values: dict[str, list[str]] = {}
        for name, of_groups in split.facts.items():
            values.setdefault(unlike(name, *of_groups)[at], []).append(one_line(name))
        lines = [f"{_some(names, _MOST_ALSO)}: {text}" for text, names in values.items()]
        if most and lines[most:]:
            lines[most:] = [f"and {len(lines) - most} more; --all shows them"]
        rows.append((f"{len(nodes):,} of {kind.nodes:,}", nodes, lines))
    return rows


def _some(names: Sequence[str], most: int) -> str:
    """Return the first names, and the number of the others. most: 0 for all."""
    more = len(names) - most if most else 0
    shown_names = ", ".join(map(one_line, names[: most or None]))
    return shown_names + (f" and {more} more" if more > 0 else "")


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
    also = f"; also {_some(cause.others, most)}" if cause.others and most else ""
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
    value, usual = unlike(difference.name, difference.value, difference.usual)
    return value, f"others {usual}"


def unlike(name: str, *values: Any) -> list[str]:
    """Return values as texts that show what differs: of lists only the items, of tables only the fields."""
    lists = [value for value in values if isinstance(value, list)]
    own = [[item for item in value if any(item not in other for other in lists)] for value in lists]
    if len(lists) < len(values) or not any(own):
        texts = [_whole(name, value) for value in values]
    elif len({len(items) for items in own}) == 1 and all(
        isinstance(item, dict) for items in own for item in items
    ):
        columns = [_fields_unlike(tables) for tables in zip(*own, strict=True)]
        texts = [_whole(name, [*row]) for row in zip(*columns, strict=True)]
    else:
        rest = _whole(name, next(filter(None, own)))
        rest = rest if len(own) == 2 else "what others have"
        texts = [f"with {_whole(name, items)}" if items else f"without {rest}" for items in own]
    if len({text[:_LONGEST] for text in texts}) < len({*texts}):  # they begin alike
        alike = next(at for at, signs in enumerate(zip(*texts, strict=False)) if len({*signs}) > 1)
        texts = [f"…{text[max(0, alike - _BEFORE) :]}" for text in texts]
    return [*map(_cut, texts)]


def _fields_unlike(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first field of each table, which names it, and those that differ."""
    differing = {
        key
        for table in tables
        for key in table
        if any(other.get(key) != table[key] for other in tables)
    }
    return [
        {key: value for key, value in table.items() if key in differing or key == next(iter(table))}
        for table in tables
    ]


def shown(name: str, value: Any) -> str:
    """Return a value as text; for devices, their numbers."""
    return _cut(_whole(name, value))


def _whole(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{count}x {text}" for text, count in value.items())
    if isinstance(value, list):
        sign = "; " if any(isinstance(item, dict) for item in value) else ", "
        return sign.join(amount(name, item) for item in value) or "empty"
    return amount(name, value)


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
    most = 0 if page.details else _MOST_CAUSES
    rows = [("", sentence_left_out) for sentence_left_out in left_out(fleet, most)]
    for group in fleet.silent:
        nodes = nodes_of(group.nodes, whole=page.details)
        rows.append(
            (str(group.status), f"{number_of(len(group.nodes))}: {nodes}  {one_line(group.error)}")
        )
    for why, flagged_nodes in flagged(fleet):
        nodes = nodes_of(flagged_nodes, whole=page.details)
        rows.append(("suspect", f"{number_of(len(flagged_nodes))}: {nodes}  {why}"))
    for hazard in hazards_of(fleet):
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
            texts = [nodes_of(deviation.nodes, whole=page.details)]
            texts += [
                sentence(cause, len(cause.others) if page.details else _MOST_ALSO)
                for cause in found[: most or None]
            ]
            if most and found[most:]:
                texts.append(f"and {len(found) - most} more; --all shows them")
            rows.append((f"{len(deviation.nodes):,} of {kind.nodes:,}", "\n".join(texts)))
        for split in kind.splits:
            rows.append(("no majority", _some([*split.facts], most)))
            groups = groups_of(kind, split, most)
            for number, of_group, lines in groups[: None if page.details else _MOST_GROUPS]:
                names = nodes_of(of_group, whole=page.details)
                rows.append((number, "\n".join((names, *lines))))
            if not page.details and (more := len(groups) - _MOST_GROUPS) > 0:
                rows.append(("", f"and {counted(more, 'more group')}; --all shows them"))
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
    rows += [
        ("suspect", str(len(nodes)), literal(nodes_of(nodes, whole=page.details)), literal(why))
        for why, nodes in flagged(fleet)
    ]
    parts += map(literal, left_out(fleet))
    parts.append(markdown_table(("status", "nodes", "which", "why"), rows))
    hazards = [
        (
            str(hazard.check.severity),
            str(len(hazard.nodes)),
            literal(hazard.check.message or hazard.check.title),
            literal(nodes_of(hazard.nodes, whole=page.details)),
        )
        for hazard in hazards_of(fleet)
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
        groups = [
            (number, literal(nodes_of(nodes, whole=page.details)), literal("; ".join(lines)))
            for split in kind.splits
            for number, nodes, lines in groups_of(kind, split, 0 if page.details else _MOST_CAUSES)
        ]
        parts.append(markdown_table(("no majority", "which", "have"), groups))
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
        before, after = unlike(step.name, step.before, step.after)
        some = f" ({nodes_of(step.nodes)})" if step.nodes else ""
        groups.setdefault(f"{before} → {after}{some}", []).append(one_line(step.name))
    return [
        (first, values + (f"; also {_some(others, _MOST_ALSO)}" if others else ""))
        for values, (first, *others) in groups.items()
    ]


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
