"""More threads start than there are CPUs for them.

Found by:  limits: the thread count of each runtime, compared with the CPUs of the machine, the affinity mask
           and the cpuset; with --pid the threads that the process has.
No alarm:  a quota, which is another hazard; a runtime that limits what the variable requests; a process that
           has no more threads than CPUs, whatever its variables request.
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
    threads = report.fact("limits.process_threads")
    running = report.fact("limits.process_running_threads", 0)
    if found.because == "quota" or not (found.pools or running > found.cpus):
        return
    evidence, what = found.evidence, f"{listed(found.pools)} start more threads"
    if threads:
        wanting = f"{running} of them running or waiting for a CPU"
        what = f"the process has {threads} threads, {wanting}: more"
        evidence |= {"limits.process_threads": threads, "limits.process_running_threads": running}
    cpus = f"{found.cpus} CPU" if found.cpus == 1 else f"{found.cpus} CPUs"
    limit = CPU_LIMITS.get(found.because, "the limit")
    verb = "has" if found.because == "online" else "leaves"
    yield Symptom(
        f"{what} than the {cpus} that {limit} {verb}",
        command=found.command,
        evidence=evidence,
    )
