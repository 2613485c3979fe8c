"""The difference between two states of a fleet: facts that changed, on which nodes, and on which not."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from mlbackends.audit.canonical import encoded
from mlbackends.base.version import __version__
from mlbackends.fleet.collection import MISSING, MOST_VALUES, Collection, Section
from mlbackends.fleet.fingerprint import Facts, of_all_devices
from mlbackends.fleet.groups import values_of
from mlbackends.model.fleet import DIFFERENCE_SCHEMA, Change, FleetDifference, Silent, Status, Step

_Steps = dict[str, tuple[Any, Any]]


def difference_of(
    before: Collection, after: Collection, names: tuple[str, str] = ("", "")
) -> FleetDifference:
    """Return what changed on the nodes that reported both times. names: of the two states, for people."""
    comparison = _Comparison(before, after)
    common = [node for node in before.nodes if node in after.nodes]
    pairs: dict[tuple[int, int], list[str]] = {}
    for node in common:
        pairs.setdefault((before.nodes[node], after.nodes[node]), []).append(node)
    steps = {pair: comparison.steps(*pair) for pair in pairs}
    gone: dict[tuple[Status, str], list[str]] = {}
    for node in before.nodes:
        if node not in after.nodes:
            gone.setdefault(after.silent.get(node, MISSING), []).append(node)
    left_out = sorted(before.varying | after.varying)
    notes = [f"not compared, more than {MOST_VALUES:,} values: {', '.join(left_out)}"]
    return FleetDifference(
        schema=DIFFERENCE_SCHEMA,
        tool=f"backends {__version__}",
        before=names[0],
        after=names[1],
        nodes=len(common),
        new=tuple(sorted(node for node in after.nodes if node not in before.nodes)),
        silent=tuple(
            Silent(status, error, tuple(sorted(nodes))) for (status, error), nodes in sorted(gone.items())
        ),
        changes=tuple(
            sorted(
                _changes(pairs, steps, comparison, before, after),
                key=lambda change: (-len(change.nodes), change.nodes),
            )
        ),
        notes=tuple(notes if left_out else ()),
    )


def _changes(
    pairs: dict[tuple[int, int], list[str]],
    steps: dict[tuple[int, int], _Steps],
    comparison: "_Comparison",
    *sides: Collection,
) -> Iterator[Change]:
    """Yield the changes; facts that changed, and did not change, on the same nodes are one change.

    A fact that has the same new value wherever it changed has changed once, whatever it was before.
    """
    changed: dict[tuple[str, bytes], dict[bytes, tuple[Step, Any, list[tuple[int, int]]]]] = {}
    for pair, differing in steps.items():
        for name, (was, now) in differing.items():
            before, after = (encoded(value) for value in (was, now))
            real = [side.real(name, value) for side, value in zip(sides, (was, now), strict=True)]
            step = Step(name, *real)
            movers = changed.setdefault((name, after), {})
            movers.setdefault(before, (step, was, []))[2].append(pair)

    def nodes_of(some: Iterable[tuple[int, int]]) -> tuple[str, ...]:
        return tuple(sorted(node for pair in some for node in pairs[pair]))

    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Step]] = {}
    for (name, _), movers in changed.items():
        formers = [was for _, was, _ in movers.values()]
        nodes = nodes_of(pair for _, _, some in movers.values() for pair in some)
        stayed = nodes_of(
            pair
            for pair in pairs
            if name not in steps[pair]
            and (was := comparison.of(0, pair[0]).get(name)) in formers
            and (was is None) == (comparison.of(1, pair[1]).get(name) is None)
        )
        behind = stayed if len(nodes) > len(stayed) else ()
        alike.setdefault((nodes, behind), []).extend(
            replace(step, nodes=nodes_of(some)) if len(movers) > 1 else step
            for step, _, some in movers.values()
        )
    for (nodes, behind), found_steps in alike.items():
        short_first = sorted(found_steps, key=lambda step: ("[" in step.name, len(step.name)))
        yield Change(nodes, behind, tuple(short_first))


class _Comparison:
    """Compares machines of two collections."""

    def __init__(self, before: Collection, after: Collection) -> None:
        self._sides = (before, after)
        self._left_out = before.varying | after.varying
        self._facts: tuple[dict[int, Facts], dict[int, Facts]] = ({}, {})
        self._numbers = [
            {machine: numbers for numbers, machine in side.machines.items()} for side in self._sides
        ]

    def steps(self, before: int, after: int) -> _Steps:
        """Return the facts that differ, with both values."""
        both = {0: self._sections(0, before), 1: self._sections(1, after)}
        found: _Steps = {}
        for name, values in values_of(both).items():
            states = {side: value for value, sides in values for side in sides}
            if len(values) < 2 or name in self._left_out:
                continue
            if not self._sides[0].is_near(name, states[0], self._sides[1], states[1]):
                found[name] = (states[0], states[1])
        return found

    def of(self, side: int, machine: int) -> Facts:
        """Return the facts of a machine, before (0) or after (1)."""
        if machine not in self._facts[side]:
            facts = self._facts[side].setdefault(machine, {})
            for section in self._sections(side, machine):
                facts |= of_all_devices(section.facts)
        return self._facts[side][machine]

    def _sections(self, side: int, machine: int) -> list[Section]:
        return [self._sides[side].sections[number] for number in self._numbers[side][machine]]
