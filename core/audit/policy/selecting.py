"""Which values of a report a rule is about: a dotted name, and `[...]` for each of several.

cpu.capability                        one value
cudnn                                 a probe: its presence, or its version
nvidia.devices[*].memory_bytes        of every device
nvidia.devices[0].name                of the first; nvidia.devices.0.name is the same
nvidia.devices[kind == cuda].name     of every device whose kind is cuda
environment.variables."A.B"           what has a dot in it, in quotes
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.audit.known import Known
from mlbackends.model import registry
from mlbackends.model.dotted import FIELDS
from mlbackends.model.errors import nearest, suggestion
from mlbackends.model.patterns import pattern
from mlbackends.model.records import Device, Fact, Library, Presence, Report

LADDER = tuple(each.value for each in Presence)
_PROBE = pattern(r"[A-Za-z_]\w*")
_STEP = pattern(r"""\.(?:([A-Za-z0-9_+~-]+)|"([^"\n]+)"|'([^'\n]+)')|\[([^\[\]]*)\]""")
_DEVICE_FIELDS = Device.__struct_fields__
_LIBRARY_FIELDS = Library.__struct_fields__
_IDENTITIES = ("uuid", "serial")

Condition = tuple[tuple[str, ...], Callable[[Any], bool]]
"""The steps to a value below an element, and what it must be."""


class Each(Struct, frozen=True):
    """`[*]` and `[kind == cuda]`: those elements for which every condition holds."""

    conditions: tuple[Condition, ...] = ()


class Selection(Struct, frozen=True):
    """A dotted name that was read. head: the fact or field, "" for the probe itself."""

    text: str
    probe: str
    head: str
    steps: tuple[str | Each, ...]
    fact: Fact | None = None

    @property
    def is_of_many(self) -> bool:
        """Tell whether it may select more than one value."""
        return any(isinstance(step, Each) for step in self.steps)

    @property
    def is_probe(self) -> bool:
        """Tell whether it names a probe as such."""
        return not self.head

    @property
    def is_identity(self) -> bool:
        """Tell whether its values name the machine, and are replaced in a redacted report."""
        if self.fact is not None:
            return self.fact.role == "identity"
        return self.head == "devices" and bool(self.steps) and self.steps[-1] in _IDENTITIES

    @property
    def kind(self) -> Any:
        """The type that is declared for the value itself, None where none is."""
        if self.steps:
            is_presence = self.head in ("devices", "libraries") and self.steps[-1] == "presence"
            return str if is_presence else None
        if self.fact is not None:
            return self.fact.kind
        return str if self.head in ("", "version", "presence") else None

    @property
    def order(self) -> tuple[str, ...]:
        """The words of the ladder on which the value stands, from the lowest; () for none."""
        if self.fact is not None:
            return self.fact.order if not self.steps else ()
        last = self.steps[-1] if self.steps else self.head
        return LADDER if last == "presence" else ()


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


def read(text: str, conditions: Callable[[str], Condition]) -> tuple[Selection, str]:
    """Read a name at the start of a text; return it and the rest.

    conditions: reads one condition inside brackets. Raises ValueError with what is wrong.
    """
    start = _PROBE.match(text)
    if not start:
        raise ValueError(f"{text[:40]!r} does not begin with a name such as cpu.capability")
    at = start.end()
    steps: list[str | Each] = []
    while found := _STEP.match(text, at):
        bare, quoted, literal, inner = found.groups()
        if inner is None:
            steps.append(bare or quoted or literal)
        elif inner.strip().isdecimal():
            steps.append(inner.strip())
        elif inner.strip() == "*":
            steps.append(Each())
        else:
            steps.append(Each(tuple(conditions(part.strip()) for part in inner.split(","))))
        at = found.end()
    if text[at : at + 1] in ("[", "."):
        raise ValueError(
            f"{text[at : at + 30]!r} cannot be read: a name goes on with .WORD or [*], [0], [kind == cuda]"
        )
    probe = start[0]
    if probe == "probes" and len(steps) > 1 and isinstance(steps[0], str):
        probe, steps = steps[0], steps[1:]
    if len(steps) > 1 and steps[0] == "facts":
        steps = steps[1:]
    head = steps[0] if steps else ""
    if isinstance(head, Each) or head.isdecimal():
        raise ValueError(
            f"{probe} is no list: write {probe}.devices[...] or {probe}.libraries[...]"
        )
    return Selection(text[:at], probe, head, tuple(steps[1:])), text[at:]


def declared(selection: Selection, added: tuple[str, ...]) -> Selection:
    """Return the selection with what its probe declares. Raises ValueError for a name that is none.

    added: names of probes that may come from elsewhere and are taken as they are.
    """
    probes = registry.names("probes")
    if selection.probe not in probes:
        if selection.probe in added:
            return selection
        raise ValueError(
            f"there is no probe named {selection.probe!r}{suggestion(selection.probe, (*probes, *added))}"
        )
    if selection.is_probe:
        return selection
    facts = facts_of(selection.probe)
    if selection.head in facts:
        return msgspec.structs.replace(selection, fact=facts[selection.head])
    known = (*facts, *FIELDS)
    if selection.head not in FIELDS:
        near = nearest(selection.head, known)
        hint = f"; did you mean {selection.probe}.{near[0]}?" if near else ""
        raise ValueError(f"there is no value named {selection.probe}.{selection.head}{hint}")
    _check_fields(selection)
    return selection


@cache
def facts_of(probe: str) -> dict[str, Fact]:
    """Return the facts that a probe declares, by name; {} for one that is not here."""
    if probe not in registry.names("probes"):
        return {}
    return {fact.name: fact for fact in getattr(registry.load("probes", probe), "FACTS", ())}


def _check_fields(selection: Selection) -> None:
    """Refuse what no device and no library has."""
    fields = {"devices": _DEVICE_FIELDS, "libraries": _LIBRARY_FIELDS}.get(selection.head)
    if fields is None or not selection.steps:
        return
    first, *rest = selection.steps
    if isinstance(first, str) and not first.isdecimal():
        raise ValueError(
            f"{selection.text} names one of several: write {selection.probe}.{selection.head}[*].{first}"
        )
    names = [step for step in rest[:1] if isinstance(step, str)]
    conditions = first.conditions if isinstance(first, Each) else ()
    names += [steps[0] for steps, _ in conditions]
    for name in names:
        if name not in fields:
            raise ValueError(f"{selection.head} have no {name!r}{suggestion(name, fields)}")


class Values:
    """The values of one report, looked up by selections."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.known = Known(report)
        self._heads: dict[tuple[str, str], Any] = {}

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
