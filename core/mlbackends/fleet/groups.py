"""Differences within a collection: kinds of nodes, and the nodes of each kind that deviate."""

import fnmatch
from collections.abc import Container as Names
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from mlbackends.base.errors import BadInput, Incomplete, UnknownName, counted
from mlbackends.base.version import __version__
from mlbackends.fleet.collection import HEAD, Collection, Section, are_near, roles_of
from mlbackends.fleet.fingerprint import Facts, of_all_devices, whole
from mlbackends.fleet.nodesets import folded
from mlbackends.fleet.records import outliers
from mlbackends.model.fleet import (
    FACTS_SCHEMA,
    RECORD,
    SCHEMA,
    Configuration,
    Deviation,
    Difference,
    Envelope,
    Fleet,
    FleetFact,
    FleetFacts,
    Holders,
    Kind,
    Silent,
    Split,
)
from mlbackends.model.records import FactValue, Report

MAJORITY = "the majority"
#: The facts that define a kind. Not the number of GPUs: a node that lost one would be a separate kind.
BY = ("cpu.model_name", "*.devices.name", "*.processor")

#: From this many nodes on, a fact with values for more than half of them is presumed to differ on every node.
_MANY = 50
#: A kind of few nodes is drift: one node next to a kind of 3, and up to 3 next to a kind 20 times as large.
_FEW, _TIMES = 3, 20
#: The ranges of nodes that a note names.
_MOST_RANGES = 12


class Baseline(Struct):
    """What nodes should be. name: for people. metrics: the rounded and the measured value of each metric."""

    name: str
    facts: Facts
    metrics: dict[str, tuple[FactValue, float]]


def baseline_of(report: Report, name: str) -> Baseline:
    """Return a report as the baseline that nodes are compared with."""
    collection = Collection()
    collection.add(Envelope(node=name, report=Raw(msgspec.json.encode(report))))
    facts: Facts = {}
    for section in collection.sections.values():
        facts |= of_all_devices(section.facts)
    metrics = {
        name: (value, least)
        for name, ranges in collection.ranges.items()
        for value, (least, _) in ranges.items()
    }
    return Baseline(name, facts, metrics)


def fleet_of(collection: Collection, by: Sequence[str] = (), baseline: Baseline | None = None) -> Fleet:
    """Return the fleet that a collection describes.

    by: the facts that define a kind of nodes, BY if empty; "*" matches any probe. baseline: what nodes are
    compared with; without it, with the value that most nodes of their kind have. Raises UnknownName for a
    fact that no node has.
    """
    view = _View(collection)
    nodes = view.nodes
    known_names = view.names()
    for name in by:
        if "*" not in name and name not in known_names and known_names:
            raise _unknown(name, known_names)
    members_by_kind = list(_kinds(view, by or BY))
    joined = {} if by or baseline else _joined(view, members_by_kind)
    kinds = []
    for at, (title, members) in enumerate(members_by_kind):
        others = [
            machine for few, near in joined.items() if near == at for machine in members_by_kind[few][1]
        ]
        if at not in joined:
            kinds.append(_Comparison(view, members, baseline, others).kind(title))
    far = [
        outlier
        for _, members in members_by_kind
        for outlier in outliers(collection.figures, [n for member in members for n in nodes[member]])
    ]
    kinds.sort(key=lambda kind: (not kind.others, -kind.nodes))
    silent = tuple(
        Silent(status, error, tuple(sorted(names)))
        for (status, error), names in sorted(collection.all_silent().items())
    )
    expected = collection.expected
    facts_by_probe: dict[str, dict[str, Facts]] = {}
    for section in collection.sections.values():
        facts_by_probe.setdefault(section.probe, {})[section.fingerprint] = section.facts
    known = {*expected} if isinstance(expected, tuple) else None
    reported = (*collection.nodes, *collection.silent)
    unexpected = tuple(node for node in reported if node not in known) if known is not None else ()
    return Fleet(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        compared_with=baseline.name if baseline else MAJORITY,
        kinds=tuple(kinds),
        unexpected=unexpected,
        notes=tuple(_notes(collection, unexpected)),
        expected=expected,
        silent=silent,
        repeated=dict(collection.repeated),
        garbled=dict(collection.garbled),
        configurations=tuple(
            Configuration(
                fingerprint=whole({section.probe: section.fingerprint for section in sections}),
                nodes=tuple(nodes[machine]),
                sections={section.probe: section.fingerprint for section in sections},
            )
            for machine, sections in view.machines.items()
        ),
        sections=facts_by_probe,
        ranges={
            name: {msgspec.json.encode(value).decode(): pair for value, pair in ranges.items()}
            for name, ranges in collection.ranges.items()
        },
        varying=tuple(sorted(collection.varying)),
        figures=collection.figures,
        outliers=tuple(far),
        unchecked=collection.unchecked,
        flagged=collection.flagged,
    )


def _notes(collection: Collection, unexpected: Sequence[str]) -> Iterable[str]:
    count = len(collection.nodes) + len(collection.silent)
    if isinstance(collection.expected, int) and count != collection.expected:
        few = "fewer" if count < collection.expected else "more"
        number = abs(collection.expected - count)
        yield f"{number:,} {few} nodes than were expected; --expect with their names shows which"
    if unexpected:
        nodes = counted(len(unexpected), "unexpected node")
        yield f"{nodes} reported: {folded(unexpected, _MOST_RANGES)}"
    if repeated := collection.repeated:
        reports, nodes = counted(repeated.total(), "more report"), counted(len(repeated), "node")
        which = folded(repeated, _MOST_RANGES)
        yield f"{reports} of {nodes} ({which}); the first of each was taken"
    for what, number in sorted(collection.garbled.items()):
        yield f"{what}: {number:,}; a part of some report was lost or changed in transit"
    if collection.unchecked:
        pieced = counted(collection.unchecked, "report")
        yield (
            f"{pieced} came as JSON in pieces, which has no checksum, so a lost piece can go unnoticed;"
            " --format frame has one"
        )
    depths = {
        str(section.facts.get(f"{HEAD}.depth"))
        for section in collection.sections.values()
        if section.probe == HEAD
    }
    if len(depths) > 1:
        yield f"nodes were inspected to different depths: {', '.join(sorted(depths))}"


class _View:
    """A collection by machine: its sections and its nodes."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        used = {*collection.nodes.values()}
        self.machines: dict[int, list[Section]] = {
            machine: [collection.sections[number] for number in numbers]
            for numbers, machine in collection.machines.items()
            if machine in used
        }
        self.nodes: dict[int, list[str]] = {machine: [] for machine in self.machines}
        for node, machine in collection.nodes.items():
            self.nodes[machine].append(node)

    def names(self) -> dict[str, None]:
        """Return the name of every fact."""
        return dict.fromkeys(name for section in self.collection.sections.values() for name in section.facts)


def _kinds(view: _View, by: Sequence[str]) -> Iterable[tuple[dict[str, FactValue | None], list[int]]]:
    """Yield the kinds of nodes: their title, and the machines of each."""
    found: dict[bytes, tuple[dict[str, FactValue | None], list[int]]] = {}
    titles: dict[int, dict[str, FactValue | None]] = {}
    for machine, sections in view.machines.items():
        title: dict[str, FactValue | None] = {name: None for name in by if "*" not in name}
        if sections and all(section.probe != HEAD for section in sections):
            title = {RECORD: sections[0].probe, **title}
        for section in sections:
            if id(section) not in titles:
                # Of devices the values, not their number.
                facts = section.facts
                names = {
                    fact
                    for fact in facts
                    for name in by
                    if fact == name or (name.startswith("*.") and fact.partition(".")[2] == name[2:])
                }
                titles[id(section)] = {
                    name: sorted(value) if isinstance(value := facts[name], dict) else value
                    for name in sorted(names)
                }
            title |= titles[id(section)]
        found.setdefault(_text(title), (title, []))[1].append(machine)
    return found.values()


def _joined(view: _View, kinds: Sequence[tuple[dict[str, FactValue | None], list[int]]]) -> dict[int, int]:
    """Return the places of kinds of few nodes, each with that of the large kind that is most like it."""
    sizes = [sum(len(view.nodes[machine]) for machine in machines) for _, machines in kinds]
    found: dict[int, int] = {}

    @cache
    def facts_of(at: int) -> set[tuple[str, bytes]]:
        machine = max(kinds[at][1], key=lambda machine: len(view.nodes[machine]))
        pairs = (pair for section in view.machines[machine] for pair in section.facts.items())
        return {(name, _text(value)) for name, value in pairs}

    for record in {title.get(RECORD) for title, _ in kinds}:
        alike = [at for at, (title, _) in enumerate(kinds) if title.get(RECORD) == record]
        largest = max(sizes[at] for at in alike)
        most = min(_FEW, max(1, largest // _TIMES)) if largest >= _FEW else 0
        large = [at for at in alike if sizes[at] > most]
        for at in alike:
            if sizes[at] <= most:
                found[at] = max(large, key=lambda other: len(facts_of(at) & facts_of(other)))
    return found


class _Comparison:
    """Compares the machines of one kind. others: machines of kinds of few nodes that are compared with it."""

    def __init__(
        self,
        view: _View,
        machines: Sequence[int],
        baseline: Baseline | None,
        others: Sequence[int] = (),
    ) -> None:
        self._view, self._machines, self._baseline = view, [*machines, *others], baseline
        self._others = frozenset(others)
        self._sizes = {machine: len(view.nodes[machine]) for machine in self._machines}
        self._total = sum(self._sizes.values())
        self._own = self._total - sum(self._sizes[machine] for machine in others)

    def kind(self, title: dict[str, FactValue | None]) -> Kind:
        """Return what the machines have in common and how they differ."""
        not_compared = []
        alike: dict[frozenset[int], list[Difference]] = {}
        splits: dict[tuple[tuple[str, ...], ...], dict[str, tuple[Any, ...]]] = {}
        for name, values in self.values().items():
            if len(values) == 1 and self._baseline is None:
                continue
            values = self._merged(name, values)
            if self._total >= _MANY and len(values) > self._total // 2:
                not_compared.append(name)
                continue
            if self._baseline is not None:
                usual = self._baseline.facts.get(name)
            elif most := [value for value, machines in values if self._is_majority(machines)]:
                (usual,) = most
            else:
                holders = self.holders(name, values)
                groups = tuple(group.nodes for group in holders)
                splits.setdefault(groups, {})[name] = tuple(group.value for group in holders)
                continue
            for value, machines in values:
                if value != usual:
                    real = (self._real(name, value), self._real(name, usual))
                    alike.setdefault(machines, []).append(Difference(name, *real))
        others = self._nodes(self._others)
        deviations = sorted(
            (
                Deviation(
                    self._nodes(machines),
                    tuple(sorted(differences, key=lambda fact: _report_order(fact.name, title))),
                )
                for machines, differences in alike.items()
            ),
            key=lambda group: (not {*group.nodes} <= {*others}, len(group.nodes), group.nodes),
        )
        differing = frozenset().union(*alike) if alike else frozenset()
        rest = sum(self._sizes[machine] for machine in self._machines if machine not in differing)
        return Kind(
            title,
            self._total,
            rest,
            tuple(deviations),
            tuple(sorted(not_compared)),
            tuple(
                Split(
                    groups,
                    dict(sorted(facts.items(), key=lambda fact: _report_order(fact[0], title))),
                )
                for groups, facts in sorted(splits.items(), key=lambda pair: (len(pair[0]), pair[0]))
            ),
            others,
        )

    def _is_majority(self, machines: frozenset[int]) -> bool:
        """Return whether machines have more than half of the nodes that are of this kind."""
        return 2 * sum(self._sizes[machine] for machine in machines - self._others) > self._own

    def _nodes(self, machines: Iterable[int]) -> tuple[str, ...]:
        return tuple(sorted(node for machine in machines for node in self._view.nodes[machine]))

    def holders(self, name: str, values: list[tuple[Any, frozenset[int]]]) -> tuple[Holders, ...]:
        """Return the values of a fact with their nodes, the rarest first."""
        found = [
            Holders(self._real(name, value), self._nodes(machines))
            for value, machines in self._merged(name, values)
        ]
        return tuple(sorted(found, key=lambda each: (len(each.nodes), each.nodes)))

    def values(self, names: Names[str] | None = None) -> dict[str, list[tuple[Any, frozenset[int]]]]:
        """Return by fact each value with the machines that have it; None for machines without the fact.

        names: the facts; None for those that differ, or that are in the baseline.
        """
        holders: dict[int, tuple[Section, set[int]]] = {}
        for machine in self._machines:
            for section in self._view.machines[machine]:
                holders.setdefault(id(section), (section, set()))[1].add(machine)
        by_name: dict[str, dict[bytes, tuple[Any, set[int]]]] = {}
        everywhere = frozenset(self._machines)
        for section, machines in holders.values():
            is_common = len(machines) == len(everywhere)
            if is_common and self._baseline is None and names is None:
                continue  # nobody differs in it
            facts = of_all_devices(section.facts) if names is None else section.facts
            for name, value in facts.items():
                if names is not None and name not in names:
                    continue
                by_name.setdefault(name, {}).setdefault(_text(value), (value, set()))[1].update(machines)
        if self._baseline is not None:
            for name in self._baseline.facts:
                by_name.setdefault(name, {})
        found: dict[str, list[tuple[Any, frozenset[int]]]] = {}
        for name, values in by_name.items():
            pairs = [(value, frozenset(machines)) for value, machines in values.values()]
            without = everywhere.difference(*(machines for _, machines in pairs))
            found[name] = pairs + ([(None, without)] if without else [])
        return found

    def _merged(
        self, name: str, values: list[tuple[Any, frozenset[int]]]
    ) -> list[tuple[Any, frozenset[int]]]:
        """Return the values of a metric; those whose measured values are within the tolerance are merged."""
        ranges = dict(self._view.collection.ranges.get(name, {}))
        if not ranges:
            return values
        own = [pair for pair in values if isinstance(pair[0], int | float) and pair[0] in ranges]
        found = [pair for pair in values if pair not in own]
        if self._baseline and name in self._baseline.metrics:
            value, real = self._baseline.metrics[name]
            near = [value for value in own if are_near(real, *ranges[value[0]])]
            own = [value for value in own if value not in near]
            if near:
                found.append((value, frozenset().union(*(machines for _, machines in near))))
        least = None
        for value, machines in sorted(own):
            low, high = ranges[value]
            if least is not None and are_near(least, high):
                found[-1] = (found[-1][0], found[-1][1] | machines)
            else:
                found.append((value, machines))
                least = low
        return found

    def _real(self, name: str, value: Any) -> Any:
        """Return the smallest measured value that was rounded to a metric's value; other values unchanged."""
        rounded, real = (self._baseline.metrics if self._baseline else {}).get(name, (None, 0.0))
        if value is not None and value == rounded:
            return real
        return self._view.collection.real(name, value)


def _text(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _report_order(name: str, title: Names[str]) -> tuple[bool, bool, bool, int, str]:
    """Return the sort key of a fact: the kind, numbers of devices and versions first, then short names."""
    is_short = name.endswith((".devices", ".version"))
    return (name not in title, not is_short, "[" in name, name.count("."), name)


def _unknown(name: str, known: Iterable[str]) -> BadInput | UnknownName:
    """Return the error about a fact that no node has, or that is not kept because nodes differ in it."""
    probe, _, fact = name.partition(".")
    why = {"identity": "each machine has its own", "volatile": "it changes by itself"}
    if (role := roles_of(probe).get(fact.partition(".")[0], "")) in why:
        return BadInput(f"{name} is not compared: {why[role]}")
    return UnknownName("fact in this fleet", name, tuple(known))


def facts_of_fleet(collection: Collection, names: Sequence[str] = ()) -> FleetFacts:
    """Return facts with their values and the nodes of each, the rarest value first.

    names: facts, each with all that is below it, or globs; without any the facts that have several values.
    Raises UnknownName, and Incomplete where no node has a report.
    """
    view = _View(collection)
    known = view.names()
    if not collection.nodes:
        raise Incomplete(f"none of {counted(len(collection.silent), 'node')} has a report")
    chosen: dict[str, None] = {}
    for name in names:
        found = [fact for fact in known if fact == name or fact.startswith((f"{name}.", f"{name}["))]
        found = found or [fact for fact in known if fnmatch.fnmatchcase(fact, name)]
        if not found:
            raise _unknown(name, known)
        chosen.update(dict.fromkeys(found))
    comparison = _Comparison(view, [*view.machines], None)
    values = comparison.values(chosen or None)
    facts = [FleetFact(name, comparison.holders(name, values[name])) for name in (chosen or sorted(values))]
    return FleetFacts(
        schema=FACTS_SCHEMA,
        tool=f"backends {__version__}",
        facts=tuple(fact for fact in facts if chosen or len(fact.values) > 1),
    )
