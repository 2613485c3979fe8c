"""The limit on threads is low for this number of CPUs."""

from mlbackends.audit.hazard import ReportView, Symptom, Symptoms

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
