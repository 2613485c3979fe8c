"""Records other than reports: their facts and figures by name, and outliers among the figures."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from mlbackends.audit.canonical import encoded
from mlbackends.base.errors import shown
from mlbackends.base.patterns import pattern
from mlbackends.base.tables import table
from mlbackends.fleet.fingerprint import Facts
from mlbackends.fleet.nodesets import folded
from mlbackends.model.audit import Check, Outcome
from mlbackends.model.fleet import Envelope, Hazard, Outlier

Figures = dict[str, float]

_OUR_SCHEMA = pattern(r"backends\.([a-z-]+)/\d+")
#: The fields that name an element of a list, the first that it has.
_NAMED_BY = ("backend", "code", "name", "id", "text", "title")
_NO_FACTS = frozenset({"schema", "tool", "created", "subject", "host_name"})
_OUTCOME = b'"backends.outcome/'
_HEAD_BYTES = 100
_MOST_VALUES = 20_000
_NUMBERS = pattern(r"([\w.:/~-]*\d[\w.:/~-]*)")
_DEEPEST = 40
#: The most values of one text that are listed with their nodes, and the most ranges of each.
_MOST_LISTED, _MOST_RANGES = 8, 6
#: Among fewer nodes none is an outlier.
_FEWEST = 3
_DEVIATIONS = 5.0
#: The standard deviation of a normal distribution by its median absolute deviation.
_DEVIATION_OF_NORMAL = 1.4826
_LEAST_SHARE = 0.1
#: Few nodes estimate their spread badly: among 10 twice the deviations are allowed, among 1,000 1 % more.
_DOUBT = 10
#: From this number of nodes on a spread is known well enough for the kind's own limits.
_MANY = 30
#: The least spread, as a share of the median: more digits than this are no steadiness.
_STEADIEST = 0.002
_TOGETHER = "together"


def contents(data: Raw) -> tuple[str, Facts, Figures]:
    """Return a record's kind, such as "sdpa-bench", its facts and its figures.

    Raises ValueError for anything but the record of a command.
    """
    record = msgspec.json.decode(data, type=dict[str, Any])
    schema = str(record.get("schema", "backends.trace/1" if "view" in record else ""))
    found = _OUR_SCHEMA.fullmatch(schema)
    if found is None or found[1].startswith(("fleet", "envelope")):
        raise ValueError(f"its schema is {shown(schema[:80])}, which no command for nodes prints")
    kind = found[1]
    facts: Facts = {}
    figures: Figures = {}
    for count, (name, value) in enumerate(_leaves("", record, 0)):
        if count >= _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values")
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and _patterns(kind, "figures").fullmatch(name)
        ):
            figures[f"{kind}.{name}"] = float(value)
        elif value is not None and _patterns(kind, "facts").fullmatch(name):
            facts[f"{kind}.{name}"] = value
    return kind, facts, figures


def _leaves(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the values of a record by dotted name; a list of plain values is one."""
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _NO_FACTS:
                yield from _leaves(f"{name}.{key}" if name else key, inner, depth + 1)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        names: dict[str, int] = {}
        for at, item in enumerate(value):
            own = _name(item) or str(at)
            names[own] = names.get(own, 0) + 1
            again = f"#{names[own]}" if names[own] > 1 else ""
            yield from _leaves(f"{name}[{own}{again}]", item, depth + 1)
    else:
        yield name, value


def _name(element: Any) -> str:
    """Return the name of an element of a list, "" without one."""
    if not isinstance(element, dict):
        return ""
    if isinstance(values := element.get("values"), list):  # a row of a trace's view
        return " ".join(map(str, values))
    for field in _NAMED_BY:
        if isinstance(text := element.get(field), str) and text:
            instance = element.get("instance")
            return f"{text} {instance}" if isinstance(instance, str) and instance else text
    return _name(element.get("checked"))


class FailedChecks:
    """The failed checks of `audit` and `doctor`, and their nodes."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[Check, list[str]]] = {}

    def visit(self, node: str, envelope: Envelope) -> None:
        """Read an envelope that a collection has accepted; only outcomes are of interest."""
        report = envelope.report
        if report is UNSET or _OUTCOME not in bytes(memoryview(report)[:_HEAD_BYTES]):
            return
        try:
            outcome = msgspec.json.decode(report, type=Outcome)
        except (msgspec.DecodeError, RecursionError):
            return
        for check in outcome.failed():
            self._found.setdefault(msgspec.json.encode(check), (check, []))[1].append(node)

    @property
    def hazards(self) -> Iterator[Hazard]:
        """The failed checks."""
        for check, nodes in self._found.values():
            yield Hazard(check, tuple(nodes))


def united(hazards: Iterable[Hazard]) -> tuple[Hazard, ...]:
    """Return each hazard once with all its nodes: the worst first, then the most frequent."""
    found: dict[bytes, tuple[Check, set[str]]] = {}
    for hazard in hazards:
        key = msgspec.json.encode(hazard.check)
        found.setdefault(key, (hazard.check, set()))[1].update(hazard.nodes)
    every = [Hazard(check, tuple(sorted(nodes))) for check, nodes in found.values()]
    return tuple(sorted(every, key=_worst_first))


def merged(hazards: Iterable[Hazard]) -> list[Hazard]:
    """Return hazards with messages that differ only in numbers as one, the worst first.

    What differs between its nodes is listed with the nodes that it is true of.
    """
    found: dict[tuple[object, ...], list[Hazard]] = {}
    for hazard in hazards:
        check = hazard.check
        words = _NUMBERS.sub("#", check.message)
        key = (check.code, check.instance, check.status, check.severity, words)
        found.setdefault(key, []).append(hazard)
    return sorted(map(as_one, found.values()), key=_worst_first)


def _worst_first(hazard: Hazard) -> tuple[int, int]:
    return -hazard.check.severity.level, -len(hazard.nodes)


def as_one(hazards: Sequence[Hazard]) -> Hazard:
    """Return checks of several nodes with one code as one; see `merged`."""
    nodes = tuple(sorted({node for hazard in hazards for node in hazard.nodes}))
    first = hazards[0].check
    texts = {}
    for field in ("message", "why", "hint"):
        values = _values_by_nodes([(getattr(hazard.check, field), hazard.nodes) for hazard in hazards])
        texts[field] = _listed(values) if len(values) > 1 else values[0][0]
    evidence: dict[str, Any] = {}
    for name in dict.fromkeys(name for hazard in hazards for name in hazard.check.evidence):
        values = _values_by_nodes([(hazard.check.evidence.get(name), hazard.nodes) for hazard in hazards])
        listed_values = [{"value": value, "nodes": folded(having)} for value, having in values]
        evidence[name] = listed_values if len(values) > 1 else values[0][0]
    is_same = all(hazard.check.command == first.command for hazard in hazards)
    command = first.command if is_same else ""
    return Hazard(replace(first, **texts, evidence=evidence, command=command), nodes)


def _listed(values: Sequence[tuple[str, set[str]]]) -> str:
    """Return texts as one that lists what differs with its nodes: a single number in its place."""
    words = [_NUMBERS.split(text) for text, _ in values]
    differing = [at for at, column in enumerate(zip(*words, strict=False)) if len({*column}) > 1]
    before, after, sign = "", "", "; "
    if len({*map(len, words)}) == len(differing) == 1:
        (at,) = differing
        before, after, sign = "".join(words[0][:at]), "".join(words[0][at + 1 :]), ", "
        words = [[text[at]] for text in words]
    listed = [
        f"{''.join(text)} ({folded(nodes, _MOST_RANGES)})"
        for text, (_, nodes) in zip(words, values, strict=True)
        if any(text)
    ]
    more = len(listed) - _MOST_LISTED
    listed[_MOST_LISTED:] = [f"and {more:,} more"] if more > 0 else []
    return before + sign.join(listed) + after


def _values_by_nodes(values: Sequence[tuple[Any, Sequence[str]]]) -> list[tuple[Any, set[str]]]:
    """Return each distinct value with its nodes, the most frequent first."""
    if all(value == values[0][0] for value, _ in values):
        return [(values[0][0], set())]
    found: dict[bytes, tuple[Any, set[str]]] = {}
    for value, nodes in values:
        key = encoded(value)
        found.setdefault(key, (value, set()))[1].update(nodes)
    return sorted(found.values(), key=lambda pair: (-len(pair[1]), min(pair[1])))


@cache
def _patterns(kind: str, what: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, _rows(kind)[what])) or r"(?!)")


def _rows(kind: str) -> dict[str, list[Any]]:
    """Return what is compared of a kind of records."""
    rows = table("fleet/records.toml")
    found: dict[str, list[Any]] = rows.get(kind, rows["others"])
    return found


def outliers(figures: Mapping[str, Mapping[str, float]], nodes: Sequence[str]) -> Iterator[Outlier]:
    """Yield the outliers: figures of these nodes, all of one kind, that are far from their median.

    Far is more than 5 standard deviations, estimated by the median absolute deviation, and more than a
    tenth; among many nodes, some kinds of records have lower limits. Their figures are also judged together:
    a node that is a little slow in all of them is an outlier although no single figure is. figures: by name,
    of each node.
    """
    together: dict[str, dict[str, dict[str, float]]] = {}
    for name, values in figures.items():
        own = {node: values[node] for node in nodes if node in values}
        kind = name.partition(".")[0]
        if len(own) >= _MANY and "outlier" in _rows(kind):
            together.setdefault(kind, {})[name] = own
        yield from _far(name, own)
    for kind, several in together.items():
        if len(several) > 1:
            yield from _far(f"{kind}.{_TOGETHER}", _together(several))


def _far(name: str, own: Mapping[str, float]) -> Iterator[Outlier]:
    """Yield the values that are far from their median."""
    if len(own) < _FEWEST:
        return
    rows = _rows(name.partition(".")[0]) if len(own) >= _MANY else {}
    deviations, share = rows.get("outlier", (_DEVIATIONS, _LEAST_SHARE))
    usual, spread = _middle(own)
    allowed = max(deviations * (1 + _DOUBT / len(own)) * spread, share * abs(usual))
    for node, value in own.items():
        if abs(value - usual) > allowed:
            yield Outlier(node, name, value, usual, len(own))


def _middle(own: Mapping[str, float]) -> tuple[float, float]:
    """Return the median, and the standard deviation that the median absolute deviation stands for."""
    usual = median(own.values())
    return usual, _DEVIATION_OF_NORMAL * median(abs(value - usual) for value in own.values())


def _together(figures: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each node's figures as shares of their medians, the steadier ones with more weight.

    The weight is the inverse variance, with which a mean of independent figures varies least.
    """
    sums: dict[str, tuple[float, float]] = {}
    for own in figures.values():
        usual, spread = _middle(own)
        if not usual:
            continue
        weight = min(max(spread / abs(usual), _STEADIEST), 1.0) ** -2
        for node, value in own.items():
            total, weights = sums.get(node, (0.0, 0.0))
            sums[node] = total + weight * value / usual, weights + weight
    return {node: total / weights for node, (total, weights) in sums.items()}
