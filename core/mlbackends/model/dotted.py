"""One dotted name for every value of a report: `cpu.capability`, `cudnn.version`, `nvidia.devices.0.name`.

The same names serve `--get`, `--require`, policies, diffs and fleets. After the probe's name comes a
fact, or a field of its report.
"""

from typing import Any

import msgspec

from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.reasons import UNCERTAIN
from mlbackends.model.records import ProbeReport, Report

FIELDS = tuple(name for name in ProbeReport.__struct_fields__ if name != "facts")


class NoValue(LookupError):
    """The name is right, and this machine has no such value. Carries the probe's report."""

    def __init__(self, name: str, probe: ProbeReport) -> None:
        super().__init__(name)
        self.probe = probe


def is_certain(probe: ProbeReport) -> bool:
    """Tell whether a probe could say how it is; one that was stopped or refused could not."""
    return probe.failure is None and not any(reason.code in UNCERTAIN for reason in probe.reasons)


def undetermined(report: Report) -> list[str]:
    """Return what a report leaves open: probes, or copies and devices of a probe that itself could tell."""
    found = []
    for name, probe in report.probes.items():
        things = [(library.path, library.reasons) for library in probe.libraries]
        things += [(f"{each.kind}:{each.index}", each.reasons) for each in probe.devices]
        parts = [each for each, reasons in things if any(r.code in UNCERTAIN for r in reasons)]
        if probe.presence is None or not is_certain(probe):
            found.append(name)
        elif parts:
            found.append(f"{name} ({', '.join(parts)})")
    return found


def plain(name: str) -> str:
    """Return a dotted name in its short form; that of the JSON is taken too.

    probes.cpu.facts.capability -> cpu.capability.
    """
    parts = name.removeprefix(".").split(".")
    if parts[0] == "probes" and len(parts) > 1:
        parts = parts[1:]
    if len(parts) > 2 and parts[1] == "facts":
        parts = [parts[0], *parts[2:]]
    return ".".join(parts)


def value(report: Report, name: str, declared: tuple[str, ...] = ()) -> Any:
    """Return the value under a dotted name.

    declared: the facts that the probe declares, for telling a wrong name from a value that is not
    here. Raises UnknownName for a name that no machine has, NoValue for one that this one lacks.
    """
    name = plain(name)
    probe_name, _, rest = name.partition(".")
    if probe_name not in report.probes:
        raise UnknownName("probe", probe_name, tuple(report.probes))
    probe = report.probes[probe_name]
    if not rest:
        hint = f"try {probe_name}.presence, or press TAB behind {probe_name}."
        raise BadInput(f"{name} names a probe, not a value", hint)
    head, *path = rest.split(".")
    # A fact comes first: every fact has its dotted name, also where a field has the same.
    if head in probe.facts:
        found: Any = probe.facts[head]
    elif head in declared:
        raise NoValue(name, probe)
    elif head in FIELDS:
        found = msgspec.to_builtins(getattr(probe, head))
        found = list(found) if isinstance(found, tuple) else found
        if head in ("version", "failure", "presence") and not found:
            raise NoValue(name, probe)
    else:
        raise UnknownName(
            "value", name, tuple(f"{probe_name}.{each}" for each in (*declared, *FIELDS))
        )
    for step in path:
        if (found := below(found, step)) is None:
            raise NoValue(name, probe)
    return found


def below(value: Any, step: str) -> Any:
    """Return what stands under a key of a table or a number of a list, None where nothing does."""
    if isinstance(value, dict):
        return value.get(step)
    # -1 would count from the end.
    is_index = isinstance(value, list | tuple) and step.isdecimal() and len(step) < 10
    return value[int(step)] if is_index and int(step) < len(value) else None
