"""The limit on threads is low for this number of CPUs.

Found by:  limits: pids.max of the control group or ulimit -u, below eight pools of the largest size.
No alarm:  a low limit on a small machine. ulimit -u does not apply to root, which a report does not show.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ("limits",)
WHY = (
    "Each library in each worker starts a thread per CPU, and Linux counts threads as processes: "
    "pthread_create fails, and OpenBLAS then crashes at import."
)
FIX = "Raise the limit, or start fewer threads in each process."
SOURCES = (
    "OpenMathLib/OpenBLAS#1668",
    "MIC-DKFZ/nnUNet#1343",
    "https://man7.org/linux/man-pages/man2/getrlimit.2.html (RLIMIT_NPROC: it does not hold for root)",
)
_POOLS = 8


def symptoms(report: ReportView) -> Symptoms:
    """Yield each limit that is low for the pools that would be started here."""
    expected = report.need("limits.threads_expected")
    most = max((int(row["cpus"]) for row in expected if row["runtime"] in _STARTING), default=0)
    limits = (
        ("limits.process_limit", "the control group's pids.max", "raise pids.max"),
        ("limits.user_processes_limit", "ulimit -u", "raise ulimit -u, or nproc in limits.conf"),
    )
    for name, origin, hint in limits:
        limit = report.fact(name)
        if limit is not None and limit < most * _POOLS:
            yield Symptom(
                f"{origin} allows {limit} threads in total, and one thread pool has {most} on this machine",
                hint=f"{hint}, or set OMP_NUM_THREADS to a smaller number",
                evidence={
                    name: limit,
                    "limits.effective_cpus": report.fact("limits.effective_cpus"),
                },
            )


_STARTING = ("OpenMP", "OpenBLAS", "MKL", "torch")
