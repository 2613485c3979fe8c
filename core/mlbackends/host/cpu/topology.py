"""How a machine's CPUs are arranged: sockets, cores, threads, kinds of core, NUMA nodes, caches.

Source: Linux, Documentation/admin-guide/cputopology.rst and sysfs-devices-system-cpu, cache/index*. A file
that lists siblings is read once for each group, not once for each CPU: hundreds of CPUs stay quick.
"""

import re
from collections.abc import Sequence

from mlbackends.host.cpu.cpuinfo import Block, arm_cores, core_name
from mlbackends.host.host import Host
from mlbackends.host.quantities import (
    format_cpu_list,
    parse_cpu_list,
    size_in_bytes,
    whole_number,
)
from mlbackends.model.records import FactValue, nonempty

CPU = "/sys/devices/system/cpu"

Groups = list[tuple[int, ...]]
"""CPUs that share something: the threads of a core, the CPUs of a socket."""

Kinds = list[tuple[str, tuple[int, ...], dict[str, int]]]
"""Of each kind of core its name, its CPUs, and what else is known of it."""

Cache = dict[str, FactValue]

_CACHE_TYPES = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_LARGEST_CACHE = 1 << 40
_LAST_LEVELS = 3


def online_cpus(host: Host, blocks: list[Block]) -> tuple[int, ...]:
    """Return the CPUs that are on, by /sys or, where that is missing, by /proc/cpuinfo."""
    online = parse_cpu_list(host.read(f"{CPU}/online"))
    named = online or parse_cpu_list(" ".join(block.get("processor", "") for block in blocks))
    if named:
        return named
    # s390x has no such key, but "processor 0" and a count.
    count = next((b["# processors"] for b in blocks if "# processors" in b), "")
    return tuple(range(whole_number(count, 1, 8192) or 0))


def sibling_groups(host: Host, cpus: tuple[int, ...], *names: str) -> Groups:
    """Return the groups that a topology file lists; [] if it is missing for any of the CPUs.

    names: the file's name, then the older ones it had.
    """
    name = next((n for n in names if host.read(f"{CPU}/cpu{cpus[0]}/topology/{n}")), "")
    groups: Groups = []
    wanted = set(cpus)
    covered: set[int] = set()
    for cpu in cpus if name else ():
        if cpu in covered:
            continue
        listed = parse_cpu_list(host.read(f"{CPU}/cpu{cpu}/topology/{name}"))
        if cpu not in listed:
            return []
        group = tuple(other for other in listed if other in wanted and other not in covered)
        covered.update(group)
        groups.append(group)
    return groups


def core_groups(host: Host, cpus: tuple[int, ...], blocks: list[Block]) -> Groups:
    """Return the threads of each core; [] where nothing tells."""
    if not cpus:
        return []
    by_file = sibling_groups(host, cpus, "core_cpus_list", "thread_siblings_list")
    return by_file or _grouped(blocks, cpus, "physical id", "core id")


def socket_groups(host: Host, cpus: tuple[int, ...], blocks: list[Block]) -> Groups:
    """Return the CPUs of each socket; [] where nothing tells."""
    # Device trees without sockets say -1: the list is of clusters then.
    if not cpus or host.read(f"{CPU}/cpu{cpus[0]}/topology/physical_package_id").startswith("-"):
        return []
    by_file = sibling_groups(host, cpus, "package_cpus_list", "core_siblings_list")
    return by_file or _grouped(blocks, cpus, "physical id")


def _grouped(blocks: list[Block], cpus: tuple[int, ...], *keys: str) -> Groups:
    """Group the CPUs by these keys of /proc/cpuinfo; [] unless it has all of each."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for block in blocks:
        cpu = whole_number(block.get("processor", ""), highest=65535)
        if cpu is None or not all(block.get(key) for key in keys):
            return []
        groups.setdefault(tuple(block[key] for key in keys), []).append(cpu)
    grouped = sorted(cpu for group in groups.values() for cpu in group)
    return [tuple(group) for group in groups.values()] if grouped == list(cpus) else []


def topology_facts(
    host: Host, blocks: list[Block], cpus: tuple[int, ...], kinds: Kinds
) -> dict[str, FactValue]:
    """Return how many sockets, cores and threads there are, and which CPUs are on or off."""
    if not cpus:
        return {}
    cores = core_groups(host, cpus, blocks)
    described = [
        {
            "name": name,
            "threads": len(group),
            "cpus": format_cpu_list(group),
            **more,
            **({"cores": sum(1 for core in cores if core[0] in group)} if cores else {}),
        }
        for name, group, more in kinds
    ]
    facts = {
        "threads": len(cpus),
        "online_cpus": format_cpu_list(cpus),
        "cores": len(cores) or None,
        "threads_per_core": max(map(len, cores), default=None),
        "sockets": len(socket_groups(host, cpus, blocks)) or None,
        "dies": len(sibling_groups(host, cpus, "die_cpus_list")) or None,
        "isolated_cpus": format_cpu_list(parse_cpu_list(host.read(f"{CPU}/isolated"))),
        "nohz_full_cpus": format_cpu_list(parse_cpu_list(host.read(f"{CPU}/nohz_full"))),
        "kinds": described,
    }
    present = parse_cpu_list(host.read(f"{CPU}/present"))
    offline = {"offline_cpus": format_cpu_list(set(present) - set(cpus))} if present else {}
    return nonempty(facts) | offline


def kind_groups(host: Host, cpus: tuple[int, ...], blocks: list[Block]) -> Kinds:
    """Return each kind of core, the strongest first.

    [] on the usual machine, where all are of one kind.
    """
    names = {"cpu_core": "performance", "cpu_atom": "efficiency", "cpu_lowpower": "low-power"}
    kinds: Kinds = []
    for folder, name in names.items():
        listed = set(parse_cpu_list(host.read(f"/sys/devices/{folder}/cpus")))
        if group := tuple(cpu for cpu in cpus if cpu in listed):
            kinds.append((name, group, {}))
    parts = arm_cores(blocks)
    if len(kinds) > 1 or not parts:
        return kinds if len(kinds) > 1 else []
    numbers = parse_cpu_list(" ".join(block.get("processor", "") for block in blocks))
    part_of = dict(zip(numbers, parts, strict=False)) if len(numbers) == len(parts) else {}
    groups: dict[tuple[int, int, int], list[int]] = {}
    has_capacity = bool(host.read(f"{CPU}/cpu{cpus[0]}/cpu_capacity")) if cpus else False
    for cpu in cpus:
        capacity = host.read(f"{CPU}/cpu{cpu}/cpu_capacity") if has_capacity else ""
        strength = whole_number(capacity, highest=65536) or 0
        groups.setdefault((strength, *part_of.get(cpu, (0, 0))), []).append(cpu)
    if len(groups) == 1:
        return []
    return [
        (
            core_name(implementer, part) or f"{implementer:#04x}/{part:#05x}",
            tuple(group),
            {"capacity": strength} if strength else {},
        )
        for (strength, implementer, part), group in sorted(groups.items(), reverse=True)
    ]


# ---- caches ------------------------------------------------------------------------------------


def caches(
    host: Host, cpus: Sequence[int], kinds: Sequence[Sequence[int]], blocks: list[Block]
) -> list[Cache]:
    """Return one record for each different cache, from the first level to the last.

    kinds: the CPUs of each kind of core, [] if all are alike. Size and count are of one instance
    and of instances on the whole machine. Each instance is met once, through the first CPU that has
    it; size is read of each L3, which may differ from die to die, and of the others once a kind.
    """
    found: dict[tuple[tuple[str, FactValue], ...], list[int]] = {}
    covered: dict[tuple[FactValue, FactValue], set[int]] = {}
    online = set(cpus)
    for group in kinds or [cpus]:
        for name, cache in _indexes(host, group[0]).items() if group else ():
            done = covered.setdefault((cache["level"], cache["type"]), set())
            for cpu in group:
                folder = f"{CPU}/cpu{cpu}/cache/{name}"
                if cpu in done or not host.exists(folder):
                    continue
                shared = set(parse_cpu_list(host.read(f"{folder}/shared_cpu_list"))) & online
                shared = shared if cpu in shared else {cpu}
                done |= shared
                size = None
                if isinstance(cache["level"], int) and cache["level"] >= _LAST_LEVELS:
                    size = size_in_bytes(host.read(f"{folder}/size"))
                same = {**cache, "size_bytes": size} if size and size <= _LARGEST_CACHE else cache
                found.setdefault(tuple(same.items()), []).append(len(shared))
    listed: list[Cache] = [
        {**dict(cache), "instances": len(sharing), "shared_by_cpus": max(sharing)}
        for cache, sharing in found.items()
    ]
    # Levels that only /proc/cpuinfo of s390x tells, without a count of instances.
    levels = {cache["level"] for cache in listed}
    for key, value in ((key, value) for block in blocks for key, value in block.items()):
        if key.startswith("cache") and key[5:].isdecimal():
            words = dict(re.findall(r"(\w+)=(\S+)", value))
            names = ("level", "type", "size", "line_size", "associativity")
            cache_line = _cache(*(words.get(name, "") for name in names))
            if cache_line and cache_line["level"] not in levels and cache_line not in listed:
                listed.append(cache_line)
    return sorted(listed, key=lambda each: (each["level"], each["type"], -each["size_bytes"]))  # type: ignore[operator]


def _indexes(host: Host, cpu: int) -> dict[str, Cache]:
    """Return one CPU's caches by the name of their folder, but those without level or size."""
    indexes = {}
    files = ("level", "type", "size", "coherency_line_size", "ways_of_associativity")
    for name in host.listdir(f"{CPU}/cpu{cpu}/cache"):
        folder = f"{CPU}/cpu{cpu}/cache/{name}"
        cache = None
        if re.fullmatch(r"index\d{1,2}", name):
            cache = _cache(*(host.read(f"{folder}/{file}") for file in files))
        if cache:
            indexes[name] = cache
    return indexes


def _cache(level_text: str, type_text: str, size_text: str, line: str, ways: str) -> Cache | None:
    level, size = whole_number(level_text, 1, 8), size_in_bytes(size_text)
    kind = _CACHE_TYPES.get(type_text)
    if level is None or kind is None or not size or size > _LARGEST_CACHE:
        return None
    cache: Cache = {"level": level, "type": kind, "size_bytes": size}
    for fact, text in (("line_bytes", line), ("ways", ways)):
        # Hypervisors and device trees that do not know say 0.
        number = whole_number(text, 1, 65536)
        if number is not None:
            cache[fact] = number
    return cache
