"""The msvcp140.dll that torch gets is older than the compiler that it was built with.

Found by:  torch: the copy of msvcp140.dll that its DLLs get, and that copy's version resource.
No alarm:  torch before 2.9, which was built with an older compiler; a runtime from 14.40 on.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import numbers
from mlbackends.libraries.windows import REDISTRIBUTABLE

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("torch",)
WHY = (
    "From Visual C++ 14.40 on a std::mutex is made without a call, which an older msvcp140.dll does not know:"
    " c10.dll fails when it starts, WinError 1114. The first copy that is opened serves the whole process."
)
FIX = (
    "Update Microsoft's Visual C++ Redistributable; where another package brings an old copy, as PyQt5 does,"
    " import torch before it."
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
                f"{library.path} ({library.version}) gets {library.facts.get('cxx_runtime_path')},"
                f" which is {version}; it needs 14.40",
                hint=REDISTRIBUTABLE,
                evidence={"torch.libraries.cxx_runtime_version": version},
            )
