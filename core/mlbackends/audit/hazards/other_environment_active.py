"""The shell's active environment is not the one that is looked at.

Found by:  python: VIRTUAL_ENV or CONDA_PREFIX names another folder than the interpreter's prefix.
No alarm:  the folder is the prefix, or what it was made from, by another path.
"""

from mlbackends.audit.environment import quoted
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("python",)
WHY = "What is said here of packages is true of one environment, and programs run in the other."
FIX = "Look at the environment that is active with --python, or leave it."
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
