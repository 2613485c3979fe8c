"""PYTHONPATH brings in packages of another Python version.

Found by:  python: a site-packages folder of another version in the variable.
No alarm:  a folder without a version in its path.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("python",)
WHY = "Those packages come before the environment's own, and their compiled parts do not load here."
MEND = "Unset PYTHONPATH where it is set: it holds for every version of Python."
SOURCES = ("https://docs.python.org/3/library/sys_path_init.html (PYTHONPATH)",)
WARNINGS = (("python", "other-python"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the probe has seen it."""
    for warning in report.warnings("python", "other-python"):
        environment = {"python.environment": report.fact("python.environment", {})}
        yield from_warning(warning, command="unset PYTHONPATH", evidence=environment)
