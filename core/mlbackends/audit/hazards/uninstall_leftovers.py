"""A broken-off uninstallation has left folders behind.

Found by:  packages: names in site-packages that begin with "~" (leftovers).
No alarm:  it is a note: nothing imports them.
"""

from mlbackends.audit.environment import quoted
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("packages",)
WHY = (
    "pip renames what it removes, puts it back if it fails and deletes it in the end; that did not"
    " happen, as where a process holds files open. pip may warn of an invalid distribution ever after."
)
MEND = "Remove them, and install again the package that they were of if it fails."
SOURCES = ("pypa/pip, AdjacentTempDirectory", "pypa/pip#10452")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one, with all of them."""
    paths = report.fact("packages.leftovers", [])
    if paths:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield Symptom(
            f"{paths[0]}{more} is what an uninstallation left",
            command=" ".join(["rm -r", *map(quoted, paths)]),
            evidence={"packages.leftovers": paths},
        )
