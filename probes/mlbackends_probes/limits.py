"""Limits: what the container, the scheduler and the user leave of this machine.

Finds:    CPU quota, cpuset and memory limit of the control groups (v1, v2, hybrid) and all their
          ancestors, the affinity mask, ulimits, what Slurm, LSF, PBS and Grid Engine granted, and
          how many threads each runtime would start without knowing any of it.
Caveats:  inside a container the ancestors of its own group are not seen. A scheduler's grant is
          told as the scheduler tells it; only affinity, cpuset and quota are counted as limits.
Source:   Linux admin-guide/cgroup-v1 and cgroup-v2.rst; sched_setaffinity(2); getrlimit(2); Slurm,
          sbatch(1) "OUTPUT ENVIRONMENT VARIABLES"; for beliefs, the documentation of each runtime,
          which mlbackends.host.system.thread_counts names.
"""

from math import inf

from mlbackends.host.host import Host
from mlbackends.host.quantities import HIGHEST, format_cpu_list, parse_cpu_list, whole_number
from mlbackends.host.system import cgroups
from mlbackends.host.system.cgroups import Limit
from mlbackends.host.system.containers import granted
from mlbackends.host.system.kernel import control_number, system_controls
from mlbackends.host.system.memory import total_memory
from mlbackends.host.system.thread_counts import Belief, Machine, beliefs
from mlbackends.model.reasons import Reason
from mlbackends.model.records import FactValue, Finding, Presence
from mlbackends.model.registry import facts_of

GROUP = "machine"
SUMMARY = (
    "{effective_cpus} CPUs usable, set by {effective_cpus_because}",
    "{effective_memory_bytes} usable, set by {effective_memory_because}",
    "cgroup {cgroup_version}",
    "{scheduler}",
)
CODES = {
    "throttled": "The CPU quota stops the group often; more threads make that worse, not better.",
}

_CPUS = "/sys/devices/system/cpu"
_THROTTLED_SHARE = 0.05
_THROTTLED_PERIODS = 100  # fewer say nothing about how it runs
_PYTHON_ROWS = ("os.cpu_count", "os.process_cpu_count")


def find(host: Host) -> Finding:
    """Read every limit, and say what it leaves."""
    facts: dict[str, FactValue] = {}
    affinity = _affinity(host)
    online = _online(host)
    if online:
        facts["online_cpus"] = online
    if affinity:
        facts["affinity"] = format_cpu_list(affinity)
        facts["affinity_cpus"] = len(affinity)
    unlimited: list[str] = []
    warnings: list[Reason] = []
    if host.platform == "linux":
        _add_cpu_groups(host, facts, unlimited, warnings)
        _add_memory_groups(host, facts, unlimited)
        _add_ulimits(host, facts, unlimited)
        if unlimited:
            facts["unlimited"] = unlimited
    facts.update(granted(host))
    _add_effective_memory(host, facts)
    if cpus := _add_effective_cpus(facts):
        machine = Machine(
            online=online,
            affinity=len(affinity) or online,
            cores=_cores(host, affinity),
            is_x86=host.machine.lower() in ("x86_64", "amd64"),
            python=tuple(
                int(part)
                for part in str(host.python.get("version", "")).split(".")[:2]
                if part.isascii() and part.isdecimal() and len(part) < 4
            ),
            platform=host.platform,
            has_mask=bool(affinity),
        )
        believed = beliefs(host, machine)
        facts["beliefs"] = [
            {"runtime": one.runtime, "cpus": one.cpus, "because": one.because} for one in believed
        ]
        warnings += _too_many(believed, cpus, facts, machine)
    in_order = {name: facts[name] for name in facts_of("limits") if name in facts}
    return Finding(presence=Presence.FOUND, facts=in_order, warnings=tuple(warnings))


# ---- processors --------------------------------------------------------------------------------


def _online(host: Host) -> int:
    online = len(parse_cpu_list(host.read(f"{_CPUS}/online", 65536)))
    if not online and host.platform == "darwin":
        online = control_number(system_controls(host), "hw.activecpu", "hw.logicalcpu") or 0
    if not online and host.pid is None:
        count = host.system("cpu_count")
        online = count if isinstance(count, int) and count > 0 else 0
    return online


def _affinity(host: Host) -> tuple[int, ...]:
    mask = tuple(cpu for cpu in host.affinity() or () if cpu in range(HIGHEST))
    if mask:
        return mask
    for line in host.read("/proc/self/status", 65536).splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return parse_cpu_list(value)
    return ()


def _cores(host: Host, cpus: tuple[int, ...]) -> int:
    """Return how many physical cores these CPUs lie in; 0 where that cannot be told.

    Without a mask, on macOS, all of the machine's.
    """
    if not cpus and host.platform == "darwin":
        return control_number(system_controls(host), "hw.physicalcpu") or 0
    if host.read(f"{_CPUS}/smt/active", 16) == "0":
        return len(cpus)
    cores = 0
    left = set(cpus)
    while left:
        cpu = left.pop()
        siblings = parse_cpu_list(
            host.read(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list", 4096)
        )
        if not siblings:
            return 0
        left.difference_update(siblings)
        cores += 1
    return cores


def _add_cpu_groups(
    host: Host, facts: dict[str, FactValue], unlimited: list[str], warnings: list[Reason]
) -> None:
    facts["cgroup_version"] = cgroups.version(host)
    quota = cgroups.cpu_quota(host)
    if quota is not None and quota.value < inf:
        facts["cpu_quota"] = quota.value
        facts["cpu_quota_group"] = quota.folder
    elif quota is not None:
        unlimited.append("cpu_quota")
    throttled = cgroups.throttling(host, quota.folder if quota else "")
    if throttled is not None:
        facts["cpu_periods"] = throttled.periods
        facts["cpu_throttled_periods"] = throttled.throttled_periods
        facts["cpu_throttled_seconds"] = throttled.throttled_seconds
        share = throttled.throttled_periods / max(throttled.periods, 1)
        if throttled.periods >= _THROTTLED_PERIODS and share > _THROTTLED_SHARE:
            message = f"the CPU quota stopped this group in {share:.0%} of its periods"
            hint = "start fewer threads than the quota has CPUs, or raise the quota"
            warnings.append(Reason("throttled", message, hint))
    if weight := cgroups.cpu_weight(host):
        facts[f"cpu_{weight[0]}"] = weight[1]
    if cpus := cgroups.allowed_cpus(host):
        facts["cpuset"] = format_cpu_list(cpus)
        facts["cpuset_cpus"] = len(cpus)
    if nodes := cgroups.allowed_memory_nodes(host):
        facts["cpuset_memory_nodes"] = format_cpu_list(nodes)
    _add_limit(facts, unlimited, "process_limit", cgroups.process_limit(host))


def _add_effective_cpus(facts: dict[str, FactValue]) -> int:
    """Add what is left of the CPUs; return it, 0 where nothing tells."""
    bounds = {
        "online": facts.get("online_cpus"),
        "affinity": facts.get("affinity_cpus"),
        "cpuset": facts.get("cpuset_cpus"),
        "quota": facts.get("cpu_quota"),
    }
    limits = {
        name: float(bound) for name, bound in bounds.items() if isinstance(bound, int | float)
    }
    if limits.keys() <= {"quota"}:
        return 0
    because = min(limits, key=lambda name: limits[name])
    facts["effective_cpus"] = max(1, int(limits[because]))
    facts["effective_cpus_exact"] = limits[because]
    facts["effective_cpus_because"] = because
    return max(1, int(limits[because]))


def _too_many(
    believed: list[Belief], cpus: int, facts: dict[str, FactValue], machine: Machine
) -> list[Reason]:
    """Return the warning for the runtimes that take more CPUs than there are for them."""
    over = [belief for belief in believed if belief.cpus > cpus]
    if not over:
        return []
    names = ", ".join(f"{belief.runtime} ({belief.cpus})" for belief in over)
    verb = "takes" if len(over) == 1 else "take"
    settings = []
    if any(belief.runtime not in _PYTHON_ROWS for belief in over):
        settings.append(f"OMP_NUM_THREADS={cpus}")
    if machine.python >= (3, 13) and any(belief.runtime in _PYTHON_ROWS for belief in over):
        settings.append(f"PYTHON_CPU_COUNT={cpus}")
    hint = f"set {' and '.join(settings)}" if settings else ""
    if cpus >= machine.online > 0:
        message = f"{names} {verb} more threads than the {cpus} CPUs of this machine"
        return [Reason("override-exceeds-hardware", message, hint)]
    what = {
        "affinity": "the affinity mask",
        "cpuset": "the cpuset",
        "quota": f"the CPU quota of {facts.get('cpu_quota')}",
    }.get(str(facts["effective_cpus_because"]), "the limit")
    left = f"{cpus} CPU" if cpus == 1 else f"{cpus} CPUs"
    message = f"{names} {verb} more threads than the {left} that {what} leaves"
    return [Reason("limit-below-hardware", message, hint)]


# ---- memory and ulimits ------------------------------------------------------------------------


def _add_memory_groups(host: Host, facts: dict[str, FactValue], unlimited: list[str]) -> None:
    limit = cgroups.memory_limit(host)
    _add_limit(facts, unlimited, "memory_limit_bytes", limit)
    if limit is not None and limit.folder:
        facts["memory_limit_group"] = limit.folder
    for name, other in (
        ("memory_high_bytes", cgroups.memory_high(host)),
        ("swap_limit_bytes", cgroups.swap_limit(host)),
        ("memory_and_swap_limit_bytes", cgroups.memory_and_swap_limit(host)),
    ):
        _add_limit(facts, unlimited, name, other)
    usage = cgroups.memory_usage(host, limit.folder if limit else "")
    if usage is not None:
        facts["memory_usage_bytes"] = usage


def _add_limit(
    facts: dict[str, FactValue], unlimited: list[str], name: str, limit: Limit | None
) -> None:
    if limit is not None and limit.value < inf:
        facts[name] = int(limit.value)
    elif limit is not None:
        unlimited.append(name)


def _add_effective_memory(host: Host, facts: dict[str, FactValue]) -> None:
    is_mac = host.platform == "darwin"
    total = control_number(system_controls(host), "hw.memsize") if is_mac else total_memory(host)
    bounds = {
        "machine": total,
        "memory_limit": facts.get("memory_limit_bytes"),
        "memory_high": facts.get("memory_high_bytes"),
    }
    limits = {name: bound for name, bound in bounds.items() if isinstance(bound, int)}
    if limits:
        because = min(limits, key=lambda name: limits[name])
        facts["effective_memory_bytes"] = limits[because]
        facts["effective_memory_because"] = because


_ULIMITS = {
    "Max open files": ("open_files_limit", "open_files_hard_limit"),
    "Max processes": ("user_processes_limit", ""),
    "Max stack size": ("stack_limit_bytes", ""),
    "Max locked memory": ("locked_memory_limit_bytes", ""),
    "Max address space": ("address_space_limit_bytes", ""),
}


def _add_ulimits(host: Host, facts: dict[str, FactValue], unlimited: list[str]) -> None:
    for line in host.read("/proc/self/limits", 65536).splitlines():
        # The name takes 26 columns, and may hold single spaces.
        names = _ULIMITS.get(line[:26].strip(), ())
        for name, value in zip(names, line[26:].split(), strict=False):
            number = whole_number(value)
            if name and value == "unlimited":
                unlimited.append(name)
            elif name and number is not None:
                facts[name] = number
