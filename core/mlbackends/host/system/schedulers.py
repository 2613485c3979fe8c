"""What a batch system, or Kubernetes, says that it granted to this process.

Source: Slurm, sbatch(1) "OUTPUT ENVIRONMENT VARIABLES" (memory is in megabytes); LSF reference,
"Environment variables set for job execution"; PBS, qsub(1B); Grid Engine, submit(1).
"""

from mlbackends.host.host import Host
from mlbackends.host.quantities import whole_number
from mlbackends.model.records import FactValue

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io"

_JOBS = {
    "slurm": ("SLURM_JOB_ID",),
    "lsf": ("LSB_JOBID",),
    "pbs": ("PBS_JOBID",),
    "sge": ("JOB_ID", "SGE_TASK_ID"),  # JOB_ID alone may be anybody's
}
"""The variables that must be set for it to be this batch system; the first holds the job's name."""

_NUMBERS: dict[str, dict[str, tuple[str, ...]]] = {
    "slurm": {
        "scheduler_cpus": ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"),
        "scheduler_node_cpus": ("SLURM_CPUS_ON_NODE",),
        "scheduler_tasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
        "scheduler_gpus": ("SLURM_GPUS_ON_NODE",),
    },
    "lsf": {"scheduler_slots": ("LSB_DJOB_NUMPROC",)},
    "pbs": {"scheduler_cpus": ("NCPUS", "PBS_NUM_PPN"), "scheduler_slots": ("PBS_NP",)},
    "sge": {"scheduler_slots": ("NSLOTS",)},
}
"""For each fact the variables that may tell it; the first that holds a number counts."""

_MEGABYTES = {
    "scheduler_memory_bytes": "SLURM_MEM_PER_NODE",
    "scheduler_memory_per_cpu_bytes": "SLURM_MEM_PER_CPU",
    "scheduler_memory_per_gpu_bytes": "SLURM_MEM_PER_GPU",
}
_MEGABYTES_LIMIT = 1 << 40


def granted(host: Host) -> dict[str, FactValue]:
    """Return the facts `kubernetes` and `scheduler...`, those that apply."""
    facts: dict[str, FactValue] = {}
    if host.env("KUBERNETES_SERVICE_HOST") or host.exists(_SERVICE_ACCOUNT):
        facts["kubernetes"] = True
    name = next((name for name, signs in _JOBS.items() if all(map(host.env, signs))), "")
    if not name:
        return facts
    facts["scheduler"] = name
    facts["scheduler_job"] = host.env(_JOBS[name][0])[:200]
    for fact, variables in _NUMBERS[name].items():
        told = (whole_number(host.env(variable), lowest=1) for variable in variables)
        number = next((number for number in told if number is not None), None)
        if number is not None:
            facts[fact] = number
    for fact, variable in _MEGABYTES.items() if name == "slurm" else ():
        size = whole_number(host.env(variable), lowest=1, highest=_MEGABYTES_LIMIT)
        if size is not None:
            facts[fact] = size << 20
    return facts
