"""What this process runs in: a container, the Windows Subsystem for Linux, a job of a batch system.

Of containers these are signs, not proof: an image may have been copied into a virtual machine with its
marker files, and a container may hide all of them. So each sign is reported with what it points to.

Source: systemd, CONTAINER_INTERFACE.md; podman-run(1); Apptainer and WSL documentation; Slurm, sbatch(1)
"OUTPUT ENVIRONMENT VARIABLES" (memory is in megabytes); LSF reference, "Environment variables set for job
execution"; PBS, qsub(1B); Grid Engine, submit(1).
"""

from mlbackends.host.host import Host
from mlbackends.host.quantities import whole_number
from mlbackends.host.system.kernel import mounted_at
from mlbackends.model.records import FactValue
from mlbackends.model.tables import table

_MANAGERS = ("/run/systemd/container", "/run/host/container-manager")
"""Files in which a container manager, or systemd for it, leaves its name."""
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io"
_MEGABYTES_LIMIT = 1 << 40


def container_signs(host: Host) -> list[tuple[str, str]]:
    """Return the kinds of container that something points to, each with what does; best first."""
    signs = table("host/system/containers")
    found = [(kind, path) for kind, path in signs["files"] if host.exists(path)]
    found += [(kind, variable) for kind, variable in signs["variables"] if host.env(variable)]
    named = [(path, host.read(path, 256)) for path in _MANAGERS]
    for where, name in (*named, ("the variable container", host.env("container"))):
        if kind := signs["managers"].get(name.strip().lower()):
            found.append((kind, where))
    paths = host.read("/proc/self/cgroup", 65536)
    in_paths = [sign for sign in signs["cgroup_paths"] if sign[1] in paths]
    found += [(kind, f"/proc/self/cgroup, {part}") for kind, part in in_paths]
    root = mounted_at(host, "/")
    options = root.options if root is not None and root.kind == "overlay" else ()
    upper = next((option for option in options if option.startswith("upperdir=")), "")
    in_upper = [kind for kind, part in signs["overlay_paths"] if part in upper]
    return found + [(kind, "the overlay mounted at /") for kind in in_upper]


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


def granted(host: Host) -> dict[str, FactValue]:
    """Return the facts `kubernetes` and `scheduler...`: what a batch system granted to this process.

    schedulers.json has of each system the variables that must be set, of which the first holds the job's
    name, and for each fact those that may tell it; the first that holds a number counts.
    """
    facts: dict[str, FactValue] = {}
    if host.env("KUBERNETES_SERVICE_HOST") or host.exists(_SERVICE_ACCOUNT):
        facts["kubernetes"] = True
    for name, scheduler in table("host/system/schedulers").items():
        if not all(map(host.env, scheduler["signs"])):
            continue
        facts["scheduler"] = name
        facts["scheduler_job"] = host.env(scheduler["signs"][0])[:200]
        for fact, variables in scheduler["numbers"].items():
            numbers = (whole_number(host.env(variable), lowest=1) for variable in variables)
            if number := next(filter(None, numbers), None):
                facts[fact] = number
        for fact, variable in scheduler["megabytes"].items():
            size = whole_number(host.env(variable), lowest=1, highest=_MEGABYTES_LIMIT)
            if size is not None:
                facts[fact] = size << 20
        break
    return facts
