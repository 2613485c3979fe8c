"""Python reports more CPUs than this process may use."""

from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.threads import listed, thread_pools
from mlbackends.host.system.cgroups import CPU_LIMITS

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
        f"{listed(found.counted, 'report')} more than the {cpus} that "
        f"{CPU_LIMITS.get(found.because, 'the limit')} leaves",
        command=f"export PYTHON_CPU_COUNT={found.cpus}" if heeds else "",
        evidence=found.evidence,
    )
