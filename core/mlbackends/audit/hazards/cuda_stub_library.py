"""A toolkit's stub of the driver is in front of the real libcuda or libnvidia-ml.

Found by:  a file in a stubs folder under the name that the loader looks for (libcuda.so.1), found before
           the driver's own; CUDA's own word (34).
No alarm:  the folder itself: libcuda.so without a number is for the linker, and the loader passes it by.
"""

from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.ERROR
READS = ()
WHY = (
    "The stub holds empty functions for linking on machines without a GPU: cuInit returns 34, and"
    " programs say that there is no device."
)
MEND = "Take the stubs folder out of LD_LIBRARY_PATH and of the loader's configuration."
SOURCES = (
    "https://docs.nvidia.com/cuda/cuda-driver-api/ (CUDA_ERROR_STUB_LIBRARY)",
    "numba/numba#8985",
    "NVIDIA/warp#219",
)
_SEARCHED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "mapped", "ld.so.cache", "system-folder")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each stub that the loader meets first."""
    for probe in ("cuda_driver", "nvidia"):
        for library in report.libraries(probe):
            is_stub = any(reason.code == "stub-library" for reason in library.reasons)
            # Programs ask for the name with a number; that without one is the linker's.
            if is_stub and library.path.endswith(".so.1") and library.found_by in _SEARCHED:
                yield Symptom(
                    f"{library.path} is a stub for linking, and {library.found_by} puts it before the"
                    " driver's own",
                    evidence={f"{probe}.libraries.path": [library.path]},
                )
            if not library.reasons:
                break
