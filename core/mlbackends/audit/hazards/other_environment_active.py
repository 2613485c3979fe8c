"""The active environment of the shell is not the one that was inspected."""

from mlbackends.audit.hazard import ReportView, Symptoms, from_warning
from mlbackends.host.python.installing import quoted


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the probe has seen it."""
    for warning in report.warnings("python", "other-environment"):
        option = warning.hint.rpartition("--python ")[2] if "--python " in warning.hint else ""
        evidence = {"python.prefix": report.fact("python.prefix", "")}
        command = f"backends doctor --python {quoted(option)}" if option else ""
        yield from_warning(warning, command=command, evidence=evidence)
