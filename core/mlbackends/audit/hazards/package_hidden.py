"""A package is installed, and another installation of it is imported.

Found by:  the probes of frameworks: one name in two folders of the import path.
No alarm:  it is a note: a virtual environment may hide its system's packages on purpose.
"""

from mlbackends.audit.environment import FRAMEWORKS
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("packages",)
WHY = "Who upgrades the hidden one sees no change, and other packages may have been built for it."
MEND = "Uninstall the one that you do not want."
SOURCES = (
    "https://docs.python.org/3/library/sys_path_init.html",
    "facebookresearch/detectron2#693",
)
WARNINGS = tuple((name, "installation-hidden") for name in FRAMEWORKS)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each that is hidden."""
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            rows = report.fact(f"{probe}.installations", [])
            yield from_warning(warning, evidence={f"{probe}.installations": rows})
