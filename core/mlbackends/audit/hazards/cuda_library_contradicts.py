"""The parts of a CUDA library state different versions.

Found by:  the library, its header, its file name and its package, held to each other; cuBLAS and cuBLASLt.
No alarm:  a header of another major version, which is there for another copy.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("cublas", "cuda_runtime", "cudnn")
WHY = (
    "Parts of two releases are mixed, as by a file that was copied or half of an upgrade: symbols may be"
    " missing, and calls fail."
)
MEND = "Install that library anew, as a whole and from one source."
SOURCES = (
    "pytorch/pytorch#174320",
    "hpcaitech/ColossalAI#4059",
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
