"""A CUDA library's version is not told alike by its parts.

Found by:  the library, its header, its file name and its package, held to each other; cuBLAS and cuBLASLt.
No alarm:  a header of another major version, which is there for another copy.
"""

from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
READS = ("cublas", "cuda_runtime", "cudnn")
WHY = "A file was copied over another release, or half of an upgrade is there: what runs is a mixture."
MEND = "Install that library anew, as a whole and from one source."
SOURCES = (
    "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
    "https://docs.nvidia.com/cuda/cublas/ (cuBLASLt)",
)
WARNINGS = tuple(
    (name, "conflict")
    for name in (
        *("cublas", "cuda_runtime", "cudnn", "cufft", "cupti", "curand", "cusolver", "cusparse"),
        *("cusparselt", "cutensor", "nccl", "nvjitlink", "nvrtc", "nvshmem"),
    )
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each contradiction."""
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            yield from_warning(warning, evidence={f"{probe}.version": report.version(probe)})
