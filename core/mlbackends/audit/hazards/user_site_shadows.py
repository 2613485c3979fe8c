"""Packages in the user's site folder are imported instead of the environment's."""

from mlbackends.audit.environment import FRAMEWORKS
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms

WARNINGS = tuple((name, "hidden-by-user-site") for name in FRAMEWORKS)

_COMMAND = "export PYTHONNOUSERSITE=1"
_USER = ("/.local/lib/python", "/Library/Python/")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each package that is hidden, and one for those that an environment lacks."""
    reported = set()
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            reported.add(probe)
            rows = report.fact(f"{probe}.installations", [])
            evidence = {f"{probe}.installations": rows}
            yield Symptom(warning.message, command=_COMMAND, evidence=evidence)
    isolated = report.fact("python.manager") == "conda" or report.fact("python.is_virtual_environment")
    if not isolated or not report.fact("python.user_site_on_path"):
        return
    places = {probe: str(report.fact(f"{probe}.location", "")) for probe in FRAMEWORKS}
    from_user = {
        probe: place
        for probe, place in places.items()
        if probe not in reported and any(part in place for part in _USER)
    }
    if from_user:
        yield Symptom(
            f"{', '.join(from_user)}: imported from the user's site folder instead of the environment"
            f" {report.fact('python.prefix', '')}: {next(iter(from_user.values()))}",
            command=_COMMAND,
            evidence={f"{probe}.location": place for probe, place in from_user.items()},
        )
