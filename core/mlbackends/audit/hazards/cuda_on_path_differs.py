"""PATH has another version of a CUDA library than the installed wheels.

Found by:  the probes of CUDA's libraries: copies of one file name with different versions on PATH and in
           wheels.
No alarm:  copies of one version; other systems, whose search path is another hazard.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import described

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("cuda_runtime",)
WHY = (
    "Packages that search PATH, such as onnxruntime, load the copy there, and torch its own. A loaded "
    "library serves all later requests for its name, so both use whichever was loaded first."
)
FIX = "Remove the toolkit's folder from PATH for programs with these wheels, or install the same release."
SOURCES = (
    "tensorflow/tensorflow#54784",
    "mlverse/torch#1465",
    "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html",
    "https://learn.microsoft.com/windows/win32/dlls/dynamic-link-library-search-order",
)

_PROBES = (
    "cuda_runtime", "cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nvrtc", "nvjitlink",
)  # fmt: skip


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for the first library of which copies differ."""
    report.only_on("win32")
    for probe in _PROBES:
        copies = [
            library
            for library in report.libraries(probe)
            if library.version and not library.reasons
        ]
        for wheel in (copy for copy in copies if copy.found_by == "site-packages"):
            for other in (copy for copy in copies if copy.found_by == "PATH"):
                if other.soname == wheel.soname and other.version != wheel.version:
                    yield Symptom(
                        f"PATH has {described(other)}, and an installed wheel {described(wheel)}",
                        evidence={f"{probe}.libraries.version": [other.version, wheel.version]},
                    )
                    return
