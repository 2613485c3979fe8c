"""The control groups that this process is in, and the tightest limits that they put on it.

Version 1 has a hierarchy for each controller, version 2 one for all; a hybrid machine has both and
each controller lives in one of them. A limit of an ancestor binds its descendants, so a limit is the
lowest on the way up, which ends where nothing more is shown: inside a container at its own group.

Source: cgroups(7); cgroup_namespaces(7); proc_pid_cgroup(5); Linux Documentation/admin-guide/cgroup-v2.rst;
admin-guide/cgroup-v1/memory.rst and cpusets.rst; scheduler/sched-bwc.rst.
"""

from collections.abc import Iterable, Sequence
from math import inf

from msgspec import Struct

from mlbackends.base.quantities import numbers_by_name, parse_cpu_list, whole_number
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.system.kernel import Mount, mounts

#: Those whose limits are read here.
_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
_FOLDER = "/sys/fs/cgroup"
_DEEPEST = 64
# Version 1 writes "none" as the largest number of pages: 2**63 less a page, whose size varies.
_NO_LIMIT = 1 << 62
_PERIOD_MICROSECONDS = "100000"  # the kernel's own, where cpu.max names none

#: What sets how many CPUs are left, by `limits.effective_cpus_because`.
CPU_LIMITS = {
    "affinity": "the affinity mask",
    "cpuset": "the cpuset",
    "quota": "the CPU quota",
    "online": "the machine",
}


class Group(Struct, frozen=True):
    """Where the process is in one hierarchy.

    version: "v1" or "v2". controllers: those of a v1 hierarchy; () in v2, which has what v1 lacks.
    folders: that of its group, then those of the ancestors that can be seen.
    """

    version: str
    controllers: tuple[str, ...]
    folders: tuple[str, ...]


class Limit(Struct, frozen=True):
    """A limit, and the group that sets it.

    value: in bytes, CPUs or processes; inf if no group sets a limit. folder: of the group; "" without a
    limit. file: the one that it was read from.
    """

    value: float
    folder: str = ""
    file: str = ""


# ---- groups ------------------------------------------------------------------------------------


def version(host: Host) -> str:
    """Return "v1", "v2", "hybrid", or "none" where no hierarchy with controllers can be seen."""
    versions = {group.version for group in groups(host)}
    return "hybrid" if len(versions) > 1 else versions.pop() if versions else "none"


def home(host: Host, controller: str) -> tuple[str, tuple[str, ...]]:
    """Return which version has a controller and the folders of its files, own group first.

    ("", ()) where no hierarchy can be seen. Not every folder has the files of every controller.
    """
    own = [group for group in groups(host) if controller in group.controllers]
    own += [group for group in groups(host) if group.version == "v2"]
    return (own[0].version, own[0].folders) if own else ("", ())


@once_per_host
def groups(host: Host) -> tuple[Group, ...]:
    """Return the process's group in each hierarchy that can be seen."""
    paths: dict[str, str] = {}  # by controller, as the kernel names it; "" for version 2
    for line in host.read("/proc/self/cgroup").splitlines():
        names, _, path = line.partition(":")[2].partition(":")
        if path.startswith("/"):
            paths.update((name, path.removesuffix(" (deleted)")) for name in names.split(","))
    mounted = mounts(host) or _customary_mounts(host)
    first = [mount for mount in mounted if mount.kind == "cgroup"]
    first += [
        Mount(mount.root, mount.point, "cgroup", (*mount.options, "cpuset"))
        for mount in mounted
        if mount.kind == "cpuset"
    ]
    if first and "cpuset" not in paths and (path := host.read("/proc/self/cpuset", 4096)):
        paths["cpuset"] = path
    second = [mount for mount in mounted if mount.kind == "cgroup2"]
    own = []
    left = {name for mount in first for name in _CONTROLLERS if name in mount.options}
    for mount in first:
        controllers = tuple(n for n in _CONTROLLERS if n in mount.options and n in left)
        if controllers:
            matching = [other for other in first if controllers[0] in other.options]
            left.difference_update(controllers)
            path = next((paths[name] for name in controllers if name in paths), "/")
            own.append(Group("v1", controllers, _best_view(host, path, matching)))
    if second:
        own.append(Group("v2", (), _best_view(host, paths.get("", "/"), second)))
    return tuple(group for group in own if group.folders)


def _best_view(host: Host, path: str, mounted: Sequence[Mount]) -> tuple[str, ...]:
    """Return the folders of a group and its ancestors through the mount that shows most of them."""
    best: tuple[bool, int, tuple[str, ...]] = (False, 0, ())
    for mount in mounted:
        root = mount.root.rstrip("/")
        is_below = path == root or path.startswith(root + "/")
        parts = [part for part in path[len(root) :].split("/") if part] if is_below else []
        # A process outside our namespace: these mounts do not limit it.
        if ".." in (parts if is_below else path.split("/")):
            continue
        # Not below: the container's mount shows its own group, under a path from the host.
        at = [mount.point.rstrip("/")]
        at += [f"{at[0]}/{'/'.join(parts[:count])}" for count in range(1, len(parts) + 1)]
        shown = tuple(folder for folder in at[::-1][:_DEEPEST] if host.is_dir(folder))
        shows_group = is_below and shown[:1] == tuple(at[-1:])
        best = max(best, (shows_group, len(shown), shown), key=lambda view: view[:2])
    return best[2]


def _customary_mounts(host: Host) -> list[Mount]:
    """Return the mounts by their customary places, for a machine recorded without its list."""
    if host.is_file(f"{_FOLDER}/cgroup.controllers"):
        return [Mount("/", _FOLDER, "cgroup2")]
    customary = []
    for name in host.listdir(_FOLDER):
        kind = "cgroup2" if name == "unified" else "cgroup"
        if not host.is_link(f"{_FOLDER}/{name}"):
            customary.append(Mount("/", f"{_FOLDER}/{name}", kind, tuple(name.split(","))))
    return customary


# ---- limits ------------------------------------------------------------------------------------


def cpu_quota(host: Host) -> Limit | None:
    """Return the CPU time that the process gets, in CPUs, such as 1.5; None if it is not known."""
    kind, folders = home(host, "cpu")
    name = "cpu.cfs_quota_us" if kind == "v1" else "cpu.max"
    limits = []
    for folder in folders:
        amount, _, period_text = host.read(f"{folder}/{name}", 4096).strip().partition(" ")
        if kind == "v1":
            period_text = host.read(f"{folder}/cpu.cfs_period_us", 4096) or "none"
        quota = _number(amount, lowest=1)
        period = whole_number(period_text or _PERIOD_MICROSECONDS, lowest=1)
        if quota is not None and (period is not None or (quota == inf and kind == "v1")):
            limits.append(Limit(quota / (period or 1), folder, name))
    return _tightest(limits)


#: Of each limit its controller, and the file that has it in version 1 and 2; "" if none has.
LIMITS = {
    "process_limit": ("pids", "pids.max", "pids.max"),
    "memory_limit_bytes": ("memory", "memory.limit_in_bytes", "memory.max"),
    "memory_high_bytes": ("memory", "", "memory.high"),
    "swap_limit_bytes": ("memory", "", "memory.swap.max"),
    "memory_and_swap_limit_bytes": ("memory", "memory.memsw.limit_in_bytes", ""),
}


def limit(host: Host, name: str) -> Limit | None:
    """Return the tightest of the limits of that name, None if none is known."""
    controller, *files = LIMITS[name]
    kind, folders = home(host, controller)
    file = files[0] if kind == "v1" else files[1]
    limits = []
    for i, folder in enumerate(folders if file else ()):
        # Before Linux 5.11 a group with memory.use_hierarchy 0 did not count what its descendants use.
        if kind == "v1" and i and host.read(f"{folder}/memory.use_hierarchy", 16) == "0":
            break
        # No swap at all is a limit; no memory at all is nonsense.
        value = _number(host.read(f"{folder}/{file}", 4096), int(name != "swap_limit_bytes"))
        limits.append(None if value is None else Limit(value, folder, file))
    if kind == "v1" and name == "memory_limit_bytes":
        # Ancestors that a container does not see are in this line too.
        statistics = numbers_by_name(host.read(f"{folders[0]}/memory.stat", 65536))
        value = _number(str(statistics.get("hierarchical_memory_limit", 0)), lowest=1)
        limits.append(None if value is None else Limit(value, folders[0], "memory.stat"))
    return _tightest(limits)


def allowed_cpus(host: Host) -> tuple[int, ...]:
    """Return the CPUs that the cpuset controller allows, () if it does not list them."""
    return _allowed(host, "cpus")


def allowed_memory_nodes(host: Host) -> tuple[int, ...]:
    """Return the NUMA nodes whose memory the cpuset controller allows, () if they are not listed."""
    return _allowed(host, "mems")


def _allowed(host: Host, resource: str) -> tuple[int, ...]:
    kind, folders = home(host, "cpuset")
    names = [f"cpuset.{resource}.effective"]
    if kind == "v1":
        # The last two are used by mounts with noprefix, such as a cpuset file system.
        names = [
            f"cpuset.effective_{resource}",
            f"cpuset.{resource}",
            f"effective_{resource}",
            resource,
        ]
    sets = []
    for folder in folders:
        listed = (parse_cpu_list(host.read(f"{folder}/{name}", 65536)) for name in names)
        if numbers := next(filter(None, listed), ()):
            sets.append(set(numbers))
    # No common CPU is nonsense: the nearest group's list then counts.
    return tuple(sorted(set.intersection(*sets) or sets[0])) if sets else ()


def throttling(host: Host, folder: str = "") -> tuple[int, int, float] | None:
    """Return a group's periods, in how many its CPU quota stopped it, and for how many seconds.

    By default for the process's own group, since it was made; None if that is not known.
    """
    folders = (folder,) if folder else home(host, "cpu")[1][:1]
    numbers = numbers_by_name(host.read(f"{folders[0]}/cpu.stat", 65536)) if folders else {}
    periods, throttled = numbers.get("nr_periods"), numbers.get("nr_throttled")
    if periods is None or throttled is None or throttled > periods:
        return None
    seconds = numbers.get("throttled_usec", 0) / 1e6
    if "throttled_time" in numbers:  # version 1, in nanoseconds
        seconds = numbers["throttled_time"] / 1e9
    return periods, throttled, seconds


def memory_usage(host: Host, folder: str = "") -> int | None:
    """Return the bytes that a group uses, page cache included; its own group's by default."""
    folders = (folder,) if folder else home(host, "memory")[1][:1]
    sizes = (
        whole_number(host.read(f"{folder}/{name}", 4096))
        for folder in folders
        for name in ("memory.current", "memory.usage_in_bytes")
    )
    return next((size for size in sizes if size is not None), None)


def cpu_weight(host: Host) -> tuple[str, int] | None:
    """Return the share of scarce CPUs: ("weight", 1 to 10000) or ("shares", 2 to 262144)."""
    kind, folders = home(host, "cpu")
    name = "shares" if kind == "v1" else "weight"
    weight = whole_number(host.read(f"{folders[0]}/cpu.{name}"), lowest=1) if folders else None
    return None if weight is None else (name, weight)


def _number(text: str, lowest: int) -> float | None:
    """Return the number of a limit, inf for no limit."""
    if text.strip() in ("max", "-1"):
        return inf
    number = whole_number(text, lowest, (1 << 64) - 1)
    return inf if number is not None and number >= _NO_LIMIT else number


def _tightest(limits: Iterable[Limit | None]) -> Limit | None:
    """Return the lowest limit; of equal ones that of the nearest group."""
    lowest = min((limit for limit in limits if limit), key=lambda limit: limit.value, default=None)
    return Limit(inf) if lowest and lowest.value == inf else lowest
