"""A DLL of this environment is for another architecture than Python.

Found by:  every library: the headers of the copies in wheels and in Library/bin, compared with those of
           python.exe.
No alarm:  copies elsewhere on PATH: the loader skips none, but nothing in the environment refers to them.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("python",)
WHY = (
    "A process can load only DLLs of its own architecture: WinError 193, `%1 is not a valid Win32 "
    "application`. A folder copied from a 32-bit Python, or from another machine, has the wrong one."
)
FIX = "Reinstall the package with this Python, or install a Python of the other architecture."
SOURCES = ("pytorch/pytorch#46592", "https://learn.microsoft.com/windows/win32/debug/pe-format")

_OWN = ("site-packages", "python-prefix", "conda", "application")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each copy."""
    report.only_on("win32")
    for probe in report.record.probes:
        for library in report.libraries(probe):
            reason = next(iter(library.reasons), None)
            if reason and reason.code == "wrong-architecture" and library.found_by in _OWN:
                yield Symptom(
                    f"{library.path}: {reason.message}",
                    evidence={f"{probe}.libraries.reasons": reason.message},
                )
