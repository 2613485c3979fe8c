"""The process may run on one CPU of a larger machine.

Found by:  limits: the affinity mask has one CPU, and more are online.
No alarm:  a machine with one CPU; a job that a batch system gave one CPU because it asked for one.
"""

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.base.quantities import parse_cpu_list

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("limits",)
WHY = (
    "All threads and all workers of a data loader take turns on that one CPU. Slurm gives one CPU for"
    " each task unless it is set otherwise; a bound OpenMP thread hands its mask on to its children."
)
FIX = (
    "Widen the mask with taskset where the cpuset has more CPUs; else ask the batch system or the"
    " container for more. Variables that bind threads are unset where the parent is started."
)
SOURCES = (
    "pytorch/pytorch#101850",
    "pytorch/pytorch#91989",
    "pytorch/pytorch#49971",
    "pytorch/pytorch#8126",
    "https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html (inherited, within the cpuset)",
)
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
    message = f"this process may run on CPU {report.fact('limits.affinity', '')} alone, of {online}"
    cpuset = str(report.fact("limits.cpuset", "")) or f"0-{online - 1}"
    hint, command = "", ""
    if len(parse_cpu_list(cpuset)) > 1:
        command = f"taskset -acp {cpuset} $$"
        if binding:
            hint = f"the parent may have been bound by {' and '.join(binding)}: unset it there"
    else:
        hint = "its cpuset has no other CPU: ask the batch system or the container for more"
    if scheduler == "slurm":
        hint, command = "Slurm gave the task one CPU: ask for more", "srun --cpus-per-task=N ..."
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
