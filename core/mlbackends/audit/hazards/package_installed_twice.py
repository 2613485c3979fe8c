"""Two installations of one package are in one folder."""

from mlbackends.audit.environment import FRAMEWORKS, uninstall
from mlbackends.audit.hazard import ReportView, Symptoms, from_warning

WARNINGS = (("packages", "installed-twice"), *((name, "installed-twice") for name in FRAMEWORKS))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each pair."""
    for probe, code in WARNINGS:
        fact = "installed_twice" if probe == "packages" else "installations"
        rows = report.fact(f"{probe}.{fact}", [])
        for warning in report.warnings(probe, code):
            named = [row for row in rows if row["name"] in warning.message.split()]
            names = dict.fromkeys(row["name"] for row in named)
            yield from_warning(
                warning,
                command=uninstall(report, *names) if names else "",
                evidence={f"{probe}.{fact}": named},
            )
