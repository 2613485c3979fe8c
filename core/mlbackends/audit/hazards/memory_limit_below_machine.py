"""A limit leaves less than half of the memory that programs see.

Found by:  limits: memory.max, memory.high or their like of version 1, or a job, held to memory's total.
No alarm:  a limit near the machine's memory.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("limits", "memory")
WHY = (
    "Programs that size caches and buffers by the machine's memory are killed by the kernel without a"
    " word of their own, and under Windows get none; /dev/shm counts as well."
)
FIX = "Name sizes where a program takes them, and leave room for /dev/shm and the page cache."
SOURCES = ("https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.max and memory.high)",)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where a limit leaves less than half."""
    total = int(report.need("memory.total_bytes"))
    left = int(report.need("limits.effective_memory_bytes"))
    because = str(report.need("limits.effective_memory_because"))
    if because == "machine" or left * 2 > total:
        return
    ends = "kills what takes more"
    if because == "memory_high":
        ends = "slows what takes more and reclaims it"
    source, readers = "control group", "free, psutil and /proc/meminfo"
    if report.fact("limits.job_object"):
        source, ends, readers = (
            "job object",
            "refuses what takes more",
            "psutil and the Task Manager",
        )
    yield Symptom(
        f"the {source} leaves {left / 2**30:.1f} of {total / 2**30:.1f} GiB and {ends}; {readers}"
        " show the machine's",
        evidence={f"limits.{because}_bytes": left, "memory.total_bytes": total},
    )
