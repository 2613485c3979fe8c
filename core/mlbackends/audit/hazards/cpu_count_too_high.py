"""Python reports more CPUs than this process may use.

Found by:  limits: the results of os.cpu_count() and os.process_cpu_count(), compared with affinity mask,
           cpuset and quota.
No alarm:  machines where thread pools are too large as well, which is another hazard.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.threads import listed, thread_pools
from mlbackends.host.system.cgroups import CPU_LIMITS

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("limits",)
WHY = (
    "os.cpu_count() counts all CPUs of the machine, so programs that size their worker pools by it start "
    "too many; os.process_cpu_count() respects the mask but not the quota, joblib both."
)
FIX = "Set the number of workers explicitly."
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
        f"{listed(found.counted)} reports more than the {cpus} that "
        f"{CPU_LIMITS.get(found.because, 'the limit')} leaves",
        command=f"export PYTHON_CPU_COUNT={found.cpus}" if heeds else "",
        evidence=found.evidence,
    )
