"""What the report of a run says about the machine, from files alone: "found" is all that it claims."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlbackends.model.records import Report
    from mlbackends.testing.machine import Machine

_PROBES = ("cpu", "limits", "torch", "nvidia", "rocm", "xpu", "mps")
_ACCELERATORS = ("nvidia", "rocm", "xpu", "mps")


def facts(machine: Machine) -> dict[str, str]:
    """Return the facts by dotted name, only those that are told."""
    report = machine.looked_at(_PROBES)
    told = {
        "cpu.capability": _fact(report, "cpu", "capability"),
        "limits.effective_cpus": _fact(report, "limits", "effective_cpus"),
        "limits.effective_cpus_because": _fact(report, "limits", "effective_cpus_because"),
        "torch.version": report.probes["torch"].version,
        "accelerators": _accelerators(report),
        "depth": str(report.depth),
        "subject": machine.subject,
    }
    return {name: value for name, value in told.items() if value}


def lines(told: dict[str, str]) -> list[str]:
    """Return the facts as the header of a run shows them."""
    cpus = told.get("limits.effective_cpus", "")
    because = told.get("limits.effective_cpus_because", "")
    parts = [
        f"CPU {told['cpu.capability']}" if "cpu.capability" in told else "",
        f"{cpus} CPUs usable (set by {because})" if cpus else "",
        f"accelerators {told['depth']}: {told.get('accelerators', 'none')}",
        f"torch {told['torch.version']} found" if "torch.version" in told else "no torch found",
    ]
    said = [f"backends: {', '.join(part for part in parts if part)}"]
    if "subject" in told:
        said.append(f"backends: judged by {told['subject']}, not by this machine")
    return said


def _fact(report: Report, probe: str, name: str) -> str:
    value = report.probes[probe].facts.get(name, "")
    return str(value)


def _accelerators(report: Report) -> str:
    """Return such as "8 cuda (NVIDIA H100), 1 mps"; "" for none."""
    told = []
    for name in _ACCELERATORS:
        devices = [each for each in report.probes[name].devices if each.kind != "mig"]
        for (kind, title), count in Counter((each.kind, each.name) for each in devices).items():
            told.append(f"{count} {kind} ({title})" if title else f"{count} {kind}")
    return ", ".join(told)
