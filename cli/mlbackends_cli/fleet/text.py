"""A fleet as text: numbers of nodes by status, then kinds of nodes with the deviations in each."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from mlbackends.base.errors import counted
from mlbackends.fleet.collection import MOST_VALUES
from mlbackends.fleet.expected import WORDS, sentence
from mlbackends.fleet.nodesets import folded
from mlbackends.fleet.records import merged
from mlbackends.model.audit import Status as CheckStatus
from mlbackends.model.fleet import (
    GROUP,
    MAJORITY,
    RECORD,
    Expectation,
    Fleet,
    FleetDifference,
    FleetFacts,
    Kind,
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
#: The most groups that are listed of those that agree.
_MOST_SOUND = 40
#: The most lists that are compared item by item.
_MOST_UNLIKE = 50
#: The characters before the first difference of two long texts.
_BEFORE = 20


def headline(fleet: Fleet) -> str:
    """Return the number of nodes, of those that reported, and the statuses of the others."""
    counts = Counter({Status.OK: fleet.reported})
    for group in fleet.silent:
        counts[group.status] += len(group.nodes)
    words = [f"{counts[Status.OK]:,} reported"]
    words += [f"{counts[status]:,} {status}" for status in Status if status in counts][1:]
    forms = counted(len(fleet.configurations), "configuration")
    return f"{counted(counts.total(), 'node')}: {', '.join(words)}; {forms}"


def heading(kind: Kind) -> str:
    """Return the number of nodes of a kind, and what they have in common."""
    own = counted(kind.nodes - len(kind.others), "node")
    text = ": ".join(filter(None, (group_of(kind), own, _title(kind))))
    which = "another kind" if len(kind.others) == 1 else "other kinds"
    others = f"; and {len(kind.others):,} of {which} ({nodes_of(kind.others)})"
    return text + (others if kind.others else "")


def group_of(kind: Kind) -> str:
    """Return the group of a kind in words, "" if nodes are not grouped."""
    group = kind.title.get(GROUP, "")
    return "in no group" if group is None else f"group {one_line(str(group))}" if group else ""


def _title(kind: Kind) -> str:
    """Return what the nodes of a kind have in common, other than their group."""
    values = (
        f"{value} records" if name == RECORD else shown(name, value)
        for name, value in kind.title.items()
        if value is not None and name != GROUP
    )
    return ", ".join(filter(None, values))


def agreement(kind: Kind) -> str:
    """Return in what the nodes of a kind that do not deviate agree, after their number."""
    scope = "everything that is compared" if kind.not_compared else "everything"
    if kind.splits:
        facts = sum(len(split.facts) for split in kind.splits)
        scope = f"all but {counted(facts, 'fact')}, which {'has' if facts == 1 else 'have'} none"
    but = ", apart from what is expected" if kind.expected else ""
    return f"agree with {one_line(kind.compared_with)} in {scope}{but}"


def left_out(fleet: Fleet, most: int = 0) -> list[str]:
    """Return which facts are not compared and why, in sentences. most: the number of names; 0 for all."""
    many = f"more than {MOST_VALUES:,} values, so each node is presumed to have its own"
    found = [f"not compared, {many}: {_some(fleet.varying, most)}"] if fleet.varying else []
    if names := {name: None for kind in fleet.kinds for name in kind.not_compared}:
        why = "values for more than half of 50 or more nodes, so each is presumed to have its own"
        found.append(f"not compared, {why}: {_some([*names], most)}")
    return found


def _some(names: Sequence[str], most: int) -> str:
    """Return the first names, and the number of the others. most: 0 for all."""
    more = len(names) - most if most else 0
    shown_names = ", ".join(map(one_line, names[: most or None]))
    return shown_names + (f" and {more} more" if more > 0 else "")


def nodes_of(nodes: Sequence[str], *, whole: bool = False) -> str:
    """Return nodes as a folded node set, the first ranges of a long one."""
    return folded(nodes, 0 if whole else _MOST_RANGES)


def blocks(kind: Kind, *, whole: bool = False) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return nodes, and in sentences what they have otherwise than the majority, or without one.

    whole: with all groups without a majority, and all names.
    """
    found: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    others = "others" if kind.compared_with == MAJORITY else "baseline"
    for deviation in kind.deviations:
        found[deviation.nodes] = [
            (fact.name, *unlike(fact.name, fact.value, fact.usual)) for fact in deviation.differences
        ]
    for split in kind.splits:
        most = len(split.groups) if whole else _MOST_GROUPS
        rest = split.groups[most:]
        for name, values in split.facts.items():
            for nodes, text in zip(split.groups, unlike(name, *values[:most]), strict=False):
                found.setdefault(nodes, []).append((name, text, ""))
            if rest:
                nodes = tuple(node for group in rest for node in group)
                found.setdefault(nodes, []).append((name, f"{len(rest):,} other values", ""))
    told: list[tuple[tuple[str, ...], list[str]]] = []
    for nodes, triples in found.items():
        alike: dict[str, list[str]] = {}
        for name, value, usual in triples:
            text = f"{value} ({f'{others} {usual}' if usual else 'no majority'})"
            alike.setdefault(text, []).append(one_line(name))
        limit = 0 if whole else _MOST_ALSO
        told.append((nodes, [f"{n[0]}: {text}{_also(n[1:], limit)}" for text, n in alike.items()]))
    return told


def _also(names: Sequence[str], most: int) -> str:
    return f"; also {_some(names, most)}" if names else ""


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


def unlike(name: str, *values: Any) -> list[str]:
    """Return values as texts that show what differs: of lists only the items, of tables only the fields."""
    lists = [value for value in values if isinstance(value, list)]
    if len(lists) < len(values) or len(lists) > _MOST_UNLIKE:
        lists = []
    own = [[item for item in value if any(item not in other for other in lists)] for value in lists]
    if not any(own):
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
    return _told_apart(texts)


def _told_apart(texts: Sequence[str]) -> list[str]:
    """Return texts cut so that those which begin alike show where they differ."""
    found = [*map(_cut, texts)]
    ordered = sorted({*texts})
    if len({*found}) < len(ordered):
        alike = dict.fromkeys(ordered, 0)
        for pair in itertools.pairwise(ordered):
            signs = enumerate(zip(*pair, strict=False))
            length = next((at for at, both in signs if len({*both}) > 1), len(pair[0]))
            alike |= {text: max(alike[text], length) for text in pair}
        found = [
            _cut(text if alike[text] < _LONGEST - 1 else f"…{text[alike[text] - _BEFORE :]}")
            for text in texts
        ]
    return found


def _fields_unlike(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first field of each table, which names it, and those that differ."""
    differing = {
        key for table in tables for key in table if any(other.get(key) != table[key] for other in tables)
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


#: Titles, each with rows of a word and lines, and notes.
Parts = tuple[list[tuple[str, list[tuple[str, list[str]]]]], Sequence[str]]


def forms(parts_of: Callable[[Any, Page], Parts]) -> dict[str, Callable[[Any, Page], str]]:
    """Return how a record is written for a terminal and for a ticket, from what `parts_of` returns."""

    def table(record: Any, page: Page) -> str:
        from mlbackends_cli.text.layout import Cell, lines  # rich, which JSON does not need

        found: list[str] = []
        parts, notes = parts_of(record, page)
        for title, rows in parts:
            cells = [[Cell(word), Cell("\n".join(texts))] for word, texts in rows]
            found += lines([[Cell(one_line(title), "bold")]], page, indent=0)
            found += [*lines(cells, page), ""]
        for note in notes:
            found += lines([[Cell(one_line(note))]], page, indent=0)
        text = "\n".join(found).rstrip("\n") + "\n"
        return page.fitted(without_commands(text, page.sign("·", ".")))

    def markdown(record: Any, page: Page) -> str:
        parts, notes = parts_of(record, page)
        found: list[str] = []
        for title, rows in parts:
            found.append(f"**{literal(title)}**")
            cells = [(literal(word), "<br>".join(map(literal, texts))) for word, texts in rows]
            found.append(markdown_table(("what", "which nodes, and why"), cells))
        return "\n\n".join(filter(None, [*found, *map(literal, notes)])) + "\n"

    return {"table": table, "markdown": markdown}


def rows_of(fleet: Fleet, *, whole: bool = False) -> list[tuple[str, tuple[str, ...], str]]:
    """Return what did not report, suspect reports and hazards: a word, the nodes, and why.

    whole: also the nodes that were not expected or reported more than once, which notes have in short.
    """
    rows = [(str(group.status), group.nodes, group.error) for group in fleet.silent]
    for why in dict.fromkeys(fleet.flagged.values()):
        nodes = tuple(node for node, error in fleet.flagged.items() if error == why)
        rows.append(("suspect", nodes, f"it reported, but: {why}"))
    if whole:
        rows.append(("unexpected", fleet.unexpected, ""))
        rows.append(("repeated", tuple(fleet.repeated), "reported more than once"))
    for hazard in merged(hazard for hazard in fleet.hazards if hazard.check.status is CheckStatus.FAILED):
        check = hazard.check
        text = f"{check.message or check.title} [{check.code}]"
        rows.append((str(check.severity), hazard.nodes, text))
    return [(word, nodes, one_line(why)) for word, nodes, why in rows if nodes]


def fleet_parts(fleet: Fleet, page: Page) -> Parts:
    """Return the whole fleet: what did not report, hazards, and each kind of nodes."""
    most = 0 if page.details else _MOST_CAUSES
    rows = [("", [text]) for text in left_out(fleet, most)]
    for word, nodes, why in rows_of(fleet, whole=page.details):
        rows.append((word, [": ".join(filter(None, (_nodes(nodes, page), why)))]))
    for node, (first, *others) in far_figures(fleet).items():
        also = f"; also {counted(len(others), 'other figure')}" if others else ""
        rows.append((node, [first, *others] if page.details else [first + also]))
    rows += _expectations(fleet.expectations)
    parts = [(headline(fleet), rows)]
    for kind in fleet.kinds:
        if GROUP in kind.title and not kind.drifts:
            continue
        rows = [("", [f"{kind.alike:,} of {kind.nodes:,} {agreement(kind)}"])]
        for nodes, texts in blocks(kind, whole=page.details):
            if most and texts[most:]:
                texts[most:] = [f"and {len(texts) - most} more; --all shows them"]
            number = f"{len(nodes):,} of {kind.nodes:,}"
            rows.append((number, [nodes_of(nodes, whole=page.details), *texts]))
        parts.append((heading(kind), rows))
    for title, rows in _sound_groups(fleet).items():
        most = len(rows) if page.details else _MOST_SOUND
        more = [("", [f"and {counted(len(rows) - most, 'more group')}; --all shows them"])]
        parts.append((title, rows[:most] + (more if rows[most:] else [])))
    return parts, fleet.notes


def _expectations(entries: Sequence[Expectation]) -> list[tuple[str, list[str]]]:
    return [(WORDS[entry.state], [one_line(sentence(entry))]) for entry in entries]


def _sound_groups(fleet: Fleet) -> dict[str, list[tuple[str, list[str]]]]:
    """Return a line for each group in which all nodes agree, by the sentence that is true of them."""
    silent = {node for alike in fleet.silent for node in alike.nodes}
    lost = {
        group: f"{len(own):,} of {len(nodes):,} without a report"
        for group, nodes in fleet.groups.items()
        if (own := silent.intersection(nodes))
    }
    found: dict[str, list[tuple[str, list[str]]]] = {}

    def add(title: str, group: str, *texts: str) -> None:
        texts = (*texts, *([lost[group]] if group in lost else []))
        found.setdefault(title, []).append((one_line(group) or "in no group", ["; ".join(texts)]))

    shown_groups = set()
    for kind in fleet.kinds:
        if GROUP in kind.title and not kind.drifts:
            group = str(kind.title[GROUP] or "")
            shown_groups.add(group)
            title = ": ".join(filter(None, (f"groups that {agreement(kind)}", _title(kind))))
            add(title, group, counted(kind.nodes, "node"))
    for group in lost:
        if group not in shown_groups:
            add("other groups", group)
    return found


def facts_parts(facts: FleetFacts, page: Page) -> Parts:
    """Return facts with their values, the rarest first."""
    parts = []
    for fact in facts.facts:
        rows = []
        texts = _told_apart([_whole(fact.name, holders.value) for holders in fact.values])
        for holders, text in zip(fact.values, texts, strict=True):
            nodes = nodes_of(holders.nodes, whole=page.details)
            rows.append((f"{len(holders.nodes):>6,}", [f"{text}  {nodes}"]))
        parts.append((fact.name, rows))
    return parts, [] if parts else ["every fact has the same value on all nodes"]


def changes_parts(difference: FleetDifference, page: Page) -> Parts:
    """Return what became of a fleet: nodes that came and went, and facts that changed."""
    rows = [("new", [_nodes(difference.new, page)])] if difference.new else []
    rows += [
        (str(group.status), [f"{_nodes(group.nodes, page)}: {one_line(group.error)}"])
        for group in difference.silent
    ]
    rows += _expectations(difference.expectations)
    parts = [(f"{counted(difference.nodes, 'node')} reported both times", rows)]
    for change in difference.changes:
        groups: dict[str, list[str]] = {}
        for step in change.steps:
            before, after = unlike(step.name, step.before, step.after)
            some = f" ({nodes_of(step.nodes)})" if step.nodes else ""
            groups.setdefault(f"{before} → {after}{some}", []).append(one_line(step.name))
        rows = [(first, [values + _also(others, _MOST_ALSO)]) for values, (first, *others) in groups.items()]
        if not page.details and (more := len(rows) - _MOST_CAUSES) > 0:
            rows[_MOST_CAUSES:] = [("", [f"and {more} more; --all shows them"])]
        if change.left_behind:
            left = nodes_of(change.left_behind, whole=page.details)
            rows.append(("", [f"{len(change.left_behind):,} left behind: {left}"]))
        nodes = nodes_of(change.nodes, whole=page.details)
        parts.append((f"on {len(change.nodes):,} of {counted(difference.nodes, 'node')}: {nodes}", rows))
    return parts, [*([] if difference.changes else ["no node changed"]), *difference.notes]


def _nodes(nodes: Sequence[str], page: Page) -> str:
    return f"{counted(len(nodes), 'node')}: {nodes_of(nodes, whole=page.details)}"
