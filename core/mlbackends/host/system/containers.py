"""Signs that this process runs in a container, or in the Windows Subsystem for Linux.

Signs, not proof: an image may have been copied into a virtual machine with its marker files, and a
container may hide all of them. So each sign is told along with what it points to.

Source: systemd, CONTAINER_INTERFACE.md; podman-run(1); Apptainer and WSL documentation.

What a batch system, or Kubernetes, says that it granted to this process.

Source: Slurm, sbatch(1) "OUTPUT ENVIRONMENT VARIABLES" (memory is in megabytes); LSF reference,
"Environment variables set for job execution"; PBS, qsub(1B); Grid Engine, submit(1).
"""

from mlbackends.host.host import Host
from mlbackends.host.quantities import whole_number
from mlbackends.host.system.kernel import mounted_at
from mlbackends.model.records import FactValue

_FILES = (
    ("podman", "/run/.containerenv"),
    ("docker", "/.dockerenv"),
    ("apptainer", "/.singularity.d"),
    ("flatpak", "/.flatpak-info"),
    ("lxc", "/dev/lxd/sock"),
    ("lxc", "/dev/incus/sock"),
)
_VARIABLES = (
    ("apptainer", "APPTAINER_CONTAINER"),
    ("apptainer", "APPTAINER_NAME"),
    ("apptainer", "SINGULARITY_CONTAINER"),
    ("apptainer", "SINGULARITY_NAME"),
    ("kubernetes", "KUBERNETES_SERVICE_HOST"),
)
_MANAGERS = ("/run/systemd/container", "/run/host/container-manager")
"""Files in which a container manager, or systemd for it, leaves its name."""
_KNOWN = {
    "docker": "docker",
    "podman": "podman",
    "oci": "oci",
    "lxc": "lxc",
    "lxc-libvirt": "lxc",
    "systemd-nspawn": "systemd-nspawn",
    "rkt": "rkt",
    "kubernetes": "kubernetes",
}
_GROUPS = (
    ("kubernetes", "/kubepods"),
    ("podman", "/libpod-"),
    ("docker", "/docker/"),
    ("docker", "/docker-"),
    ("containerd", "/cri-containerd"),
    ("containerd", "/containerd/"),
    ("lxc", "/lxc/"),
    ("lxc", "/lxc.payload"),
    ("systemd-nspawn", "/machine.slice/systemd-nspawn"),
)
_OVERLAYS = (
    ("docker", "/docker/"),
    ("containerd", "containerd"),
    ("podman", "/containers/storage"),
)


def container_signs(host: Host) -> list[tuple[str, str]]:
    """Return the kinds of container that something points to, each with what does; best first."""
    found = [(kind, path) for kind, path in _FILES if host.exists(path)]
    found += [(kind, variable) for kind, variable in _VARIABLES if host.env(variable)]
    named = [(path, host.read(path, 256)) for path in _MANAGERS]
    for where, name in (*named, ("the variable container", host.env("container"))):
        kind = _KNOWN.get(name.strip().lower())
        if kind:
            found.append((kind, where))
    paths = host.read("/proc/self/cgroup", 65536)
    found += [(kind, f"/proc/self/cgroup, {part}") for kind, part in _GROUPS if part in paths]
    root = mounted_at(host, "/")
    if root is not None and root.kind == "overlay":
        where = next((option for option in root.options if option.startswith("upperdir=")), "")
        found += [(kind, "the overlay mounted at /") for kind, part in _OVERLAYS if part in where]
    return found


def wsl_version(host: Host) -> int | None:
    """Return 1 or 2 inside the Windows Subsystem for Linux, None outside."""
    release = host.read("/proc/sys/kernel/osrelease", 256) or host.uname().get("release", "")
    if "microsoft" in release.lower():
        # WSL 1 has no kernel of its own and always calls itself 4.4.0-<build>-Microsoft.
        return 1 if release.startswith("4.4.0-") and release.endswith("-Microsoft") else 2
    # A kernel of the user's own need not carry the name; Hyper-V guests have /dev/dxg as well.
    if host.env("WSL_DISTRO_NAME") or host.exists("/proc/sys/fs/binfmt_misc/WSLInterop"):
        return 2 if host.exists("/dev/dxg") or host.is_dir("/usr/lib/wsl/lib") else None
    return None


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
