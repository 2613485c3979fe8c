"""KMP_DUPLICATE_LIB_OK silences the check against two OpenMP runtimes.

Found by:  environment: the variable is set to a value that the runtimes take for yes.
No alarm:  every other value: that is how it is without the variable.
Severity:  an error where both Intel's and LLVM's runtime are here.
"""

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment",)
WHY = (
    "Intel's and LLVM's runtimes end a program that holds two of them; with the variable it goes on, and"
    " may crash or give wrong results without a word."
)
FIX = "Unset it, and remove the second runtime instead."
SOURCES = (
    "pytorch/pytorch#13806",
    "LLVM, openmp/runtime/src/kmp_runtime.cpp, __kmp_register_library_startup",
    "LLVM, openmp/runtime/src/kmp_str.cpp, __kmp_str_match_true",
)

_NAME = "KMP_DUPLICATE_LIB_OK"
#: Words, and how much of each is enough; what comes after a whole word does not count.
_YES = (("true", 1), ("on", 2), ("1", 1), (".true.", 2), (".t.", 2), ("yes", 1), ("enabled", 7))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the variable is set to yes."""
    value = settings(report).get(_NAME, "")
    if not any(
        len(value) >= least and word.startswith(value.lower()[: len(word)]) for word, least in _YES
    ):
        return
    makers = {str(one.facts.get("runtime", "")) for one in report.libraries("openmp")}
    both = {"intel", "llvm"} <= makers
    detail = "; the runtimes of Intel and LLVM are both here" if both else ""
    yield Symptom(
        f"{_NAME} is {value[:80]!r}, so that no OpenMP runtime tells of a second one{detail}",
        command=f"unset {_NAME}",
        evidence={f"environment.variables.{_NAME}": value},
        severity=Severity.ERROR if both else None,
    )
