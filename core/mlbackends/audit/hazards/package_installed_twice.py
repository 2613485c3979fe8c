"""Two installations of one package are in one folder.

Found by:  packages and the probes of frameworks: two dist-infos of one name, or two variants of one module,
           such as onnxruntime and onnxruntime-gpu.
No alarm:  a variant that only installs another; an egg-info next to a dist-info of the same version.
"""

from mlbackends.audit.environment import FRAMEWORKS, uninstall
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("packages",)
WHY = (
    "Their files are mixed: parts of both are imported together, and tools report a version that is not "
    "the one that runs."
)
FIX = "Uninstall it until nothing is left, then install the one that you want."
SOURCES = (
    "pytorch/vision#9174",
    "https://onnxruntime.ai/docs/get-started/with-python.html (one flavour per environment)",
)
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
