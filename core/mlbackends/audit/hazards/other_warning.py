"""A probe reports a warning that no hazard of its own describes."""

from typing import Any

from mlbackends.audit.hazard import ReportView, Symptoms, from_warning


def symptoms(report: ReportView) -> Symptoms:
    """Yield each warning that is left, once where several probes have it, as of a folder that all read."""
    found: dict[Any, list[str]] = {}
    for name, probe in report.record.probes.items():
        for warning in probe.warnings:
            if (name, warning.code) not in report.claimed:
                found.setdefault(warning, []).append(name)
    for warning, names in found.items():
        evidence = {f"{name}.warnings.code": [warning.code] for name in names}
        yield from_warning(warning, evidence=evidence)
