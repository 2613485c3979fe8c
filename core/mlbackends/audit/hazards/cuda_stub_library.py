"""A toolkit's stub library shadows the real libcuda or libnvidia-ml.

Found by:  a file in a stubs folder that is found before the driver's own; CUDA's error 34.
No alarm:  a stubs folder that the loader does not search.
Severity:  a note for libcuda.so without a number, which Numba and Warp load and most programs do not.
"""

import itertools

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ()
WHY = (
    "The stub contains empty functions for linking on machines without a GPU: cuInit returns 34, and "
    "programs report that there is no device."
)
FIX = "Remove the stubs folder from LD_LIBRARY_PATH and the loader's configuration."
SOURCES = (
    "https://docs.nvidia.com/cuda/cuda-driver-api/ (CUDA_ERROR_STUB_LIBRARY)",
    "numba/numba#8985",
    "NVIDIA/warp#219",
)
_SEARCHED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "mapped", "ld.so.cache", "system-folder")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each stub that the loader meets first."""
    for probe in ("cuda_driver", "nvidia"):
        libraries = report.libraries(probe)
        before = itertools.takewhile(lambda library: bool(library.reasons), libraries)
        stubs = [
            library
            for library in before
            if library.found_by in _SEARCHED
            and any(reason.code == "stub-library" for reason in library.reasons)
        ]
        numbered = [library for library in stubs if library.path.endswith(".so.1")]
        for library in numbered or stubs:
            yield Symptom(
                f"{library.path} is a stub for linking, and {library.found_by} puts it before the"
                " driver's own",
                evidence={f"{probe}.libraries.path": [library.path]},
                severity=None if numbered else Severity.NOTE,
            )
