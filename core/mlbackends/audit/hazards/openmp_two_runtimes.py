"""Two OpenMP runtimes are loaded in one process."""

from mlbackends.audit.environment import uninstall
from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning
from mlbackends.audit.libraries import package_of

_DEADLOCK = frozenset({"intel", "llvm"})
#: A package that brings the runtime alone; what needs it finds torch's or the system's.
_STANDALONE = "intel-openmp"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each meeting that the probe foresees."""
    copies = {library.path: library for library in report.libraries("openmp")}
    meeting = [copies[path] for path in report.fact("openmp.conflicting_copies", []) if path in copies]
    makers = {str(library.facts.get("runtime", "")) for library in meeting}
    severity = None
    own = [runtime for runtime in meeting if runtime.facts.get("runtime") in _DEADLOCK]
    is_windows = report.fact("host.platform") == "win32"
    if makers >= _DEADLOCK or (is_windows and len(own) > 1):
        severity = Severity.ERROR
    elif len(meeting) > 1 and (is_windows or (len(makers) == 1 and not own)):
        return
    owners = {package_of(library)[0] for library in meeting}
    command = uninstall(report, _STANDALONE) if len(owners) > 1 and _STANDALONE in owners else ""
    for warning in report.warnings("openmp", "conflict"):
        yield from_warning(
            warning,
            command=command,
            evidence={"openmp.conflicting_copies": [library.path for library in meeting]},
            severity=severity,
        )
