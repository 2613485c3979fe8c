"""Every launch of a GPU kernel waits for its end.

Found by:  environment: CUDA_LAUNCH_BLOCKING, HIP_LAUNCH_BLOCKING, AMD_SERIALIZE_KERNEL and
           AMD_SERIALIZE_COPY that are a number other than 0.
No alarm:  the value 0; words, which no documentation gives a meaning.
"""

from mlbackends.audit.environment import effects, is_number
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment",)
WHY = (
    "It is there to find the line that fails. Left on, the processor idles while the GPU computes and"
    " the other way round, and transfers overlap with nothing."
)
MEND = "Unset it when the fault is found."
SOURCES = (
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (CUDA_LAUNCH_BLOCKING)",
    "ROCm documentation, environment variables, AMD_SERIALIZE_KERNEL",
)


_TABLE = {
    "CUDA_LAUNCH_BLOCKING": (
        is_number,
        "each launch of a CUDA kernel waits until the kernel has ended",
    ),
    "HIP_LAUNCH_BLOCKING": (
        is_number,
        "each launch of a HIP kernel waits until the kernel has ended",
    ),
    "AMD_SERIALIZE_KERNEL": (is_number, "kernels wait for each other, before or after each launch"),
    "AMD_SERIALIZE_COPY": (is_number, "copies wait for each other, before or after each of them"),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each of them that is on."""
    yield from effects(report, _TABLE)
