"""Which values of a report a rule is about: a dotted name, and `[...]` for each of several.

cpu.capability                        one value
cudnn                                 a probe: its presence, or its version
nvidia.devices[*].memory_bytes        of every device
nvidia.devices[0].name                of the first; nvidia.devices.0.name is the same
nvidia.devices[kind == cuda].name     of every device whose kind is cuda
environment.variables."A.B"           what has a dot in it, in quotes
"""

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.audit.hazard import ReportView
from mlbackends.audit.policy import assertions
from mlbackends.base import registry
from mlbackends.base.comparison import SIGNS
from mlbackends.base.condition import Comparison, Language, parse
from mlbackends.base.errors import BadInput, nearest, suggestion
from mlbackends.base.patterns import pattern
from mlbackends.host.declared import facts_of
from mlbackends.model.records import Device, Library, Presence, Report
from mlbackends.survey.dotted import FIELDS, below

PRESENCES = tuple(presence.value for presence in Presence)
NAME = pattern(r"""[A-Za-z_]\w*+(?:\.(?:[A-Za-z0-9_+~-]+|"[^"\n]+"|'[^'\n]+')|\[[^\[\]]*\])*+(?![.\[])""")
#: The most elements that a policy may visit in a report; a thousand rules over 100 devices visit 100,000.
MOST_VALUES = 5_000_000
WORD = pattern(r"""(?:[<>=!]{1,2}\s*)?[^\s,"'\[\]]+""")  # with a sign behind count
_IN_BRACKETS = Language(
    name=pattern(r"[A-Za-z0-9_+~-]+(?:\.[A-Za-z0-9_+~-]+)*"),
    word=WORD,
    operators=(*SIGNS, "matches", "contains", "present"),
    named="a condition such as kind == cuda",
)
_PROBE = pattern(r"[A-Za-z_]\w*")
_STEP = pattern(r"""\.(?:([A-Za-z0-9_+~-]+)|"([^"\n]+)"|'([^'\n]+)')|\[([^\[\]]*)\]""")
_FIELDS_OF = {"devices": Device.__struct_fields__, "libraries": Library.__struct_fields__}

#: The steps to a value below an element, and what it must be.
Condition = tuple[tuple[str, ...], Callable[[Any], bool]]


class Each(Struct, frozen=True):
    """`[*]` and `[kind == cuda]`: those elements for which every condition holds."""

    conditions: tuple[Condition, ...] = ()


class Selection(Struct, frozen=True):
    """A dotted name that was read. head: the fact or field, "" for the probe itself.

    is_identity: whether its values name the machine, and are replaced in a redacted report. kind: the type
    that is declared for the value itself, None where none is. order: the ordered words that the value
    is one of, from the lowest; () for none.
    """

    text: str
    probe: str
    head: str
    steps: tuple[str | Each, ...]
    is_identity: bool = False
    kind: Any = None
    order: tuple[str, ...] = ()

    @property
    def is_of_many(self) -> bool:
        """Return whether it may select more than one value."""
        return any(isinstance(step, Each) for step in self.steps)


@lru_cache(maxsize=4096)
def read(text: str, added: tuple[str, ...] = ()) -> Selection:
    """Read a name that NAME matches. Raises ValueError for one that no report can have.

    added: probes of other packages, which may not be here and are taken as they are. Cached, as many
    rules of a policy have the same name.
    """
    steps: list[str | Each] = []
    for bare, quoted, literal, inner in _STEP.findall(text):
        inside = inner.strip()
        if bare or quoted or literal or inside.isdecimal():
            steps.append(bare or quoted or literal or inside)
        else:
            conditions = () if inside == "*" else map(_condition, inner.split(","))
            steps.append(Each(tuple(conditions)))
    start = _PROBE.match(text)
    assert start is not None
    probe = start[0]
    if probe == "probes" and len(steps) > 1 and isinstance(steps[0], str):
        probe, steps = steps[0], steps[1:]
    if len(steps) > 1 and steps[0] == "facts":
        steps = steps[1:]
    head = steps[0] if steps else ""
    if isinstance(head, Each) or head.isdecimal():
        raise ValueError(f"{probe} is not a list: write {probe}.devices[...] or {probe}.libraries[...]")
    rest = tuple(steps[1:])
    last = rest[-1] if rest else head
    is_presence = not head or last == "presence"
    kind = str if is_presence or (last == "version" and not rest) else None
    if rest and head not in _FIELDS_OF:
        kind = None
    is_identity = head == "devices" and last in ("uuid", "serial")
    order = PRESENCES if is_presence else ()
    selection = Selection(text, probe, head, rest, is_identity, kind, order)
    probes = registry.names(registry.PROBES)
    if probe not in probes and probe in added:
        return selection
    if probe not in probes:
        near = suggestion(probe, (*probes, *added))
        raise ValueError(f"there is no probe named {probe!r}{near}")
    facts = facts_of(probe)
    if head in facts:
        fact = facts[head]
        kind, order = (None, ()) if rest else (fact.kind, fact.order)
        return Selection(text, probe, head, rest, fact.role == "identity", kind, order)
    if head and head not in FIELDS:
        near_names = nearest(head, (*facts, *FIELDS))
        hint = f"; did you mean {probe}.{near_names[0]}?" if near_names else ""
        raise ValueError(f"there is no value named {probe}.{head}{hint}")
    if head in _FIELDS_OF and rest:
        first, second = rest[0], rest[1] if len(rest) > 1 else None
        if isinstance(first, str) and not first.isdecimal():
            raise ValueError(f"{text} names one of several: write {probe}.{head}[*].{first}")
        names = [second] if isinstance(second, str) else []
        names += [path[0] for path, _ in first.conditions] if isinstance(first, Each) else []
        for name in names:
            if name not in _FIELDS_OF[head]:
                raise ValueError(f"{head} have no {name!r}{suggestion(name, _FIELDS_OF[head])}")
    return selection


def _condition(text: str) -> Condition:
    """Read one of the conditions inside brackets: kind == cuda. Raises ValueError."""
    found = parse(text.strip(), _IN_BRACKETS)
    assert isinstance(found, Comparison)
    steps = tuple(found.name.split("."))
    if found.operator == "present":
        return steps, lambda value: value is not None
    word = str(found.operand)
    if found.operator in SIGNS:
        order = PRESENCES if steps[-1] == "presence" else ()
        holds = assertions.compared(found.operator, word, order, None).holds
    else:
        holds = getattr(assertions, found.operator)(word).holds

    def is_so(value: Any) -> bool:
        try:
            return holds(value)
        except BadInput:  # what cannot be compared does not fit
            return False

    return steps, is_so


# ---- the values of a report --------------------------------------------------------------------


class Found(Struct):
    """The values of a selection, by dotted name. absent: names that are not there, and their parents."""

    values: dict[str, Any]
    absent: dict[str, Any]

    def missing(self, otherwise: str) -> str:
        """Return a sentence about the first name that is not there; `otherwise` where all are."""
        for name, inside in self.absent.items():
            step = name.rpartition(".")[2]
            is_named = isinstance(inside, dict) and step not in inside  # there it may be empty
            near = suggestion(step, tuple(inside)) if is_named else ""
            return f"{name} is not in the report{near}"
        return otherwise


class Values:
    """The values of one report, looked up by selections."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.view = ReportView(report)
        self._heads: dict[tuple[str, str], Any] = {}
        self._visited = 0

    def found(self, selection: Selection, field: str = "") -> Found:
        """Return what a selection finds. field: what is meant of a probe: presence or version."""
        key = selection.probe, selection.head or field
        if key not in self._heads:
            probe = self.report.probes.get(selection.probe)
            self._heads[key] = None
            if probe is not None and key[1] in probe.facts:
                self._heads[key] = probe.facts[key[1]]
            elif probe is not None and key[1] in FIELDS:
                self._heads[key] = _plain(getattr(probe, key[1]))
        found = Found({}, {})
        self._walk(self._heads[key], selection.steps, ".".join(key), found)
        return found

    def _walk(self, value: Any, steps: tuple[str | Each, ...], label: str, found: Found) -> None:
        if value is None:
            found.absent[label] = None
            return
        if not steps:
            found.values[label] = value
            return
        step, rest = steps[0], steps[1:]
        if isinstance(step, str):
            name = f"{label}.{step}"
            if (inside := below(value, step)) is None:
                found.absent[name] = value
            else:
                self._walk(inside, rest, name, found)
        elif isinstance(value, dict | list | tuple):
            self._visited += len(value)
            if self._visited > MOST_VALUES:
                raise BadInput(f"{label} has too many values for a policy")
            for key, element in value.items() if isinstance(value, dict) else enumerate(value):
                # The value of each condition; None where it is not there.
                tested = ((reduce(below, steps, element), holds) for steps, holds in step.conditions)
                if all(tested_value is not None and holds(tested_value) for tested_value, holds in tested):
                    self._walk(element, rest, f"{label}.{key}", found)


def _plain(value: Any) -> Any:
    """Return a field in plain types, None where it is empty; devices and libraries with all their fields."""
    if isinstance(value, Device | Library):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        is_records = any(isinstance(item, Device | Library) for item in value)
        return [_plain(item) if is_records else msgspec.to_builtins(item) for item in value]
    return None if value in ("", msgspec.UNSET) else msgspec.to_builtins(value)
