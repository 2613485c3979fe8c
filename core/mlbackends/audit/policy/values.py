"""The values of one report, looked up by name: what is there, and what is not."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.audit.hazard import ReportView
from mlbackends.audit.policy.names import Condition, Each, Selection
from mlbackends.model.dotted import FIELDS
from mlbackends.model.errors import BadInput, suggestion
from mlbackends.model.records import Device, Library, Report

MOST_VALUES = 5_000_000
"""So many elements a policy may look at in a report: a thousand rules over a hundred devices have 100,000."""


class Found(Struct):
    """What a selection found. values: by dotted name. absent: what is not there, and what it lacks in."""

    values: dict[str, Any]
    absent: dict[str, Any]

    def lacks(self, otherwise: str) -> str:
        """Say of the first thing that is not there that it is not; `otherwise` where all is there."""
        for name, inside in self.absent.items():
            step = name.rpartition(".")[2]
            near = suggestion(step, tuple(inside)) if isinstance(inside, dict) else ""
            return f"{name} is not in the report{near}"
        return otherwise


class Values:
    """The values of one report, looked up by selections."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.view = ReportView(report)
        self._heads: dict[tuple[str, str], Any] = {}
        self._looked_at = 0

    def found(self, selection: Selection, field: str = "") -> Found:
        """Return what a selection finds. field: what is meant of a probe: presence or version."""
        head = selection.head or field
        found = Found({}, {})
        start = self._head(selection.probe, head)
        self._walk(start, selection.steps, f"{selection.probe}.{head}", found)
        return found

    def _head(self, name: str, head: str) -> Any:
        """Return a fact or field in plain types, None where it is not there."""
        key = (name, head)
        if key not in self._heads:
            probe = self.report.probes.get(name)
            if probe is None:
                value = None
            elif head in probe.facts:
                value = probe.facts[head]
            elif head in FIELDS:
                value = _plain(getattr(probe, head))
            else:
                value = None
            self._heads[key] = value
        return self._heads[key]

    def _walk(self, value: Any, steps: tuple[str | Each, ...], label: str, found: Found) -> None:
        if value is None:
            found.absent[label] = None
            return
        if not steps:
            found.values[label] = value
            return
        step, rest = steps[0], steps[1:]
        if isinstance(step, str):
            below = _below(value, step)
            name = f"{label}.{step}"
            if below is None:
                found.absent[name] = value
            else:
                self._walk(below, rest, name, found)
            return
        self._looked_at += len(value) if isinstance(value, dict | list | tuple) else 0
        if self._looked_at > MOST_VALUES:
            raise BadInput(f"{label} has so many values that the policy would take very long")
        for key, element in _elements(value):
            if all(_fits(element, condition) for condition in step.conditions):
                self._walk(element, rest, f"{label}.{key}", found)


def _plain(value: Any) -> Any:
    """Return a field in plain types; devices and libraries with all of their fields."""
    if isinstance(value, tuple):
        return [
            {name: _told(getattr(each, name)) for name in each.__struct_fields__}
            if isinstance(each, Device | Library)
            else msgspec.to_builtins(each)
            for each in value
        ]
    return _told(value)


def _told(value: Any) -> Any:
    """Return a field's value; None where it says nothing."""
    if isinstance(value, tuple):
        return [msgspec.to_builtins(each) for each in value]
    return None if value in ("", msgspec.UNSET) else msgspec.to_builtins(value)


def _below(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list | tuple) and step.isdecimal() and len(step) < 10:
        return value[int(step)] if int(step) < len(value) else None
    return None


def _elements(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)


def _fits(element: Any, condition: Condition) -> bool:
    steps, holds = condition
    for step in steps:
        element = _below(element, step)
    return element is not None and holds(element)
