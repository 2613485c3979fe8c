"""A probe warns of something that no other hazard speaks for.

Found by:  the warnings of every probe, without those that another hazard claims in its WARNINGS.
"""

from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
READS = ()
WHY = "The probe saw it; what it says stands in the message, and its code has a page of its own."
MEND = "Do what the message says, or look at `backends info` for that name."
SOURCES = ("the probe that the evidence names",)


def symptoms(report: ReportView) -> Symptoms:
    """Yield each warning that is left."""
    for name, probe in report.record.probes.items():
        for warning in probe.warnings:
            if (name, warning.code) not in report.claimed:
                yield from_warning(warning, evidence={f"{name}.warnings.code": [warning.code]})
