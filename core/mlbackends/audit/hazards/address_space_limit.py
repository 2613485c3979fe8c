"""The address space of processes is limited.

Found by:  limits: ulimit -v.
No alarm:  a limit of many times the memory, which nobody sets by mistake.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ("limits", "memory", "nvidia")
WHY = (
    "Most reserved address space is never used: CUDA reserves as much as all memory of machine and GPUs "
    "when it starts, and each glibc thread reserves 64 MiB or more. Both then fail as if memory were "
    "exhausted."
)
FIX = "Limit memory by a control group instead: systemd-run -p MemoryMax=..., or --mem of the scheduler."
SOURCES = (
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (Unified virtual address space)",
    "nicolasprevot/GpuShareSat#6",
    "https://man7.org/linux/man-pages/man2/getrlimit.2.html (RLIMIT_AS)",
)
_MANY = 16


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where it is limited: an error where there is a GPU that CUDA would start on."""
    report.only_on("linux")
    limit = report.fact("limits.address_space_limit_bytes")
    if limit is None:
        if "address_space_limit_bytes" not in report.fact("limits.unlimited", ()):
            report.need("limits.address_space_limit_bytes")
        return
    total = int(report.need("memory.total_bytes"))
    if limit > total * _MANY:
        return
    has_gpu = bool(report.devices("nvidia"))
    hard = report.fact("limits.address_space_hard_limit_bytes")
    hint, command = "", "ulimit -v unlimited"
    if hard is not None:
        hint = "the hard limit is set too: raise it in limits.conf or LimitAS="
        command = f"ulimit -v {hard // 1024}" if hard > limit else ""
    yield Symptom(
        f"a process may use only {limit / 2**30:.0f} GiB of address space (ulimit -v)"
        + ("; CUDA reserves more than that when it starts" if has_gpu else ""),
        hint=hint,
        command=command,
        evidence={"limits.address_space_limit_bytes": limit, "memory.total_bytes": total},
        severity=Severity.ERROR if has_gpu and limit <= total else None,
    )
