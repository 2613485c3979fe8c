"""OMP_NUM_THREADS is 1 although each process could use more CPUs."""

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import DoesNotApply, ReportView, Symptom, Symptoms


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where each process could have two threads or more."""
    variables = settings(report)
    if variables.get("OMP_NUM_THREADS", "").split(",")[0].strip() != "1":
        raise DoesNotApply("OMP_NUM_THREADS is not 1")
    cpus = int(report.need("limits.effective_cpus"))
    size = variables.get("LOCAL_WORLD_SIZE", "")
    is_number = size.isascii() and size.isdecimal() and len(size) < 7
    processes = max(1, int(size)) if is_number else 1
    share = cpus // processes
    if share < 2:
        return
    launched = "LOCAL_RANK" in variables or bool(size)
    ours = f", {share} for each of {processes} processes" if processes > 1 else ""
    by = " (set by a launcher such as torchrun)" if launched else ""
    yield Symptom(
        f"OMP_NUM_THREADS is 1{by}; {cpus} CPUs are available{ours}",
        command=f"export OMP_NUM_THREADS={share}",
        evidence={
            "environment.variables.OMP_NUM_THREADS": "1",
            "limits.effective_cpus": cpus,
            **({"environment.variables.LOCAL_WORLD_SIZE": size} if size else {}),
        },
    )
