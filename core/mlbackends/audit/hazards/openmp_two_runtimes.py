"""Two OpenMP runtimes are loaded in one process.

Found by:  openmp: the runtimes that the libraries of one environment include and need (conflicting_copies).
No alarm:  libomptarget and Intel's libiomp5_db, which are not runtimes; a copy that nothing loads.
Severity:  an error for Intel's and LLVM's together, or on Windows two of either; a note if all are GNU's or
           Microsoft's, of which a process may have several, and if Windows has one of Intel's together with
           Microsoft's. A second copy of Intel's or LLVM's ends the program (OMP: Error #15), unless a
           package sets KMP_DUPLICATE_LIB_OK, as scikit-learn does.
"""

from mlbackends.audit.environment import uninstall
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning
from mlbackends.audit.libraries import package_of

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("openmp",)
WHY = (
    "Each runtime has its own threads: a limit set in one does not apply to the other, and Intel's and "
    "LLVM's together may crash, deadlock or give wrong results."
)
FIX = (
    "Install all packages that compute from one channel, so that they share one runtime. On Windows "
    "conda's numpy with MKL and pip's torch each include a libiomp5md.dll: if torch is imported first, "
    "MKL uses torch's."
)
SOURCES = (
    "pytorch/pytorch#98836",
    "pytorch/pytorch#149422",
    "pytorch/pytorch#44282",
    "joblib/threadpoolctl#49",
    "conda/conda-build#4715",
    "kuaikuaikim/dface#36",
    "https://stackoverflow.com/questions/64209238",
    "scikit-learn/scikit-learn, sklearn/__init__.py (KMP_DUPLICATE_LIB_OK)",
)
WARNINGS = (("openmp", "conflict"),)

_DEADLOCK = frozenset({"intel", "llvm"})
#: A package that brings the runtime alone; what needs it finds torch's or the system's.
_STANDALONE = "intel-openmp"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each meeting that the probe foresees."""
    copies = {library.path: library for library in report.libraries("openmp")}
    meeting = [
        copies[path] for path in report.fact("openmp.conflicting_copies", []) if path in copies
    ]
    makers = {str(library.facts.get("runtime", "")) for library in meeting}
    severity = None
    own = [runtime for runtime in meeting if runtime.facts.get("runtime") in _DEADLOCK]
    is_windows = report.fact("host.platform") == "win32"
    if makers >= _DEADLOCK or (is_windows and len(own) > 1):
        severity = Severity.ERROR
    elif len(meeting) > 1 and (is_windows or (len(makers) == 1 and not own)):
        severity = Severity.NOTE
    owners = {package_of(library)[0] for library in meeting}
    command = uninstall(report, _STANDALONE) if len(owners) > 1 and _STANDALONE in owners else ""
    for warning in report.warnings("openmp", "conflict"):
        yield from_warning(
            warning,
            command=command,
            evidence={"openmp.conflicting_copies": [library.path for library in meeting]},
            severity=severity,
        )
