"""A package's files have another version than its metadata."""

from mlbackends.audit.environment import FRAMEWORKS, reinstall
from mlbackends.audit.hazard import ReportView, Symptoms, from_warning

WARNINGS = tuple((name, "metadata-mismatch") for name in FRAMEWORKS)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            name = report.fact(f"{probe}.distribution", "")
            if any(name == row["name"] for row in report.fact("packages.installed_twice", [])):
                continue
            yield from_warning(
                warning,
                command=reinstall(report, name, report.package(name)) if name else "",
                evidence={f"{probe}.version": report.version(probe)},
            )
