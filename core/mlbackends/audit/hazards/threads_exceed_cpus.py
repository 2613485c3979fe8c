"""More threads start than there are CPUs for them."""

from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.threads import listed, thread_pools
from mlbackends.host.system.cgroups import CPU_LIMITS


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where a thread pool takes more than the machine, affinity mask or cpuset leaves."""
    found = thread_pools(report)
    threads = report.fact("limits.process_threads")
    running = report.fact("limits.process_running_threads", 0)
    if found.because == "quota" or not (found.pools or running > found.cpus):
        return
    evidence, what = found.evidence, f"{listed(found.pools, 'start')} more threads"
    if threads:
        wanting = f"{running} of them running or waiting for a CPU"
        what = f"the process has {threads} threads, {wanting}: more"
        evidence |= {"limits.process_threads": threads, "limits.process_running_threads": running}
    cpus = f"{found.cpus} CPU" if found.cpus == 1 else f"{found.cpus} CPUs"
    limit = CPU_LIMITS.get(found.because, "the limit")
    verb = "has" if found.because == "online" else "leaves"
    yield Symptom(f"{what} than the {cpus} that {limit} {verb}", command=found.command, evidence=evidence)
