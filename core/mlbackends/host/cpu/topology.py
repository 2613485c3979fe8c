"""How a machine's CPUs hang together: sockets, cores, threads, kinds of core, NUMA nodes.

Source: Linux, Documentation/admin-guide/cputopology.rst and sysfs-devices-system-cpu. A file that
lists siblings is read once for each group, not once for each CPU: hundreds of CPUs stay quick.

A machine's CPU caches: how many there are of each, how large, and how many CPUs share one.

Source: Linux, sysfs-devices-system-cpu, cache/index*. Each instance is met once, through the first
CPU that has it; size is read of each L3, which may differ from die to die, and of the others once
for each kind of core.
"""

import re
from collections.abc import Sequence

from mlbackends.host.cpu.cpuinfo import Block, arm_cores, core_name
from mlbackends.host.host import Host
from mlbackends.host.quantities import format_cpu_list, parse_cpu_list, size_in_bytes, whole_number
from mlbackends.model.records import FactValue

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"

Groups = list[tuple[int, ...]]
"""CPUs that share something: the threads of a core, the CPUs of a socket."""

Kinds = list[tuple[str, tuple[int, ...], dict[str, int]]]
"""Of each kind of core its name, its CPUs, and what else is known of it."""


def online_cpus(host: Host, blocks: list[Block]) -> tuple[int, ...]:
    """Return the CPUs that are on, by /sys or, where that is missing, by /proc/cpuinfo."""
    online = parse_cpu_list(host.read(f"{CPU}/online"))
    if online:
        return online
    named = parse_cpu_list(" ".join(block.get("processor", "") for block in blocks))
    if named:
        return named
    # s390x has no such key, but "processor 0" and a count.
    counted = next(
        (whole_number(b["# processors"], 1, 8192) for b in blocks if "# processors" in b), None
    )
    return tuple(range(counted or 0))


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
    if not cpus:
        return []
    package = host.read(f"{CPU}/cpu{cpus[0]}/topology/physical_package_id")
    if package.startswith("-"):  # device trees without sockets: the list is of clusters then
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
    told = sorted(cpu for group in groups.values() for cpu in group)
    return [tuple(group) for group in groups.values()] if told == list(cpus) else []


def topology_facts(
    host: Host, blocks: list[Block], cpus: tuple[int, ...], kinds: Kinds
) -> dict[str, FactValue]:
    """Return how many sockets, cores and threads there are, and which CPUs are on or off."""
    facts: dict[str, FactValue] = {}
    if not cpus:
        return facts
    facts["threads"] = len(cpus)
    facts["online_cpus"] = format_cpu_list(cpus)
    cores = core_groups(host, cpus, blocks)
    sockets = socket_groups(host, cpus, blocks)
    if cores:
        facts["cores"] = len(cores)
        facts["threads_per_core"] = max(len(core) for core in cores)
    if sockets:
        facts["sockets"] = len(sockets)
    dies = sibling_groups(host, cpus, "die_cpus_list")
    if dies:
        facts["dies"] = len(dies)
    present = parse_cpu_list(host.read(f"{CPU}/present"))
    if present:
        facts["offline_cpus"] = format_cpu_list(set(present) - set(cpus))
    for fact, name in (("isolated_cpus", "isolated"), ("nohz_full_cpus", "nohz_full")):
        if listed := parse_cpu_list(host.read(f"{CPU}/{name}")):
            facts[fact] = format_cpu_list(listed)
    if kinds:
        facts["kinds"] = [_kind(name, group, more, cores) for name, group, more in kinds]
    return facts


def kind_groups(host: Host, cpus: tuple[int, ...], blocks: list[Block]) -> Kinds:
    """Return each kind of core, the strongest first.

    [] on the usual machine, where all are of one kind.
    """
    return _intel_kinds(host, cpus) or _arm_kinds(host, cpus, blocks)


def _intel_kinds(host: Host, cpus: tuple[int, ...]) -> Kinds:
    names = {"cpu_core": "performance", "cpu_atom": "efficiency", "cpu_lowpower": "low-power"}
    kinds: Kinds = []
    for folder, name in names.items():
        listed = set(parse_cpu_list(host.read(f"/sys/devices/{folder}/cpus")))
        if group := tuple(cpu for cpu in cpus if cpu in listed):
            kinds.append((name, group, {}))
    return kinds if len(kinds) > 1 else []


def _arm_kinds(host: Host, cpus: tuple[int, ...], blocks: list[Block]) -> Kinds:
    parts = arm_cores(blocks)
    if not parts:
        return []
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
    kinds: Kinds = []
    for (strength, implementer, part), group in sorted(groups.items(), reverse=True):
        name = core_name(implementer, part) or f"{implementer:#04x}/{part:#05x}"
        kinds.append((name, tuple(group), {"capacity": strength} if strength else {}))
    return kinds


def _kind(
    name: str, group: tuple[int, ...], more: dict[str, int], cores: Groups
) -> dict[str, FactValue]:
    kind: dict[str, FactValue] = {
        "name": name,
        "threads": len(group),
        "cpus": format_cpu_list(group),
        **more,
    }
    if cores:
        members = set(group)
        kind["cores"] = sum(1 for core in cores if core[0] in members)
    return kind


def numa_nodes(host: Host) -> list[dict[str, FactValue]]:
    """Return each node's CPUs, memory and distances to the nodes in order; [] where there are none.

    A node without CPUs is memory of its own: HBM, a GPU's, CXL.
    """
    nodes: list[dict[str, FactValue]] = []
    names = [
        match for name in host.listdir(NODE) if (match := re.fullmatch(r"node(\d{1,5})", name))
    ]
    for match in sorted(names, key=lambda match: int(match[1])):
        folder = f"{NODE}/{match[0]}"
        node: dict[str, FactValue] = {
            "node": int(match[1]),
            "cpus": format_cpu_list(parse_cpu_list(host.read(f"{folder}/cpulist"))),
        }
        if told := re.search(r"MemTotal:\s*(\d+ kB)", host.read(f"{folder}/meminfo", 4096)):
            memory = size_in_bytes(told[1])
            if memory is not None:
                node["memory_bytes"] = memory
        distances = host.read(f"{folder}/distance", 65536).split()
        numbers = [whole_number(one, highest=255) for one in distances]
        if numbers and None not in numbers:
            node["distances"] = numbers
        nodes.append(node)
    return nodes


Cache = dict[str, FactValue]

_TYPES = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_LARGEST = 1 << 40
_LAST_LEVELS = 3


def caches(
    host: Host, cpus: Sequence[int], kinds: Sequence[Sequence[int]], blocks: list[Block]
) -> list[Cache]:
    """Return one record for each different cache, from the first level to the last.

    kinds: the CPUs of each kind of core, [] if all are alike. Size and count are of one instance
    and of instances on the whole machine.
    """
    found: dict[tuple[tuple[str, FactValue], ...], list[int]] = {}
    covered: dict[tuple[FactValue, FactValue], set[int]] = {}
    online = set(cpus)
    for group in kinds or [cpus]:
        indexes = _indexes(host, group[0]) if group else {}
        for name, cache in indexes.items():
            done = covered.setdefault((cache["level"], cache["type"]), set())
            for cpu in group:
                if cpu in done:
                    continue
                shared = _shared(host, cpu, name, online)
                if not shared:
                    continue
                done |= shared
                same = _with_size(host, cpu, name, cache)
                found.setdefault(tuple(same.items()), []).append(len(shared))
    listed = [
        {**dict(cache), "instances": len(sharing), "shared_by_cpus": max(sharing)}
        for cache, sharing in found.items()
    ]
    listed += _from_cpuinfo(blocks, {cache["level"] for cache in listed})
    return sorted(listed, key=_order)


def _indexes(host: Host, cpu: int) -> dict[str, Cache]:
    """Return one CPU's caches by the name of their folder, but those without level or size."""
    indexes = {}
    for name in host.listdir(f"{CPU}/cpu{cpu}/cache"):
        if not re.fullmatch(r"index\d{1,2}", name):
            continue
        folder = f"{CPU}/cpu{cpu}/cache/{name}"
        level = whole_number(host.read(f"{folder}/level"), 1, 8)
        size = size_in_bytes(host.read(f"{folder}/size"))
        kind = _TYPES.get(host.read(f"{folder}/type"))
        if level is None or kind is None or not size or size > _LARGEST:
            continue
        cache: Cache = {"level": level, "type": kind, "size_bytes": size}
        for fact, file in (
            ("line_bytes", "coherency_line_size"),
            ("ways", "ways_of_associativity"),
        ):
            # Hypervisors and device trees that do not know say 0.
            number = whole_number(host.read(f"{folder}/{file}"), 1, 65536)
            if number is not None:
                cache[fact] = number
        indexes[name] = cache
    return indexes


def _shared(host: Host, cpu: int, name: str, online: set[int]) -> set[int]:
    """Return the CPUs that share this one's cache, itself at least; empty if it has none such."""
    folder = f"{CPU}/cpu{cpu}/cache/{name}"
    text = host.read(f"{folder}/shared_cpu_list")
    if not text and not host.exists(folder):
        return set()
    shared = set(parse_cpu_list(text)) & online
    return shared if cpu in shared else {cpu}


def _with_size(host: Host, cpu: int, name: str, cache: Cache) -> Cache:
    level = cache["level"]
    if isinstance(level, int) and level < _LAST_LEVELS:
        return cache
    size = size_in_bytes(host.read(f"{CPU}/cpu{cpu}/cache/{name}/size"))
    return {**cache, "size_bytes": size} if size and size <= _LARGEST else cache


def _from_cpuinfo(blocks: list[Block], known: set[FactValue]) -> list[Cache]:
    """Return the levels that only /proc/cpuinfo of s390x tells, without a count of instances."""
    listed: list[Cache] = []
    for block in blocks:
        for key, value in block.items():
            if not re.fullmatch(r"cache\d{1,2}", key):
                continue
            told = dict(re.findall(r"(\w+)=(\S+)", value))
            level = whole_number(told.get("level", ""), 1, 8)
            size = size_in_bytes(told.get("size", ""))
            kind = _TYPES.get(told.get("type", ""))
            if level is None or level in known or kind is None or not size or size > _LARGEST:
                continue
            cache: Cache = {"level": level, "type": kind, "size_bytes": size}
            for fact, name in (("line_bytes", "line_size"), ("ways", "associativity")):
                number = whole_number(told.get(name, ""), 1, 65536)
                if number is not None:
                    cache[fact] = number
            if cache not in listed:
                listed.append(cache)
    return listed


def _order(cache: Cache) -> tuple[int, str, int]:
    level, size = cache["level"], cache["size_bytes"]
    assert isinstance(level, int)
    assert isinstance(size, int)
    return level, str(cache["type"]), -size
