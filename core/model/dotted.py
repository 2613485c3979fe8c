"""One dotted name for every value of a report: `cpu.capability`, `cudnn.version`, `nvidia.devices.0.name`.

The same names serve `--get`, `--require`, policies, diffs and fleets. After the probe's name comes a
fact, or a field of its report.
"""

from typing import Any

import msgspec

from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.records import ProbeReport, Report

FIELDS = tuple(name for name in ProbeReport.__struct_fields__ if name != "facts")


class NoValue(LookupError):
    """The name is right, and this machine has no such value. Carries the probe's report."""

    def __init__(self, name: str, probe: ProbeReport) -> None:
        super().__init__(name)
        self.probe = probe


def value(report: Report, name: str, declared: tuple[str, ...] = ()) -> Any:
    """Return the value under a dotted name.

    declared: the facts that the probe declares, for telling a wrong name from a value that is not
    here. Raises UnknownName for a name that no machine has, NoValue for one that this one lacks.
    """
    probe_name, _, rest = name.partition(".")
    if probe_name not in report.probes:
        raise UnknownName("probe", probe_name, tuple(report.probes))
    probe = report.probes[probe_name]
    if not rest:
        hint = f"try {probe_name}.presence or {probe_name}.version"
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
        if head in ("version", "failure") and not found:
            raise NoValue(name, probe)
    else:
        raise UnknownName(
            "value", name, tuple(f"{probe_name}.{each}" for each in (*declared, *FIELDS))
        )
    for step in path:
        try:
            found = found[int(step)] if isinstance(found, list | tuple) else found[step]
        except (KeyError, IndexError, ValueError, TypeError):
            raise NoValue(name, probe) from None
    return found
