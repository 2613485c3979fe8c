"""This process may use only one CPU of a larger machine."""

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import DoesNotApply, ReportView, Symptom, Symptoms
from mlbackends.base.quantities import parse_cpu_list

_BINDING = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the mask has one CPU, with what may have set it."""
    report.only_on("linux")
    online = int(report.need("limits.online_cpus"))
    if online < 2:
        raise DoesNotApply("the machine has one CPU")
    if int(report.need("limits.affinity_cpus")) != 1:
        return
    variables = settings(report)
    binding = [name for name in _BINDING if name in variables]
    scheduler = str(report.fact("limits.scheduler", ""))
    if variables.get("SLURM_CPUS_PER_TASK") == "1":
        return
    message = f"this process may use only CPU {report.fact('limits.affinity', '')} of {online}"
    cpuset = str(report.fact("limits.cpuset", "")) or f"0-{online - 1}"
    hint, command = "", ""
    if len(parse_cpu_list(cpuset)) > 1:
        command = f"taskset -acp {cpuset} $$"
        if binding:
            hint = f"the parent may have been bound by {' and '.join(binding)}: unset it there"
    else:
        hint = "its cpuset has no other CPU: request more from the batch system or the container"
    if scheduler == "slurm":
        hint, command = "Slurm gave the task one CPU: request more", "srun --cpus-per-task=N ..."
    yield Symptom(
        message,
        hint=hint,
        command=command,
        evidence={
            "limits.affinity": str(report.fact("limits.affinity", "")),
            "limits.online_cpus": online,
            **({"limits.scheduler": scheduler} if scheduler else {}),
        },
    )
