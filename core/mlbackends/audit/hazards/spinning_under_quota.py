"""Waiting threads use up the CPU quota.

Found by:  environment: OMP_WAIT_POLICY, KMP_BLOCKTIME and GOMP_SPINCOUNT that keep idle threads busy,
           where limits tells of a quota.
No alarm:  the same settings without a quota, where they are a fair trade; KMP_BLOCKTIME where all runtimes
           are GNU's.
"""

from mlbackends.audit.environment import effects
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptoms
from mlbackends.audit.threads import reads_kmp

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment", "limits")
WHY = (
    "An active wait costs nothing where a CPU is a thread's own. Under a quota every turn of the loop"
    " is paid for, and is missing where there is work."
)
MEND = "Unset it; OMP_WAIT_POLICY=passive lets waiting threads sleep at once."
SOURCES = (
    "https://www.openmp.org/specifications/ (5.2, OMP_WAIT_POLICY)",
    "https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html",
    "https://reviews.llvm.org/D18577 (active: KMP_BLOCKTIME=infinite, which goes before it)",
    "https://docs.kernel.org/scheduler/sched-bwc.html",
)
_WAITS = "threads that have nothing to do keep their CPU busy, and the CPU quota pays for it"


def _for_ever(value: str) -> bool:
    return value.lower() in ("infinite", "infinity", "inf")


_TABLE = {
    "OMP_WAIT_POLICY": (lambda value: value.lower() == "active", _WAITS),
    "KMP_BLOCKTIME": (_for_ever, _WAITS),
    "GOMP_SPINCOUNT": (_for_ever, _WAITS),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each setting that makes threads spin, where a quota counts it."""
    if report.fact("limits.cpu_quota") is None:
        raise DoesNotApply("there is no CPU quota")
    unread = () if reads_kmp(report) else ("KMP_BLOCKTIME",)
    yield from effects(report, {name: row for name, row in _TABLE.items() if name not in unread})
