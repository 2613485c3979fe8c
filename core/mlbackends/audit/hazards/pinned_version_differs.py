"""A package requires an exact version of another that is not installed.

Found by:  "==" requirements in the frameworks' Requires-Dist, compared with the installed versions (their
           pins).
No alarm:  a local part such as +cu124; requirements of extras, and for other systems.
"""

from mlbackends.audit.environment import FRAMEWORKS, install
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("packages",)
WHY = "It was compiled and tested with that version only: with another, symbols may be missing."
FIX = "Install the required version, or a release that matches the installed one."
SOURCES = (
    "pytorch/pytorch#119932",
    "https://packaging.python.org/en/latest/specifications/core-metadata/ (Requires-Dist)",
)
WARNINGS = tuple((name, "pin-mismatch") for name in FRAMEWORKS)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each pin."""
    for probe, code in WARNINGS:
        pins = report.fact(f"{probe}.pins", [])
        for warning in report.warnings(probe, code):
            broken = [
                pin
                for pin in pins
                if f" needs {pin['package']} {pin['wanted']}, and " in warning.message
            ]
            requirements = [f"{pin['package']}=={pin['wanted']}" for pin in broken[:1]]
            yield from_warning(
                warning,
                command=install(report, *requirements) if requirements else "",
                evidence={f"{probe}.pins": broken},
            )
