"""A debugger's library is loaded into every program.

Found by:  environment: LD_PRELOAD names a sanitizer, a heap checker or a profiler of allocations.
No alarm:  jemalloc, tcmalloc and OpenMP runtimes, which are preloaded for speed.
"""

import os

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
READS = ("environment",)
WHY = (
    "Allocations, accesses or locks are checked or recorded, in every program that is started: two to"
    " fifteen times the time, more memory, and CUDA may refuse to start where the address space is taken."
)
MEND = "Unset LD_PRELOAD when the fault is found."
SOURCES = (
    "https://github.com/google/sanitizers/wiki/AddressSanitizerAsDso",
    "vortex-data/vortex#8481",
    "https://man7.org/linux/man-pages/man8/ld.so.8.html",
)
_CHECKERS = {
    "libasan": "AddressSanitizer",
    "libclang_rt.asan": "AddressSanitizer",
    "libtsan": "ThreadSanitizer",
    "libclang_rt.tsan": "ThreadSanitizer",
    "libubsan": "UndefinedBehaviorSanitizer",
    "liblsan": "LeakSanitizer",
    "libefence": "Electric Fence",
    "libduma": "DUMA",
    "libdmalloc": "dmalloc",
    "libmemusage": "glibc's memusage",
    "libc_malloc_debug": "glibc's heap checks",
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
                f"LD_PRELOAD names {path}, which is {checker}: it works in every program from there on",
                command="unset LD_PRELOAD",
                evidence={"environment.variables.LD_PRELOAD": value},
            )
