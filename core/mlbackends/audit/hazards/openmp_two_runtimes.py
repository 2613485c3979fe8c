"""Two OpenMP runtimes meet in one process.

Found by:  openmp: the runtimes that the libraries of one environment bring and ask for (meeting).
No alarm:  libomptarget and Intel's libiomp5_db are no runtimes; a copy that nothing here loads.
Severity:  an error where Intel's and LLVM's meet, a note where all are GNU's or Microsoft's, of which
           several may be in a process. A second copy of Intel's or LLVM's ends the program (OMP: Error #15),
           unless a package sets KMP_DUPLICATE_LIB_OK, as scikit-learn does.
"""

from mlbackends.audit.environment import uninstall
from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning
from mlbackends.audit.libraries import package_of

SEVERITY = Severity.WARNING
READS = ("openmp",)
WHY = (
    "Each runtime has threads of its own: a limit that is set in one does not hold in the other, and"
    " Intel's and LLVM's together may crash, deadlock or give wrong results."
)
MEND = "Install all packages that compute from one channel, so that they share one runtime."
SOURCES = (
    "pytorch/pytorch#98836",
    "pytorch/pytorch#149422",
    "pytorch/pytorch#44282",
    "joblib/threadpoolctl#49",
    "scikit-learn/scikit-learn, sklearn/__init__.py (KMP_DUPLICATE_LIB_OK)",
)
WARNINGS = (("openmp", "conflict"),)

_DEADLOCK = frozenset({"intel", "llvm"})
_STANDALONE = "intel-openmp"
"""A package that brings the runtime alone; what needs it finds torch's or the system's."""


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each meeting that the probe foresees."""
    copies = {library.path: library for library in report.libraries("openmp")}
    meeting = [copies[path] for path in report.fact("openmp.meeting", []) if path in copies]
    makers = {str(library.facts.get("runtime", "")) for library in meeting}
    severity = None
    if makers >= _DEADLOCK:
        severity = Severity.ERROR
    elif len(meeting) > 1 and len(makers) == 1 and not makers & _DEADLOCK:
        severity = Severity.NOTE
    owners = {package_of(library)[0] for library in meeting}
    command = uninstall(report, _STANDALONE) if len(owners) > 1 and _STANDALONE in owners else ""
    for warning in report.warnings("openmp", "conflict"):
        yield from_warning(
            warning,
            command=command,
            evidence={"openmp.meeting": [library.path for library in meeting]},
            severity=severity,
        )
