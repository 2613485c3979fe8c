"""Allocations are checked, or are not kept for the next use.

Found by:  environment: MALLOC_CHECK_, MALLOC_PERTURB_, PYTHONMALLOC with a debug hook, PYTHONDEVMODE,
           PYTORCH_NO_CUDA_MEMORY_CACHING, PYTORCH_NO_HIP_MEMORY_CACHING, CUDA_CACHE_DISABLE.
No alarm:  settings that tune an allocator, such as MALLOC_ARENA_MAX or PYTORCH_CUDA_ALLOC_CONF;
           MALLOC_CHECK_ from glibc 2.34 on, where nothing reads it unless LD_PRELOAD names
           libc_malloc_debug; both of glibc's on another C library.
"""

from mlbackends.audit.environment import effects, is_anything, is_number, is_one, settings
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms
from mlbackends.audit.libraries import numbers

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment",)
WHY = (
    "They find errors in memory and cost time at every allocation; cudaFree waits for all that the GPU"
    " does."
)
MEND = "Unset it when the fault is found."
SOURCES = (
    "https://man7.org/linux/man-pages/man3/mallopt.3.html",
    "glibc, NEWS for 2.34: libc_malloc_debug.so",
    "https://docs.python.org/3/using/cmdline.html (PYTHONMALLOC and PYTHONDEVMODE)",
    "https://docs.pytorch.org/docs/stable/cuda_environment_variables.html",
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (CUDA_CACHE_DISABLE)",
)


def _is_debug(value: str) -> bool:
    return value == "debug" or value.endswith("_debug")


_UNKEPT = "each tensor is allocated from the driver and given back to it, which stops the GPU"
_GLIBC = {
    "MALLOC_CHECK_": (is_number, "glibc checks its heap at every call"),
    "MALLOC_PERTURB_": (is_number, "glibc overwrites what is allocated and what is freed"),
}
_TABLE = {
    "PYTHONMALLOC": (_is_debug, "Python checks its allocations"),
    "PYTHONDEVMODE": (
        is_anything,
        "Python runs in development mode, with checks of its allocations",
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (is_one, _UNKEPT),
    "PYTORCH_NO_HIP_MEMORY_CACHING": (is_one, _UNKEPT),
    "CUDA_CACHE_DISABLE": (
        is_number,
        "kernels that CUDA compiles at run time are compiled at each start",
    ),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each of them that is on."""
    glibc = dict(_GLIBC) if report.fact("host.libc", "glibc") == "glibc" else {}
    is_moved = numbers(str(report.fact("host.libc_version", ""))) >= (2, 34)
    if is_moved and "libc_malloc_debug" not in settings(report).get("LD_PRELOAD", ""):
        glibc.pop("MALLOC_CHECK_", None)
    yield from effects(report, glibc | _TABLE)
