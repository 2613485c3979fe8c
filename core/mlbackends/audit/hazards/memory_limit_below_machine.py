"""A memory limit allows less than half of the memory that programs see.

Found by:  limits: memory.max, memory.high or their cgroup v1 counterparts, or a job object, compared with
           the total memory.
No alarm:  a limit close to the machine's memory.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("limits", "memory")
WHY = (
    "Programs that size caches and buffers by the machine's memory are killed by the kernel without an "
    "error message, or get no memory on Windows; /dev/shm counts too."
)
FIX = "Set sizes explicitly, and reserve memory for /dev/shm and the page cache."
SOURCES = ("https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.max and memory.high)",)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where a limit leaves less than half."""
    total = int(report.need("memory.total_bytes"))
    left = int(report.need("limits.effective_memory_bytes"))
    because = str(report.need("limits.effective_memory_because"))
    if because == "machine" or left * 2 > total:
        return
    ends = "kills processes that use more"
    if because == "memory_high":
        ends = "slows down processes that use more and reclaims memory"
    source, readers = "control group", "free, psutil and /proc/meminfo"
    if report.fact("limits.job_object"):
        source, ends, readers = (
            "job object",
            "refuses to give more",
            "psutil and the Task Manager",
        )
    yield Symptom(
        f"the {source} allows {left / 2**30:.1f} of {total / 2**30:.1f} GiB and {ends}; {readers}"
        " show the machine's memory",
        evidence={f"limits.{because}_bytes": left, "memory.total_bytes": total},
    )
