"""KMP_DUPLICATE_LIB_OK silences the check against two OpenMP runtimes.

Found by:  environment: the variable is set to a value that means yes.
No alarm:  false, 0, no, off: that is how it is without the variable.
Severity:  an error where both Intel's and LLVM's runtime are here.
"""

from mlbackends.audit.environment import is_on, settings
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
READS = ("environment",)
WHY = (
    "Intel's and LLVM's runtimes end a program that holds two of them, because it may hang or compute"
    " wrongly; with the variable it goes on and does so."
)
MEND = "Unset it, and remove the second runtime instead."
SOURCES = ("pytorch/pytorch#193520", "pytorch/pytorch#44282", "LLVM OpenMP runtime, error #15")

_NAME = "KMP_DUPLICATE_LIB_OK"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the variable is set to yes."""
    value = settings(report).get(_NAME, "")
    if not is_on(value):
        return
    makers = {str(one.facts.get("runtime", "")) for one in report.libraries("openmp")}
    both = {"intel", "llvm"} <= makers
    seen = "; the runtimes of Intel and LLVM are both here" if both else ""
    yield Symptom(
        f"{_NAME} is {value[:80]!r}, so that no OpenMP runtime tells of a second one{seen}",
        command=f"unset {_NAME}",
        evidence={f"environment.variables.{_NAME}": value},
        severity=Severity.ERROR if both else None,
    )
