"""A DLL of this environment is for another processor than Python.

Found by:  every library: the headers of the copies in wheels and in Library/bin, held to those of python.exe.
No alarm:  copies elsewhere, on PATH: the loader passes over none, but nothing here names them.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("python",)
WHY = (
    "A process takes DLLs of its own kind only: WinError 193, `%1 is not a valid Win32 application`. A folder"
    " that was copied from a 32-bit Python, or to another machine, has the other kind."
)
FIX = "Install the package anew with this Python, or install a Python of the other kind."
SOURCES = ("pytorch/pytorch#46592", "https://learn.microsoft.com/windows/win32/debug/pe-format")

_OWN = ("site-packages", "python-prefix", "conda", "application")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each copy."""
    report.only_on("win32")
    for probe in report.record.probes:
        for library in report.libraries(probe):
            reason = next((each for each in library.reasons), None)
            if reason and reason.code == "wrong-architecture" and library.found_by in _OWN:
                yield Symptom(
                    f"{library.path}: {reason.message}",
                    evidence={f"{probe}.libraries.reasons": reason.message},
                )
