"""Which values of a report a rule is about: a dotted name, and `[...]` for each of several.

cpu.capability                        one value
cudnn                                 a probe: its presence, or its version
nvidia.devices[*].memory_bytes        of every device
nvidia.devices[0].name                of the first; nvidia.devices.0.name is the same
nvidia.devices[kind == cuda].name     of every device whose kind is cuda
environment.variables."A.B"           what has a dot in it, in quotes
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.model import registry
from mlbackends.model.dotted import FIELDS
from mlbackends.model.errors import nearest, suggestion
from mlbackends.model.patterns import pattern
from mlbackends.model.records import Device, Fact, Library, Presence
from mlbackends.model.registry import facts_of

LADDER = tuple(each.value for each in Presence)
_PROBE = pattern(r"[A-Za-z_]\w*")
_STEP = pattern(r"""\.(?:([A-Za-z0-9_+~-]+)|"([^"\n]+)"|'([^'\n]+)')|\[([^\[\]]*)\]""")
_NAME = pattern(r"""[A-Za-z_]\w*+(?:\.(?:[A-Za-z0-9_+~-]+|"[^"\n]+"|'[^'\n]+')|\[[^\[\]]*\])*+""")
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
        return LADDER if self.is_probe or last == "presence" else ()


def end(text: str) -> int:
    """Return where the name ends that a text begins with. Raises ValueError where none is, or a torn one."""
    found = _NAME.match(text)
    if not found:
        raise ValueError(f"{text[:40]!r} does not begin with a name such as cpu.capability")
    at = found.end()
    if text[at : at + 1] in ("[", "."):
        raise ValueError(
            f"{text[at : at + 30]!r} cannot be read:"
            " a name goes on with .WORD or [*], [0], [kind == cuda]"
        )
    return at


def read(text: str, conditions: Callable[[str], Condition]) -> Selection:
    """Read a name. conditions: reads one condition inside brackets. Raises ValueError."""
    start = _PROBE.match(text)
    assert start is not None
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
    return Selection(text, probe, head, tuple(steps[1:]))


def declared(selection: Selection, added: tuple[str, ...]) -> Selection:
    """Return the selection with what its probe declares. Raises ValueError for a name that is none.

    added: names of probes that may come from elsewhere and are taken as they are.
    """
    probes = registry.names("mlbackends_probes")
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
