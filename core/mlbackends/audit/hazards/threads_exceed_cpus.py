"""More threads start than there are CPUs for them.

Found by:  limits: the thread count of each runtime, compared with the CPUs of the machine, the affinity mask
           and the cpuset.
No alarm:  a quota, which is another hazard; a runtime that limits what the variable requests.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.threads import listed, thread_pools
from mlbackends.host.system.cgroups import CPU_LIMITS

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("limits",)
WHY = (
    "Threads that share a CPU wait for each other at every barrier of a parallel loop, and spin while "
    "they wait: that is slower than fewer threads."
)
FIX = (
    "Request no more threads than there are CPUs, divided by the number of simultaneous processes."
)
SOURCES = (
    "https://www.openmp.org/specifications/ (5.2, OMP_NUM_THREADS)",
    "oneMKL developer guide, Techniques to Set the Number of Threads",
)
WARNINGS = (
    ("limits", "limit-below-hardware"),
    ("limits", "override-exceeds-hardware"),
    ("openmp", "override-exceeds-hardware"),
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where a thread pool takes more than the machine, affinity mask or cpuset leaves."""
    found = thread_pools(report)
    if found.because == "quota" or not found.pools:
        return
    cpus = f"{found.cpus} CPU" if found.cpus == 1 else f"{found.cpus} CPUs"
    limit = CPU_LIMITS.get(found.because, "the limit")
    verb = "has" if found.because == "online" else "leaves"
    yield Symptom(
        f"{listed(found.pools)} start more threads than the {cpus} that {limit} {verb}",
        command=found.command,
        evidence=found.evidence,
    )
