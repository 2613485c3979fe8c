"""A debugging library is preloaded into every program.

Found by:  environment: LD_PRELOAD names a sanitizer, a heap checker or an allocation profiler.
No alarm:  jemalloc, tcmalloc and OpenMP runtimes, which are preloaded for speed; libubsan and glibc's
           libc_malloc_debug, which check nothing by themselves.
"""

import os

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment",)
WHY = (
    "Allocations or locks are checked or recorded in every program that is started, which takes time and "
    "memory; under AddressSanitizer cuInit may fail (2, out of memory), and nvcc may fail."
)
FIX = "Unset LD_PRELOAD after debugging."
SOURCES = (
    "google/sanitizers#629",
    "NVIDIA/DALI#5370",
    "https://www.gnu.org/software/libc/manual/html_node/Heap-Consistency-Checking.html",
    "https://man7.org/linux/man-pages/man8/ld.so.8.html",
)
_CHECKERS = {
    "libasan": "AddressSanitizer",
    "libclang_rt.asan": "AddressSanitizer",
    "libtsan": "ThreadSanitizer",
    "libclang_rt.tsan": "ThreadSanitizer",
    "liblsan": "LeakSanitizer",
    "libefence": "Electric Fence",
    "libduma": "DUMA",
    "libdmalloc": "dmalloc",
    "libmemusage": "glibc's memusage",
    "libheaptrack_preload": "heaptrack",
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each such library."""
    value = settings(report).get("LD_PRELOAD", "")
    for path in value.replace(":", " ").split():
        stem = os.path.basename(path)
        checker = next((word for name, word in _CHECKERS.items() if stem.startswith(name)), "")
        if checker:
            yield Symptom(
                f"LD_PRELOAD names {path}, which is {checker}: it is active in every program that is started",
                command="unset LD_PRELOAD",
                evidence={"environment.variables.LD_PRELOAD": value},
            )
