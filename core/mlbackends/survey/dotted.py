"""One dotted name for every value of a report: `cpu.capability`, `cudnn.version`, `nvidia.devices.0.name`.

The same names serve `--get`, `--require`, policies, diffs and fleets. After the probe's name comes a
fact, or a field of its report.
"""

from typing import Any

import msgspec

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.reasons import UNCERTAIN, Reason
from mlbackends.model.records import ProbeReport, Report, speaking_copy

FIELDS = tuple(name for name in ProbeReport.__struct_fields__ if name != "facts")


class NoValue(LookupError):
    """The name is right, and this machine has no such value. Carries the probe's report."""

    def __init__(self, name: str, probe: ProbeReport) -> None:
        super().__init__(name)
        self.probe = probe


def is_certain(probe: ProbeReport) -> bool:
    """Return whether a probe was able to determine its subject; one that was stopped or refused was not."""
    return probe.failure is None and not _is_open(probe.reasons)


def undetermined(report: Report) -> list[str]:
    """Return what a report leaves undetermined: probes, or single copies and devices of a probe."""
    found = []
    for name, probe in report.probes.items():
        entries = [(library.path, library.reasons) for library in probe.libraries]
        entries += [(f"{device.kind}:{device.index}", device.reasons) for device in probe.devices]
        parts = [entry for entry, reasons in entries if _is_open(reasons)]
        if probe.presence is None or not is_certain(probe) or _is_open(probe.warnings):
            found.append(name)
        elif parts:
            found.append(f"{name} ({', '.join(parts)})")
    return found


def _is_open(reasons: tuple[Reason, ...]) -> bool:
    return any(reason.code in UNCERTAIN for reason in reasons)


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
    speaker = speaking_copy(probe_name, probe.libraries)
    speaker_facts = speaker.facts if speaker else {}
    # A fact comes first: every fact has its dotted name, also where a field has the same.
    if head in probe.facts:
        found: Any = probe.facts[head]
    elif head in declared and head in speaker_facts:
        found = speaker_facts[head]
    elif head in declared:
        raise NoValue(name, probe)
    elif head in FIELDS:
        found = msgspec.to_builtins(getattr(probe, head))
        found = list(found) if isinstance(found, tuple) else found
        if head in ("version", "failure", "presence") and not found:
            raise NoValue(name, probe)
    else:
        raise UnknownName("value", name, tuple(f"{probe_name}.{fact}" for fact in (*declared, *FIELDS)))
    found = _descend(found, path)
    if found is None:
        raise NoValue(name, probe)
    return found


def _descend(value: Any, path: list[str]) -> Any:
    """Return what is below a value; a key may contain dots, as os.cpu_count does."""
    if not path:
        return value
    for end in range(1, len(path) + 1):
        found = below(value, ".".join(path[:end]))
        if found is not None and (found := _descend(found, path[end:])) is not None:
            return found
    return None


def below(value: Any, step: str) -> Any:
    """Return what is under a key of a table or a number of a list, None if nothing is.

    A fact of a device or of a copy of a library has its short name. In a list of tables a step is the first
    value of one of them (threads_expected.OpenMP) or one of their keys, for the list of its values
    (devices.name).
    """
    if isinstance(value, dict):
        tables = (value, *(value.get(name) for name in ("facts", "volatile")))
        return next((table[step] for table in tables if isinstance(table, dict) and step in table), None)
    if not isinstance(value, list | tuple):
        return None
    # -1 would count from the end.
    if step.isdecimal() and len(step) < 10:
        return value[int(step)] if int(step) < len(value) else None
    rows = [row for row in value if isinstance(row, dict)]
    named = (row for row in rows if row and next(iter(row.values())) == step)
    found = [below(row, step) for row in rows if below(row, step) is not None]
    lists = all(isinstance(item, list | tuple) for item in found)
    return next(named, ([part for item in found for part in item] if lists else found) or None)
