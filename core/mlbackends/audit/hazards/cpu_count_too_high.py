"""Programs that ask Python for the CPUs count more than they may use.

Found by:  limits: os.cpu_count() and os.process_cpu_count() by their rules, held to affinity mask,
           cpuset and quota.
No alarm:  where thread pools take too many as well, which has a code of its own.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.threads import listed, thread_pools
from mlbackends.host.system.cgroups import CPU_LIMITS

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("limits",)
WHY = (
    "os.cpu_count() counts the machine's CPUs whatever is left of them, so that programs that size"
    " their workers by it start too many; os.process_cpu_count() heeds the mask and no quota, joblib both."
)
FIX = "Name the number of workers where a program takes it."
SOURCES = (
    "https://docs.python.org/3/library/os.html (os.cpu_count and os.process_cpu_count)",
    "python/cpython#109649",
    "joblib/loky#114",
)
WARNINGS = (("limits", "limit-below-hardware"),)
_PYTHON = (3, 13)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where only Python's count is too high."""
    found = thread_pools(report)
    if found.pools or not found.counted:
        return
    cpus = f"{found.cpus} CPU" if found.cpus == 1 else f"{found.cpus} CPUs"
    parts = report.version("python").split(".")[:2]
    heeds = len(parts) == 2 and tuple(int(part) for part in parts if part.isdecimal()) >= _PYTHON
    yield Symptom(
        f"{listed(found.counted)} counts more than the {cpus} that "
        f"{CPU_LIMITS.get(found.because, 'the limit')} leaves",
        command=f"export PYTHON_CPU_COUNT={found.cpus}" if heeds else "",
        evidence=found.evidence,
    )
