"""The msvcp140.dll that torch loads is older than the compiler it was built with.

Found by:  torch: the copy of msvcp140.dll that its DLLs load, and that copy's version resource.
No alarm:  torch before 2.9, which was built with an older compiler; a runtime since 14.40.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import numbers
from mlbackends.libraries.windows import REDISTRIBUTABLE

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("torch",)
WHY = (
    "Since Visual C++ 14.40 a std::mutex is created without a call, which an older msvcp140.dll does not "
    "support: c10.dll fails when it starts, WinError 1114. The first copy that is opened serves the whole "
    "process."
)
FIX = (
    "Update Microsoft's Visual C++ Redistributable; if another package includes an old copy, as PyQt5 "
    "does, import torch before it."
)
SOURCES = (
    "pytorch/pytorch#169429",
    "pytorch/pytorch#166628",
    "pytorch/pytorch#196987",
    "microsoft/STL#4730",
)

_FIRST, _NEEDED = (2, 9), (14, 40)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each torch whose runtime is too old."""
    report.only_on("win32")
    for library in report.libraries("torch"):
        version = str(library.facts.get("cxx_runtime_version", ""))
        is_new = numbers(library.version or report.version("torch"))[:2] >= _FIRST
        if is_new and version and numbers(version)[:2] < _NEEDED:
            yield Symptom(
                f"{library.path} ({library.version}) loads {library.facts.get('cxx_runtime_path')},"
                f" version {version}; it needs 14.40",
                hint=REDISTRIBUTABLE,
                evidence={"torch.libraries.cxx_runtime_version": version},
            )
