"""KMP_DUPLICATE_LIB_OK hides the error that two OpenMP runtimes are loaded.

Found by:  environment: the variable has a value that the runtimes accept as yes.
No alarm:  every other value, which is the same as not setting it.
Severity:  an error if both Intel's and LLVM's runtime are installed.
"""

from mlbackends.audit.environment import setting, settings
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment",)
WHY = (
    "Intel's and LLVM's runtimes end a program that loads two of them; with the variable it continues, "
    "and may crash or silently give wrong results."
)
FIX = "Unset it, and remove the second runtime instead."
SOURCES = (
    "pytorch/pytorch#13806",
    "LLVM, openmp/runtime/src/kmp_runtime.cpp, __kmp_register_library_startup",
    "LLVM, openmp/runtime/src/kmp_str.cpp, __kmp_str_match_true",
)

_NAME = "KMP_DUPLICATE_LIB_OK"
#: Words, and how many of their letters suffice; text after a whole word is ignored.
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
    detail = "; the runtimes of Intel and LLVM are both installed" if both else ""
    yield Symptom(
        f"{setting(_NAME, value)} hides the error that two OpenMP runtimes are loaded;"
        f" crashes or wrong results can follow{detail}",
        command=f"unset {_NAME}",
        evidence={f"environment.variables.{_NAME}": value},
        severity=Severity.ERROR if both else None,
    )
