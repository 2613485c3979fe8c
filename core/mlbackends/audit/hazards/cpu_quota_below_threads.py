"""More threads start than the CPU quota pays for.

Found by:  limits: what each runtime takes by its documented rule, held to cpu.max or cfs_quota.
No alarm:  a quota above what the affinity mask leaves; a runtime that a variable keeps within it.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.threads import listed, thread_pools

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("limits",)
WHY = (
    "None of these runtimes looks at a quota. All threads run at once, use it up within a fraction of"
    " each period and then stand still together: programs become many times slower, and nothing says so."
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
        f"{listed(found.pools)} start more threads than the CPU quota of {found.exact:g} pays for",
        command=found.command,
        evidence=found.evidence | {"limits.cpu_quota": found.exact},
    )
