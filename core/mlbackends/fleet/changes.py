"""The difference between two states of a fleet: facts that changed, on which nodes, and on which not."""

from collections.abc import Iterator
from typing import Any

import msgspec

from mlbackends.base.version import __version__
from mlbackends.fleet.collection import MISSING, Collection, are_near
from mlbackends.fleet.fingerprint import Facts
from mlbackends.model.fleet import (
    DIFFERENCE_SCHEMA,
    Change,
    FleetDifference,
    Silent,
    Status,
    Step,
)

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
            why = after.silent.get(node, MISSING)
            gone.setdefault(why, []).append(node)
    left_out = sorted(before.varying | after.varying)
    notes = [f"not compared, since nearly every node has its own value: {', '.join(left_out)}"]
    return FleetDifference(
        schema=DIFFERENCE_SCHEMA,
        tool=f"backends {__version__}",
        before=names[0],
        after=names[1],
        nodes=len(common),
        new=tuple(sorted(node for node in after.nodes if node not in before.nodes)),
        silent=tuple(
            Silent(status, error, tuple(sorted(nodes)))
            for (status, error), nodes in sorted(gone.items())
        ),
        changes=tuple(
            sorted(
                _changes(pairs, steps, comparison),
                key=lambda change: (-len(change.nodes), change.nodes),
            )
        ),
        notes=tuple(notes if left_out else ()),
    )


def _changes(
    pairs: dict[tuple[int, int], list[str]],
    steps: dict[tuple[int, int], _Steps],
    comparison: "_Comparison",
) -> Iterator[Change]:
    """Yield the changes; facts that changed, and did not change, on the same nodes are one change."""
    changed: dict[tuple[str, bytes], tuple[Step, Any, list[tuple[int, int]]]] = {}
    for pair, reached in steps.items():
        for name, (was, now) in reached.items():
            key = (name, msgspec.json.encode((was, now), order="deterministic"))
            step = Step(name, comparison.real(0, name, was), comparison.real(1, name, now))
            changed.setdefault(key, (step, was, []))[2].append(pair)
    alike: dict[tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]], list[Step]] = {}
    for step, was, movers in changed.values():
        stayed = [
            pair
            for pair in pairs
            if step.name not in steps[pair] and comparison.was(pair[0], step.name) == was
        ]
        counts = [sum(len(pairs[pair]) for pair in some) for some in (movers, stayed)]
        behind = frozenset(stayed if counts[0] > counts[1] else ())
        alike.setdefault((frozenset(movers), behind), []).append(step)
    for (movers_of, behind), found_steps in alike.items():
        nodes, left = (
            tuple(sorted(node for pair in some for node in pairs[pair]))
            for some in (movers_of, behind)
        )
        short_first = sorted(found_steps, key=lambda step: ("[" in step.name, len(step.name)))
        yield Change(nodes, left, tuple(short_first))


class _Comparison:
    """Compares machines of two collections."""

    def __init__(self, before: Collection, after: Collection) -> None:
        self._sides = (before, after)
        self._left_out = before.varying | after.varying
        self._facts: tuple[dict[int, Facts], dict[int, Facts]] = ({}, {})
        self._numbers = [
            {machine: numbers for numbers, machine in side.machines.items()} for side in self._sides
        ]

    def was(self, machine: int, name: str) -> Any:
        """Return a fact of a machine before."""
        return self._of(0, machine).get(name)

    def steps(self, before: int, after: int) -> _Steps:
        """Return the facts that differ, with both values."""
        was, now = self._of(0, before), self._of(1, after)
        return {
            name: (was.get(name), now.get(name))
            for name in {**was, **now}
            if was.get(name) != now.get(name)
            and name not in self._left_out
            and not self._is_near(name, was.get(name), now.get(name))
        }

    def real(self, side: int, name: str, value: Any) -> Any:
        """Return the value of one side as it is shown."""
        return self._sides[side].real(name, value)

    def _of(self, side: int, machine: int) -> Facts:
        if machine not in self._facts[side]:
            numbers = self._numbers[side][machine]
            sections = (self._sides[side].sections[number] for number in numbers)
            self._facts[side][machine] = {
                name: value for section in sections for name, value in section.facts.items()
            }
        return self._facts[side][machine]

    def _is_near(self, name: str, *values: Any) -> bool:
        """Return whether the measured values of two rounded metrics are within the tolerance."""
        ranges = [side.ranges.get(name, {}) for side in self._sides]
        if not all(ranges) or any(
            not isinstance(value, int | float) or value not in known
            for value, known in zip(values, ranges, strict=True)
        ):
            return False
        ends = [end for value, known in zip(values, ranges, strict=True) for end in known[value]]
        return are_near(*ends)
