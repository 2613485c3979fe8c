"""More threads start than the CPU quota allows."""

from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.threads import listed, thread_pools


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where a quota is what limits, and a thread pool does not keep to it."""
    found = thread_pools(report)
    if found.because != "quota" or not found.pools:
        return
    yield Symptom(
        f"{listed(found.pools, 'start')} more threads than the CPU quota of {found.exact:g} allows",
        command=found.command,
        evidence=found.evidence | {"limits.cpu_quota": found.exact},
    )
