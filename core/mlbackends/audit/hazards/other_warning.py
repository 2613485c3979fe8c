"""A probe reports a warning that no hazard of its own describes.

Found by:  the warnings of every probe, except those that another hazard claims in its WARNINGS.
"""

from typing import Any

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ()
WHY = "The message has what the probe saw, and its code has its own page."
FIX = "Follow the message, or see `backends info` for that name."
SOURCES = ("the probe that the evidence names",)


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
