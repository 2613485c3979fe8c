"""Differences within a collection: kinds of nodes, and the nodes of each kind that deviate."""

import fnmatch
import re
from collections import Counter
from collections.abc import Container as Names
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cache
from itertools import chain
from typing import Any

import msgspec
from msgspec import Raw, Struct

from mlbackends.audit.canonical import UNDETERMINED, encoded
from mlbackends.base.errors import BadInput, Incomplete, UnknownName, counted
from mlbackends.base.version import __version__
from mlbackends.fleet.collection import HEAD, Collection, Section, roles_of
from mlbackends.fleet.fingerprint import Depth, Facts, of_all_devices, to_depth, whole
from mlbackends.fleet.membership import Membership
from mlbackends.fleet.nodesets import folded
from mlbackends.fleet.records import outliers
from mlbackends.model.fleet import (
    FACTS_SCHEMA,
    GROUP,
    MAJORITY,
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
    Outlier,
    Silent,
    Split,
)
from mlbackends.model.records import OPENED, FactValue, Presence, Report

#: The facts that define a kind. Not the number of GPUs: a node that lost one would be a separate kind.
BY = ("cpu.model_name", "*.devices.name", "*.processor")

#: From this many nodes on, a fact with values for more than half of them is presumed to differ on every node.
_MANY = 50
#: A kind of few nodes is drift: one node next to a kind of 3, and up to 3 next to a kind 20 times as large.
_FEW, _TIMES = 3, 20
#: The machine in whose place the baseline is compared.
_GOLDEN = -1
_LEVELS: dict[Any, int] = {str(presence): presence.level for presence in Presence}
#: How facts end that state from where another one is known, which depends on the depth.
_ABOUT_KNOWLEDGE = ("_source", ".found_by")
#: The ranges of nodes that a note names.
_MOST_RANGES = 12


class Baseline(Struct):
    """What nodes should be. name: for people. collection: of its report alone."""

    name: str
    collection: Collection


def baseline_of(report: Report, name: str) -> Baseline:
    """Return a report as the baseline that nodes are compared with."""
    collection = Collection()
    collection.add(Envelope(node=name, report=Raw(msgspec.json.encode(report))))
    return Baseline(name, collection)


def fleet_of(
    collection: Collection,
    by: Sequence[str] = (),
    baseline: Baseline | None = None,
    membership: Membership | None = None,
    baselines: Mapping[str, Baseline] | None = None,
) -> Fleet:
    """Return the fleet that a collection describes.

    by: the facts that define a kind of nodes, BY if empty; "*" matches any probe. baseline: what nodes are
    compared with; without it, with the value that most nodes of their kind have. membership: groups, of which
    each is compared by itself; a node of several groups is in each. baselines: those of groups, by name.
    Raises UnknownName for a fact that no node has.
    """
    view = _View(collection)
    known_names = view.names()
    for name in by:
        if "*" not in name and name not in known_names and known_names:
            raise _unknown(name, known_names)
    silent = tuple(
        Silent(status, error, tuple(sorted(names)))
        for (status, error), names in sorted(collection.all_silent().items())
    )
    groups: dict[str, tuple[str, ...]] = {}
    if membership is not None:
        groups = _grouped(chain(collection.nodes, *(alike.nodes for alike in silent)), membership)
    parts = {group: view.only(names) for group, names in groups.items()} if membership else {None: view}
    kinds: list[Kind] = []
    far: dict[tuple[str, str], Outlier] = {}
    for group, part in parts.items():
        golden = (baselines or {}).get(group or "", baseline)
        own = {} if group is None else {GROUP: group or None}
        members_by_kind = list(_kinds(part, by or BY))
        joined = {} if by or golden else _joined(part, members_by_kind)
        for at, (title, members) in enumerate(members_by_kind):
            others = [
                machine for few, near in joined.items() if near == at for machine in members_by_kind[few][1]
            ]
            if at not in joined:
                kinds.append(_Comparison(part, members, golden, others).kind(own | title))
            nodes = [node for machine in members for node in part.nodes[machine]]
            for outlier in outliers(collection.figures, nodes):
                far.setdefault((outlier.node, outlier.name), outlier)
    # Groups that differ come first, and the others keep their order.
    kinds.sort(key=lambda kind: (not kind.others, -kind.nodes if kind.drifts or not groups else 1))
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
        notes=(*_notes(collection, view, unexpected), *_notes_on(groups, membership, baselines or {})),
        expected=expected,
        silent=silent,
        repeated=dict(collection.repeated),
        garbled=dict(collection.garbled),
        configurations=tuple(
            Configuration(
                fingerprint=whole({section.probe: section.fingerprint for section in sections}),
                nodes=tuple(view.nodes[machine]),
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
        outliers=tuple(far.values()),
        unchecked=collection.unchecked,
        flagged=collection.flagged,
        groups=groups,
    )


def _grouped(nodes: Iterable[str], membership: Membership) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each group: groups by the numbers in their names, and nodes in none at the end."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for group in membership.of(node) or ("",):
            found.setdefault(group, []).append(node)

    def key(name: str) -> tuple[bool, list[tuple[int, str]]]:
        parts = re.split("([0-9]+)", name)
        return not name, [(int(part) if part.isdecimal() else -1, part) for part in parts]

    return {group: tuple(sorted(found[group])) for group in sorted(found, key=key)}


def _notes_on(
    groups: Mapping[str, Sequence[str]], membership: Membership | None, baselines: Mapping[str, Baseline]
) -> Iterable[str]:
    if membership is None:
        return
    if lone := groups.get("", ()):
        nodes, verb = counted(len(lone), "node"), "is" if len(lone) == 1 else "are"
        yield f"{nodes} {verb} in no group of {membership.source}: {folded(lone, _MOST_RANGES)}"
    counts = Counter(chain.from_iterable(groups.values()))
    if several := [node for node, count in counts.items() if count > 1]:
        nodes, verb = counted(len(several), "node"), "is" if len(several) == 1 else "are"
        yield f"{nodes} {verb} in several groups, and compared in each: {folded(several, _MOST_RANGES)}"
    for group in baselines:
        if group not in groups:
            yield f"no node is in group {group}, which has a baseline"


def _notes(collection: Collection, view: "_View", unexpected: Sequence[str]) -> Iterable[str]:
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
    depths: dict[str, list[str]] = {}
    for machine, sections in view.machines.items():
        for section in sections:
            if section.probe == HEAD:
                depths.setdefault(str(section.facts.get(f"{HEAD}.depth")), []).extend(view.nodes[machine])
    if len(depths) > 1:
        listed = ", ".join(f"{depth} ({folded(depths[depth], _MOST_RANGES)})" for depth in sorted(depths))
        yield f"nodes were inspected to different depths, and compared in what all can have: {listed}"


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
        self.titles: dict[int, dict[str, FactValue | None]] = {}

    def only(self, names: Iterable[str]) -> "_View":
        """Return the view of these nodes alone, of those that have a report."""
        view = copy(self)
        view.nodes = {}
        for name in names:
            if (machine := self.collection.nodes.get(name)) is not None:
                view.nodes.setdefault(machine, []).append(name)
        view.machines = {machine: self.machines[machine] for machine in sorted(view.nodes)}
        return view

    def names(self) -> dict[str, None]:
        """Return the name of every fact."""
        return dict.fromkeys(name for section in self.collection.sections.values() for name in section.facts)


def _kinds(view: _View, by: Sequence[str]) -> Iterable[tuple[dict[str, FactValue | None], list[int]]]:
    """Yield the kinds of nodes: their title, and the machines of each."""
    found: dict[bytes, tuple[dict[str, FactValue | None], list[int]]] = {}
    titles = view.titles
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
        found.setdefault(encoded(title), (title, []))[1].append(machine)
    return found.values()


def _joined(view: _View, kinds: Sequence[tuple[dict[str, FactValue | None], list[int]]]) -> dict[int, int]:
    """Return the places of kinds of few nodes, each with that of the large kind that is most like it."""
    sizes = [sum(len(view.nodes[machine]) for machine in machines) for _, machines in kinds]
    found: dict[int, int] = {}

    @cache
    def facts_of(at: int) -> set[tuple[str, bytes]]:
        machine = max(kinds[at][1], key=lambda machine: len(view.nodes[machine]))
        pairs = (pair for section in view.machines[machine] for pair in section.facts.items())
        return {(name, encoded(value)) for name, value in pairs}

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
        self._view, self._machines = view, [*machines, *others]
        self._golden = baseline.collection if baseline else None
        self._compared_with = baseline.name if baseline else MAJORITY
        self._others = frozenset(others)
        self._sizes = {machine: len(view.nodes[machine]) for machine in self._machines}
        self._total = sum(self._sizes.values())

    def kind(self, title: dict[str, FactValue | None]) -> Kind:
        """Return what the machines have in common and how they differ."""
        not_compared = []
        alike: dict[frozenset[int], list[Difference]] = {}
        splits: dict[tuple[tuple[str, ...], ...], dict[str, tuple[Any, ...]]] = {}
        for name, values in self.values().items():
            if len(values) == 1:
                continue
            values = self._merged(name, values)
            if self._total >= _MANY and len(values) > self._total // 2:
                not_compared.append(name)
                continue
            if self._golden is not None:
                most = [value for value, machines in values if _GOLDEN in machines]
            else:
                own = self._size(frozenset().union(*(machines for _, machines in values)) - self._others)
                most = [value for value, having in values if 2 * self._size(having - self._others) > own]
            if not most:
                if self._golden is None:  # else only a report that is deeper than the baseline can have it
                    holders = self.holders(name, values)
                    groups = tuple(group.nodes for group in holders)
                    splits.setdefault(groups, {})[name] = tuple(group.value for group in holders)
                continue
            every = self._view.collection
            usual = (self._golden or every).real(name, most[0])
            for value, machines in values:
                if value != most[0]:
                    difference = Difference(name, every.real(name, value), usual)
                    alike.setdefault(machines, []).append(difference)
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
            compared_with=self._compared_with,
        )

    def values(self, names: Names[str] | None = None) -> dict[str, list[tuple[Any, frozenset[int]]]]:
        """Return what `values_of` does for the machines, and for the baseline as the machine _GOLDEN."""
        sections = {machine: self._view.machines[machine] for machine in self._machines}
        golden = {_GOLDEN: [*self._golden.sections.values()]} if self._golden else {}
        return values_of(sections | golden, names)

    def _size(self, machines: Iterable[int]) -> int:
        return sum(self._sizes[machine] for machine in machines)

    def _nodes(self, machines: Iterable[int]) -> tuple[str, ...]:
        return tuple(sorted(node for machine in machines for node in self._view.nodes.get(machine, ())))

    def holders(self, name: str, values: list[tuple[Any, frozenset[int]]]) -> tuple[Holders, ...]:
        """Return the values of a fact with their nodes, the rarest first."""
        found = [
            Holders(self._view.collection.real(name, value), self._nodes(machines))
            for value, machines in self._merged(name, values)
        ]
        return tuple(sorted(found, key=lambda each: (len(each.nodes), each.nodes)))

    def _merged(
        self, name: str, values: list[tuple[Any, frozenset[int]]]
    ) -> list[tuple[Any, frozenset[int]]]:
        """Return the values of a metric; those whose measured values are within the tolerance are merged."""
        probe, _, fact = name.partition(".")
        if len(values) < 2 or roles_of(probe).get(fact.partition(".")[0]) != "metric":
            return values
        every = self._view.collection
        found: list[tuple[Any, frozenset[int]]] = []
        # What is near the baseline's value counts as that.
        for value, machines in sorted(values, key=lambda pair: (_GOLDEN not in pair[1], _ascending(pair[0]))):
            for at, (first, others) in enumerate(found):
                side = self._golden if self._golden and _GOLDEN in others else every
                if every.is_near(name, value, side, first):
                    found[at] = (first, others | machines)
                    break
            else:
                found.append((value, machines))
        return found


def values_of(
    sections_by_machine: Mapping[int, Sequence[Section]], names: Names[str] | None = None
) -> dict[str, list[tuple[Any, frozenset[int]]]]:
    """Return by fact each value with the machines that have it; None for machines without the fact.

    names: the facts; None for those that are in a section in which machines differ. These are compared as
    reports of the least depth have them: a machine that was not asked for a fact has no value of it.
    """
    holders: dict[tuple[str, str], tuple[Section, set[int]]] = {}
    levels = dict.fromkeys(sections_by_machine, 0)
    for machine, sections in sections_by_machine.items():
        for section in sections:
            holders.setdefault((section.probe, section.fingerprint), (section, set()))[1].add(machine)
            if section.probe == HEAD:
                levels[machine] = _LEVELS.get(section.facts.get(f"{HEAD}.depth"), 0)
    depths: dict[str, dict[int, Depth]] = {}
    unknown: dict[str, set[int]] = {}
    for section, machines in holders.values():
        probe, facts = section.probe, section.facts
        outcomes = {facts[name] for name in facts if name.startswith(f"{probe}.imports.")}
        if probe not in depths:
            depths[probe] = {machine: Depth(level, True) for machine, level in levels.items()}
        depths[probe].update((machine, Depth(levels[machine], outcomes != {OPENED})) for machine in machines)
        if facts.get(f"{probe}.presence") == UNDETERMINED:
            unknown.setdefault(probe, set()).update(machines)
    least = {
        probe: Depth(min(levels.values()), all(depth.is_imported for depth in row.values()))
        for probe, row in depths.items()
        if names is None and len({*row.values()}) > 1
    }
    by_name: dict[str, dict[bytes, tuple[Any, set[int]]]] = {}
    for section, machines in holders.values():
        if len(machines) == len(sections_by_machine) and names is None:
            continue  # nobody differs in it
        facts = section.facts
        if names is None:
            facts = to_depth(facts, least[section.probe]) if section.probe in least else facts
            facts = of_all_devices(facts)
        for name, value in facts.items():
            if names is None or name in names:
                by_name.setdefault(name, {}).setdefault(encoded(value), (value, set()))[1].update(machines)
    if names is None:
        by_name.pop(f"{HEAD}.depth", None)
    found: dict[str, list[tuple[Any, frozenset[int]]]] = {}
    for name, values in by_name.items():
        probe = name.partition(".")[0]
        pairs = [(value, frozenset(machines)) for value, machines in values.values()]
        having = frozenset().union(*(machines for _, machines in pairs))
        without = frozenset(sections_by_machine) - having
        if names is None:
            without -= unknown.get(probe, set())
        if probe in least and not name.endswith(".presence"):
            row = depths[probe]
            deepest = max(row[machine] for machine in having)
            without = frozenset(machine for machine in without if row[machine] >= deepest)
            if name.endswith(_ABOUT_KNOWLEDGE):
                less = {machine for machine in having if row[machine] < deepest}
                pairs = [(value, machines - less) for value, machines in pairs if not machines <= less]
        found[name] = pairs + ([(None, without)] if without else [])
    return found


def _ascending(value: FactValue | None) -> tuple[bool, float, bytes]:
    """Return the sort key of a value: numbers first."""
    is_number = isinstance(value, int | float)
    return (not is_number, value if isinstance(value, int | float) else 0, encoded(value))


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


def facts_named(names: Iterable[str], known: Iterable[str]) -> dict[str, None]:
    """Return the known facts that names mean: a fact with all that is below it, or a glob.

    Raises UnknownName, and BadInput for facts that are not compared.
    """
    chosen: dict[str, None] = {}
    for name in names:
        found = [fact for fact in known if fact == name or fact.startswith((f"{name}.", f"{name}["))]
        found = found or [fact for fact in known if fnmatch.fnmatchcase(fact, name)]
        if not found:
            raise _unknown(name, known)
        chosen.update(dict.fromkeys(found))
    return chosen


def facts_of_fleet(collection: Collection, names: Sequence[str] = ()) -> FleetFacts:
    """Return facts with their values and the nodes of each, the rarest value first.

    names: facts, each with all that is below it, or globs; without any the facts that have several values.
    Raises UnknownName, and Incomplete where no node has a report.
    """
    view = _View(collection)
    known = view.names()
    if not collection.nodes:
        raise Incomplete(f"none of {counted(len(collection.silent), 'node')} has a report")
    chosen = facts_named(names, known)
    comparison = _Comparison(view, [*view.machines], None)
    values = comparison.values(chosen or None)
    facts = [FleetFact(name, comparison.holders(name, values[name])) for name in (chosen or sorted(values))]
    return FleetFacts(
        schema=FACTS_SCHEMA,
        tool=f"backends {__version__}",
        facts=tuple(fact for fact in facts if chosen or len(fact.values) > 1),
    )
