"""A library needs a Visual C++ runtime that Windows does not have.

Found by:  torch: the DLLs that its DLLs import and the loader does not find (missing_libraries), by their
           headers; every library that was opened and lacks vcruntime140, msvcp140 or the like.
No alarm:  a copy next to the library, in Python's folder or in the wheel msvc-runtime: the loader finds it.
Severity:  an error: the package cannot be imported. Windows' message (WinError 126) does not name the DLL.
"""

from typing import Any

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.libraries.windows import REDISTRIBUTABLE, is_runtime

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
READS = ("host",)
WHY = (
    "Python includes only vcruntime140.dll; C++ code needs msvcp140.dll, vcruntime140_1.dll or libomp140 "
    "too, and `import torch` fails with WinError 126, naming fbgemm.dll or c10.dll."
)
FIX = "Install Microsoft's Visual C++ Redistributable; libomp140 comes with Visual Studio's tools."
SOURCES = (
    "pytorch/pytorch#131662",
    "pytorch/pytorch#129568",
    "hiyouga/LlamaFactory#5132",
    "https://learn.microsoft.com/cpp/windows/latest-supported-vc-redist",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each library that lacks a part of it."""
    report.only_on("win32")
    for library in report.libraries("torch"):
        missing: Any = library.facts.get("missing_libraries", [])
        names = [name for name in missing if is_runtime(name)]
        if names:
            yield Symptom(
                f"{library.path} needs {', '.join(names)}, which the loader does not find",
                hint=REDISTRIBUTABLE,
                evidence={"torch.libraries.missing_libraries": names},
            )
    for probe in report.record.probes:
        for library in report.libraries(probe) if probe != "torch" else ():
            for reason in library.reasons:
                if reason.code == "missing-dependency" and reason.hint == REDISTRIBUTABLE:
                    yield Symptom(
                        f"{library.path}: {reason.message}",
                        hint=reason.hint,
                        evidence={f"{probe}.libraries.reasons": reason.message},
                    )
