"""The control groups that this process is in, and the tightest limits that they put on it.

Version 1 has a hierarchy for each controller, version 2 one for all; a hybrid machine has both and
each controller lives in one of them. A limit of an ancestor binds its descendants, so a limit is the
lowest on the way up, which ends where nothing more is shown: inside a container at its own group.

Source: cgroups(7); cgroup_namespaces(7); proc_pid_cgroup(5); Linux Documentation/admin-guide/cgroup-v2.rst;
admin-guide/cgroup-v1/memory.rst and cpusets.rst; scheduler/sched-bwc.rst.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf

from msgspec import Struct

from mlbackends.host.host import Host, once_per_host, to_int
from mlbackends.host.quantities import LARGEST, parse_cpu_list, whole_number
from mlbackends.host.system.kernel import Mount, mounts

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
"""Those whose limits are read here."""

_FOLDER = "/sys/fs/cgroup"
_DEEPEST = 64
# Version 1 writes "none" as the largest number of pages: 2**63 less a page, whose size varies.
_NO_MEMORY_LIMIT = 1 << 62
_PERIOD_MICROSECONDS = 100_000  # the kernel's own, where cpu.max names none


class Group(Struct, frozen=True):
    """Where the process is in one hierarchy.

    version: "v1" or "v2". controllers: those of a v1 hierarchy; () in v2, which has what v1 lacks.
    folders: the folder of its own group, then that of each ancestor that can be seen.
    """

    version: str
    controllers: tuple[str, ...]
    folders: tuple[str, ...]


class Limit(Struct, frozen=True):
    """A limit, and the group that sets it.

    value: in bytes, CPUs or processes; inf where every group that tells sets none. folder: of the
    group; "" without a limit. file: what it was read from.
    """

    value: float
    folder: str = ""
    file: str = ""


class Throttling(Struct, frozen=True):
    """How often the CPU quota stopped a group, since the group was made."""

    periods: int
    throttled_periods: int
    throttled_seconds: float


# ---- groups ------------------------------------------------------------------------------------


def version(host: Host) -> str:
    """Return "v1", "v2", "hybrid", or "none" where no hierarchy with controllers can be seen."""
    seen = {group.version for group in groups(host)}
    return "hybrid" if len(seen) > 1 else seen.pop() if seen else "none"


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
    return tuple(_groups(host))


def _groups(host: Host) -> Iterator[Group]:
    mounted: Iterable[Mount] = mounts(host) or _customary_mounts(host)
    paths = _paths(host)
    first = [mount for mount in mounted if mount.kind == "cgroup"]
    left = {name for mount in first for name in CONTROLLERS if name in mount.options}
    for mount in first:
        names = tuple(name for name in CONTROLLERS if name in mount.options and name in left)
        if names:
            same = [other for other in first if names[0] in other.options]
            left.difference_update(names)
            path = next((paths[name] for name in names if name in paths), "/")
            if folders := _best_view(host, path, same):
                yield Group("v1", names, folders)
    second = [mount for mount in mounted if mount.kind == "cgroup2"]
    if second and (folders := _best_view(host, paths.get("", "/"), second)):
        yield Group("v2", (), folders)


def _paths(host: Host) -> dict[str, str]:
    """Return the group's path by controller, as the kernel names it; "" stands for version 2."""
    found: dict[str, str] = {}
    for line in host.read("/proc/self/cgroup").splitlines():
        names, _, path = line.partition(":")[2].partition(":")
        if path.startswith("/"):
            found.update((name, path.removesuffix(" (deleted)")) for name in names.split(","))
    return found


def _best_view(host: Host, path: str, mounted: list[Mount]) -> tuple[str, ...]:
    """Return the folders of a group and its ancestors through the mount that shows most of them."""
    views = [_view(host, path, mount) for mount in mounted]
    return max(views, key=lambda view: (view[0], len(view[1])), default=(False, ()))[1]


def _view(host: Host, path: str, mount: Mount) -> tuple[bool, tuple[str, ...]]:
    """Return whether a mount shows the group itself, and the folders it shows, deepest first."""
    root = mount.root.rstrip("/")
    if ".." in path.split("/") and not path.startswith(root + "/"):
        return False, ()  # a process outside our namespace: what is mounted here does not bind it
    is_below = path == root or path.startswith(root + "/")
    parts = [part for part in path[len(root) :].split("/") if part] if is_below else []
    if ".." in parts:
        return False, ()
    # Not below: the container's mount shows its own group, under a path that the host gave it.
    at = [mount.point.rstrip("/")]
    at += [f"{at[0]}/{'/'.join(parts[:count])}" for count in range(1, len(parts) + 1)]
    shown = [folder for folder in at[::-1][:_DEEPEST] if host.is_dir(folder)]
    return is_below and shown[:1] == at[-1:], tuple(shown)


def _customary_mounts(host: Host) -> list[Mount]:
    """Return the mounts by their customary places, for a machine recorded without its list."""
    if host.is_file(f"{_FOLDER}/cgroup.controllers"):
        return [Mount("/", _FOLDER, "cgroup2")]
    found = []
    for name in host.listdir(_FOLDER):
        kind = "cgroup2" if name == "unified" else "cgroup"
        if not host.is_link(f"{_FOLDER}/{name}"):
            found.append(Mount("/", f"{_FOLDER}/{name}", kind, tuple(name.split(","))))
    return found


# ---- limits ------------------------------------------------------------------------------------


def cpu_quota(host: Host) -> Limit | None:
    """Return how many CPUs' worth of time the process gets, such as 1.5; None where none tells."""
    kind, folders = home(host, "cpu")
    if kind != "v1":
        return _lowest(host, folders, "cpu.max", _quota)
    limits = []
    for folder in folders:
        quota = to_int(_text(host, folder, "cpu.cfs_quota_us"))
        period = whole_number(_text(host, folder, "cpu.cfs_period_us"), lowest=1)
        if quota == -1:
            limits.append(Limit(inf, folder, "cpu.cfs_quota_us"))
        elif quota is not None and 0 < quota <= LARGEST and period is not None:
            limits.append(Limit(quota / period, folder, "cpu.cfs_quota_us"))
    return _tightest(limits)


def memory_limit(host: Host) -> Limit | None:
    """Return how many bytes of memory there are before something is killed; None: none tells."""
    kind, folders = home(host, "memory")
    if kind == "v2":
        return _lowest(host, folders, "memory.max", _bytes)
    binding = _binding(host, folders)
    limits = [_lowest(host, binding, "memory.limit_in_bytes", _bytes)]
    if binding:
        # Ancestors that a container does not see are in this line too.
        statistics = _statistics(host, binding[0], "memory.stat")
        whole = _bytes(str(statistics.get("hierarchical_memory_limit", "")))
        limits.append(None if whole is None else Limit(whole, binding[0], "memory.stat"))
    return _tightest(limits)


def memory_high(host: Host) -> Limit | None:
    """Return the bytes of memory above which version 2 slows the process and reclaims."""
    kind, folders = home(host, "memory")
    return _lowest(host, folders, "memory.high", _bytes) if kind == "v2" else None


def swap_limit(host: Host) -> Limit | None:
    """Return how many bytes of swap the process may use in version 2."""
    kind, folders = home(host, "memory")
    return _lowest(host, folders, "memory.swap.max", _bytes_or_zero) if kind == "v2" else None


def memory_and_swap_limit(host: Host) -> Limit | None:
    """Return how many bytes of memory and swap together the process may use in version 1."""
    kind, folders = home(host, "memory")
    if kind != "v1":
        return None
    return _lowest(host, _binding(host, folders), "memory.memsw.limit_in_bytes", _bytes)


def process_limit(host: Host) -> Limit | None:
    """Return how many processes and threads there may be."""
    return _lowest(host, home(host, "pids")[1], "pids.max", _count)


def allowed_cpus(host: Host) -> tuple[int, ...]:
    """Return the CPUs that the cpuset controller leaves; () where it does not tell."""
    return _allowed(host, ("cpuset.cpus.effective",), ("cpuset.effective_cpus", "cpuset.cpus"))


def allowed_memory_nodes(host: Host) -> tuple[int, ...]:
    """Return the NUMA nodes whose memory the cpuset controller leaves; () where none tells."""
    return _allowed(host, ("cpuset.mems.effective",), ("cpuset.effective_mems", "cpuset.mems"))


def throttling(host: Host, folder: str = "") -> Throttling | None:
    """Return how often a group was throttled, its own group's by default; None where none tells."""
    numbers = _statistics(host, folder or _own(host, "cpu"), "cpu.stat")
    periods, throttled = numbers.get("nr_periods"), numbers.get("nr_throttled")
    if periods is None or throttled is None or throttled > periods:
        return None
    seconds = numbers.get("throttled_usec", 0) / 1e6
    if "throttled_time" in numbers:  # version 1, in nanoseconds
        seconds = numbers["throttled_time"] / 1e9
    return Throttling(periods, throttled, seconds)


def memory_usage(host: Host, folder: str = "") -> int | None:
    """Return the bytes that a group uses, page cache included; its own group's by default."""
    folder = folder or _own(host, "memory")
    names = ("memory.current", "memory.usage_in_bytes") if folder else ()
    sizes = (whole_number(_text(host, folder, name)) for name in names)
    return next((size for size in sizes if size is not None), None)


def cpu_weight(host: Host) -> tuple[str, int] | None:
    """Return the share of scarce CPUs: ("weight", 1 to 10000) or ("shares", 2 to 262144)."""
    kind, folders = home(host, "cpu")
    name = "shares" if kind == "v1" else "weight"
    weight = whole_number(_text(host, folders[0], f"cpu.{name}"), lowest=1) if folders else None
    return None if weight is None else (name, weight)


def _lowest(
    host: Host, folders: Iterable[str], name: str, parse: Callable[[str], float | None]
) -> Limit | None:
    values = ((folder, parse(_text(host, folder, name))) for folder in folders)
    return _tightest(
        None if value is None else Limit(value, folder, name) for folder, value in values
    )


def _tightest(limits: Iterable[Limit | None]) -> Limit | None:
    """Return the lowest; of equal ones the nearest to the process."""
    lowest = min((each for each in limits if each), key=lambda limit: limit.value, default=None)
    return Limit(inf) if lowest and lowest.value == inf else lowest


def _own(host: Host, controller: str) -> str:
    return next(iter(home(host, controller)[1]), "")


def _text(host: Host, folder: str, name: str) -> str:
    return host.read(f"{folder}/{name}", 4096)


def _quota(text: str) -> float | None:
    amount, _, rest = text.strip().partition(" ")
    period = whole_number(rest, lowest=1) if rest else _PERIOD_MICROSECONDS
    if period is None or amount == "max":
        return None if period is None else inf
    quota = whole_number(amount, lowest=1)
    return None if quota is None else quota / period


def _bytes(text: str) -> float | None:
    return _bytes_or_zero(text) or None


def _bytes_or_zero(text: str) -> float | None:
    if text.strip() in ("max", "-1"):
        return inf
    size = whole_number(text, highest=(1 << 64) - 1)
    return inf if size is not None and size >= _NO_MEMORY_LIMIT else size


def _count(text: str) -> float | None:
    return inf if text.strip() == "max" else whole_number(text, lowest=1)


def _binding(host: Host, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups of version 1 whose memory limits bind.

    Before Linux 5.11 a group with memory.use_hierarchy 0 did not count what its descendants use.
    """
    for i, folder in enumerate(folders[1:], 1):
        if _text(host, folder, "memory.use_hierarchy") == "0":
            return folders[:i]
    return folders


def _allowed(host: Host, second: tuple[str, ...], first: tuple[str, ...]) -> tuple[int, ...]:
    kind, folders = home(host, "cpuset")
    names = first if kind == "v1" else second
    listed = [
        [parse_cpu_list(host.read(f"{folder}/{name}", 65536)) for name in names]
        for folder in folders
    ]
    sets = [set(cpus) for lists in listed if (cpus := next(filter(None, lists), ()))]
    if not sets:
        return ()
    # No common CPU is nonsense: the nearest group's list then counts.
    return tuple(sorted(set.intersection(*sets) or sets[0]))


def _statistics(host: Host, folder: str, name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in host.read(f"{folder}/{name}", 65536).splitlines() if folder else ():
        key, _, value = line.partition(" ")
        number = whole_number(value, highest=(1 << 64) - 1)
        if number is not None:
            found[key] = number
    return found
