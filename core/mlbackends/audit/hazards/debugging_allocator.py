"""Allocations are checked, or are not kept for the next use.

Found by:  environment: MALLOC_CHECK_, MALLOC_PERTURB_, PYTHONMALLOC with a debug hook, PYTHONDEVMODE,
           PYTORCH_NO_CUDA_MEMORY_CACHING, PYTORCH_NO_HIP_MEMORY_CACHING, CUDA_CACHE_DISABLE.
No alarm:  settings that tune an allocator, such as MALLOC_ARENA_MAX or PYTORCH_CUDA_ALLOC_CONF.
"""

from mlbackends.audit.environment import effects, is_anything, is_on
from mlbackends.audit.hazard import ReportView, Severity, Symptoms

SEVERITY = Severity.WARNING
READS = ("environment",)
WHY = (
    "They find errors in memory and cost time at every allocation; cudaMalloc stops the whole GPU."
)
MEND = "Unset it when the fault is found."
SOURCES = (
    "mallopt(3), MALLOC_CHECK_ and MALLOC_PERTURB_",
    "Python documentation, PYTHONMALLOC and PYTHONDEVMODE",
    "torch documentation, CUDA semantics, PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUDA C++ Programming Guide, CUDA_CACHE_DISABLE",
)


def _not_zero(value: str) -> bool:
    return value.isdecimal() and int(value) > 0


def _is_debug(value: str) -> bool:
    return value == "debug" or value.endswith("_debug")


_UNKEPT = "each tensor is allocated from the driver and given back to it, which stops the GPU"
_TABLE = {
    "MALLOC_CHECK_": (_not_zero, "glibc checks its heap at every call"),
    "MALLOC_PERTURB_": (_not_zero, "glibc overwrites what is allocated and what is freed"),
    "PYTHONMALLOC": (_is_debug, "Python checks its allocations"),
    "PYTHONDEVMODE": (
        is_anything,
        "Python runs in development mode, with checks of its allocations",
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (is_anything, _UNKEPT),
    "PYTORCH_NO_HIP_MEMORY_CACHING": (is_anything, _UNKEPT),
    "CUDA_CACHE_DISABLE": (
        is_on,
        "kernels that CUDA compiles at run time are compiled at each start",
    ),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each of them that is on."""
    yield from effects(report, _TABLE)
