"""Limits: what the container, the scheduler and the user leave of this machine.

Finds:    CPU quota, cpuset and memory limit of the control groups (v1, v2, hybrid) and all their
          ancestors, the affinity mask, ulimits, what Slurm, LSF, PBS and Grid Engine granted, and
          how many threads each runtime would start without knowing any of it; how busy the CPUs are.
Caveats:  inside a container the ancestors of its own group are not seen. A scheduler's grant is
          reported as the scheduler states it; only affinity, cpuset and quota are counted as limits.
Source:   Linux admin-guide/cgroup-v1 and cgroup-v2.rst; sched_setaffinity(2); getrlimit(2); Slurm,
          sbatch(1) "OUTPUT ENVIRONMENT VARIABLES"; for threads_expected, each runtime's documentation,
          listed in mlbackends.host.system.thread_counts.
"""

from math import inf
from typing import Any

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import (
    HIGHEST,
    decimal,
    format_cpu_list,
    parse_cpu_list,
    whole_number,
)
from mlbackends.base.reasons import Reason
from mlbackends.host.cpu.cpuinfo import read_blocks
from mlbackends.host.cpu.topology import online_cpus, sibling_groups
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.host.system import cgroups
from mlbackends.host.system.kernel import control_number, system_controls
from mlbackends.host.system.memory import total_memory
from mlbackends.host.system.surroundings import granted
from mlbackends.host.system.thread_counts import Machine, expected_threads
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"

_CPUS = "/sys/devices/system/cpu"
_THROTTLED_SHARE = 0.05
_THROTTLED_PERIODS = 100  # fewer are not representative
_PYTHON_ROWS = ("os.cpu_count", "os.process_cpu_count")


_PRESSURE = pattern(r"some avg10=[\d.]+ avg60=(\d{1,3}\.\d{2}) ")
_MOST_THREADS = 4096
_SHORT = 10**8  # in nanoseconds; a share of less is chance

_HARD = "address_space_hard_limit_bytes"
_ULIMITS = {
    "Max open files": ("open_files_limit", "open_files_hard_limit"),
    "Max processes": ("user_processes_limit", ""),
    "Max stack size": ("stack_limit_bytes", ""),
    "Max locked memory": ("locked_memory_limit_bytes", ""),
    "Max address space": ("address_space_limit_bytes", _HARD),
}


def find(host: Host) -> Finding:
    """Read every limit, and compute what they leave."""
    affinity = tuple(cpu for cpu in host.affinity() or () if cpu in range(HIGHEST))
    for line in host.read("/proc/self/status", 65536).splitlines() if not affinity else ():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            affinity = _switched_on(host, parse_cpu_list(value))
    online = len(parse_cpu_list(host.read(f"{_CPUS}/online", 65536)))
    if not online and host.platform == "linux":
        online = len(online_cpus(host, read_blocks(host)))
    if not online and host.platform == "darwin":
        online = control_number(system_controls(host), "hw.activecpu", "hw.logicalcpu") or 0
    if not online and host.pid is None:
        count = host.system("cpu_count")
        online = count if isinstance(count, int) and count > 0 else 0
    facts: dict[str, Any] = {
        "online_cpus": online or None,
        "affinity": format_cpu_list(affinity),
        "affinity_cpus": len(affinity) or None,
    }
    warnings = []
    if host.platform == "linux":
        facts |= _groups(host) | _ulimits(host) | _load(host)
        share = (facts["cpu_throttled_periods"] or 0) / max(facts["cpu_periods"] or 0, 1)
        if (facts["cpu_periods"] or 0) >= _THROTTLED_PERIODS and share > _THROTTLED_SHARE:
            message = f"the CPU quota stopped this group in {share:.0%} of its periods"
            hint = "start fewer threads than the quota has CPUs, or raise the quota"
            warnings.append(Reason("throttled", message, hint))
    elif host.platform == "win32":
        from mlbackends.host.windows.system import job_limits

        facts |= job_limits(host, online)
    facts["unlimited"] = [name for name, value in facts.items() if value == inf and name != _HARD]
    facts = {name: value for name, value in nonempty(facts).items() if value != inf}
    facts |= granted(host)
    is_mac = host.platform == "darwin"
    total = control_number(system_controls(host), "hw.memsize") if is_mac else total_memory(host)
    memory_bounds = {
        "machine": total,
        "memory_limit": facts.get("memory_limit_bytes"),
        "memory_high": facts.get("memory_high_bytes"),
        "process_memory_limit": facts.get("process_memory_limit_bytes"),
    }
    if bytes_left := {name: bound for name, bound in memory_bounds.items() if bound is not None}:
        because = min(bytes_left, key=lambda name: bytes_left[name])
        facts["effective_memory_bytes"] = bytes_left[because]
        facts["effective_memory_because"] = because
    # The kernel keeps every mask within the cpuset: the mask shows both.
    cpuset = frozenset(parse_cpu_list(str(facts.get("cpuset", ""))))
    mask = tuple(cpu for cpu in affinity if cpu in cpuset) or tuple(cpuset) or affinity
    cpu_bounds = {
        "online": facts.get("online_cpus"),
        "affinity": len(mask) if len(mask) < len(cpuset) else facts.get("affinity_cpus"),
        "cpuset": facts.get("cpuset_cpus"),
        "quota": facts.get("cpu_quota"),
    }
    cpus_left = {name: float(bound) for name, bound in cpu_bounds.items() if bound is not None}
    if not cpus_left.keys() <= {"quota"}:
        because = min(cpus_left, key=lambda name: cpus_left[name])
        facts["effective_cpus"] = max(1, int(cpus_left[because]))
        facts["effective_cpus_exact"] = cpus_left[because]
        facts["effective_cpus_because"] = because
        in_groups = online_cpus(host, []) if host.platform == "win32" else ()
        machine = Machine(
            online=online,
            affinity=len(mask) or online,
            cores=_cores(host, mask),
            is_x86=host.machine.lower() in ("x86_64", "amd64"),
            python=tuple(
                int(part)
                for part in str(host.python.get("version", "")).split(".")[:2]
                if part.isascii() and part.isdecimal() and len(part) < 4
            ),
            platform=host.platform,
            has_mask=bool(mask),
            group=sum(1 for cpu in in_groups if mask and cpu >> 6 == mask[0] >> 6),
        )
        expected = expected_threads(host, machine)
        facts["threads_expected"] = [
            {"runtime": runtime, "cpus": count, "because": why} for runtime, count, why in expected
        ]
        warnings += _too_many(expected, facts, machine)
    in_order = {name: facts[name] for name in facts_of("limits") if name in facts}
    return Finding(presence=Presence.FOUND, facts=in_order, warnings=tuple(warnings))


def _cores(host: Host, cpus: tuple[int, ...]) -> int:
    """Return how many physical cores these CPUs lie in; 0 if that cannot be determined.

    Without a mask, on macOS, all of the machine's.
    """
    if not cpus and host.platform == "darwin":
        return control_number(system_controls(host), "hw.physicalcpu") or 0
    if host.platform != "win32" and host.read(f"{_CPUS}/smt/active", 16) == "0":
        return len(cpus)
    names = ("thread_siblings_list", "thread_siblings")
    return len(sibling_groups(host, cpus, *names)) if cpus else 0


def _switched_on(host: Host, cpus: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of some CPUs that are not off, which masks and cpusets may list; all if none is on."""
    off = set(parse_cpu_list(host.read(f"{_CPUS}/offline", 65536)))
    if not host.is_file(f"{_CPUS}/offline"):  # LXC numbers the CPUs in `online` anew
        off = set(cpus).difference(parse_cpu_list(host.read(f"{_CPUS}/online", 65536)))
    return tuple(cpu for cpu in cpus if cpu not in off) or cpus


def _groups(host: Host) -> dict[str, Any]:
    """Return the limits of the control groups: infinity for no limit, None if it is not known."""
    quota = cgroups.cpu_quota(host)
    limits = {name: cgroups.limit(host, name) for name in cgroups.LIMITS}
    memory = limits["memory_limit_bytes"]
    throttled = cgroups.throttling(host, quota.folder if quota else "")
    weight = cgroups.cpu_weight(host)
    cpus = _switched_on(host, cgroups.allowed_cpus(host))
    return {
        "cgroup_version": cgroups.version(host),
        "cpu_quota": quota and quota.value,
        "cpu_quota_group": quota.folder if quota and quota.value < inf else "",
        "cpu_periods": throttled and throttled[0],
        "cpu_throttled_periods": throttled and throttled[1],
        "cpu_throttled_seconds": throttled and throttled[2],
        **({f"cpu_{weight[0]}": weight[1]} if weight else {}),
        "cpuset": format_cpu_list(cpus),
        "cpuset_cpus": len(cpus) or None,
        "cpuset_memory_nodes": format_cpu_list(cgroups.allowed_memory_nodes(host)),
        **{
            name: limit and (int(limit.value) if limit.value < inf else inf) for name, limit in limits.items()
        },
        "memory_limit_group": memory and memory.folder,
        "memory_usage_bytes": cgroups.memory_usage(host, memory.folder if memory else ""),
    }


def _ulimits(host: Host) -> dict[str, float]:
    limits: dict[str, float] = {}
    for line in host.read("/proc/self/limits", 65536).splitlines():
        # The name takes 26 columns, and may hold single spaces.
        names = _ULIMITS.get(line[:26].strip(), ())
        for name, value in zip(names, line[26:].split(), strict=False):
            number = inf if value == "unlimited" else whole_number(value)
            if name and number is not None:
                limits[name] = number
    return limits


def _load(host: Host) -> dict[str, Any]:
    """Return how many threads want the CPUs, and how those of the inspected process fare.

    Source: proc_loadavg(5); proc_pid_stat(5); Documentation/accounting/psi.rst; scheduler/sched-stats.rst.
    """
    load = host.read("/proc/loadavg", 256).split()
    pressure = _PRESSURE.match(host.read("/proc/pressure/cpu", 1024))
    facts = {
        "load_average": decimal(load[0]) if load else None,
        "runnable_threads": whole_number(load[3].partition("/")[0]) if len(load) > 3 else None,
        "cpu_pressure": float(pressure[1]) if pressure else None,
    }
    tasks = host.listdir("/proc/self/task")[:_MOST_THREADS] if host.pid is not None else ()
    states, ran, waited = [], 0, 0
    for task in tasks:
        fields = host.read(f"/proc/self/task/{task}/stat", 4096).rpartition(")")[2].split()
        times = host.read(f"/proc/self/task/{task}/schedstat", 256).split()
        states += fields[:1]
        if len(times) > 1 and (times[0] + times[1]).isdecimal():
            ran, waited = ran + int(times[0]), waited + int(times[1])
    if states:
        facts["process_threads"] = len(states)
        facts["process_running_threads"] = states.count("R")
    if ran > _SHORT:
        facts["process_waiting_share"] = round(waited / (ran + waited), 3)
    return facts


def _too_many(expected: list[tuple[str, int, str]], facts: dict[str, Any], machine: Machine) -> list[Reason]:
    """Return a warning for the runtimes that start more threads than they have CPUs."""
    cpus = facts["effective_cpus"]
    over = {runtime: count for runtime, count, _ in expected if count > cpus}
    if not over:
        return []
    names = ", ".join(f"{runtime} ({count})" for runtime, count in over.items())
    cause = f"{names} {'starts' if len(over) == 1 else 'start'} more threads than the"
    settings = []
    if any(runtime not in _PYTHON_ROWS for runtime in over):
        settings.append(f"OMP_NUM_THREADS={cpus}")
    if machine.python >= (3, 13) and any(runtime in _PYTHON_ROWS for runtime in over):
        settings.append(f"PYTHON_CPU_COUNT={cpus}")
    hint = f"set {' and '.join(settings)}" if settings else ""
    if cpus >= machine.online > 0:
        message = f"{cause} {cpus} CPUs of this machine"
        return [Reason("override-exceeds-hardware", message, hint)]
    limit = cgroups.CPU_LIMITS[facts["effective_cpus_because"]]
    limit += f" of {facts['cpu_quota']}" if limit == "the CPU quota" else ""
    message = f"{cause} {cpus} CPU{'' if cpus == 1 else 's'} that {limit} leaves"
    return [Reason("limit-below-hardware", message, hint)]
