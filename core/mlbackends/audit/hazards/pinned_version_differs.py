"""A package pins one version of another, and has another one or none.

Found by:  Requires-Dist of the frameworks that is "==", held to what is installed (their pins).
No alarm:  a local part such as +cu124; requirements of extras, and for other systems.
"""

from mlbackends.audit.environment import FRAMEWORKS, install
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("packages",)
WHY = "It was compiled and tried with that version alone: with another, symbols may be missing."
FIX = "Install the version that is pinned, or a release that goes with what is there."
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
