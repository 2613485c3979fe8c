"""More threads start than the CPU quota allows.

Found by:  limits: the thread count of each runtime by its documented rule, compared with cpu.max or
           cfs_quota.
No alarm:  a quota above the number of CPUs in the affinity mask; a runtime that a variable keeps within the
           quota.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.threads import listed, thread_pools

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("limits",)
WHY = (
    "None of these runtimes respects a quota. All threads run at once, use up the quota early in each "
    "period, and then stop together: programs become many times slower, and nothing reports why."
)
FIX = "Give the thread pools as many threads as the quota has whole CPUs."
SOURCES = (
    "llvm/llvm-project#225493",
    "ollama/ollama#17916",
    "kserve/kserve#1031",
    "https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.max)",
)
WARNINGS = (("limits", "limit-below-hardware"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where a quota is what limits, and a thread pool does not keep to it."""
    found = thread_pools(report)
    if found.because != "quota" or not found.pools:
        return
    yield Symptom(
        f"{listed(found.pools)} start more threads than the CPU quota of {found.exact:g} allows",
        command=found.command,
        evidence=found.evidence | {"limits.cpu_quota": found.exact},
    )
