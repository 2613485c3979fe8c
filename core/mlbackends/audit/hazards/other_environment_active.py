"""The active environment of the shell is not the one that was inspected.

Found by:  python: VIRTUAL_ENV or CONDA_PREFIX names another folder than the interpreter's prefix.
No alarm:  the folder is the prefix, or its base, by another path.
"""

from mlbackends.audit.environment import quoted
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("python",)
WHY = "What is reported about packages applies to one environment, but programs run in the other."
FIX = "Inspect the active environment with --python, or deactivate it."
SOURCES = (
    "https://peps.python.org/pep-0405/",
    "https://docs.conda.io/projects/conda/en/latest/user-guide/tasks/manage-environments.html",
)
WARNINGS = (("python", "other-environment"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the probe has seen it."""
    for warning in report.warnings("python", "other-environment"):
        option = warning.hint.rpartition("--python ")[2] if "--python " in warning.hint else ""
        evidence = {"python.prefix": report.fact("python.prefix", "")}
        command = f"backends doctor --python {quoted(option)}" if option else ""
        yield from_warning(warning, command=command, evidence=evidence)
