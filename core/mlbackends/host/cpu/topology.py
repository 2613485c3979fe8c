"""How a machine's CPUs are arranged: sockets, cores, threads, kinds of core, NUMA nodes, caches.

A file that lists siblings is read once for each group and not for each CPU, so that hundreds of CPUs are
quick. Source: Linux, Documentation/admin-guide/cputopology.rst and sysfs-devices-system-cpu, cache/index*.
"""

import re
from collections.abc import Sequence
from typing import Any

from mlbackends.base.quantities import (
    format_cpu_list,
    parse_cpu_list,
    parse_cpu_mask,
    size_in_bytes,
    whole_number,
)
from mlbackends.host.cpu.cpuinfo import (
    Block,
    common_facts,
    design_of_midr,
    designs,
    first,
    processor_numbers,
)
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.system.numa import NODE, numa_nodes
from mlbackends.model.records import FactValue, nonempty

CPU = "/sys/devices/system/cpu"

#: CPUs that share something: the threads of a core, the CPUs of a socket.
Groups = list[tuple[int, ...]]

#: For each kind of core its name, its CPUs, and other facts about it.
Kinds = list[tuple[str, tuple[int, ...], dict[str, FactValue]]]

#: For each CPU its own highest frequency and the highest that its settings allow, in hertz.
Limits = dict[int, tuple[int | None, int | None]]

Cache = dict[str, FactValue]

_CACHE_TYPES = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_LARGEST_CACHE = 1 << 40
#: The folders of the performance counters of Intel's kinds of core.
_COUNTERS = {"cpu_core": "performance", "cpu_atom": "efficiency", "cpu_lowpower": "low-power"}
_WITH_DEVICE_TREE = frozenset({"aarch64", "arm", "riscv64"})


def online_cpus(host: Host, blocks: list[Block]) -> tuple[int, ...]:
    """Return the CPUs that are online, from /sys or, if that is missing, from /proc/cpuinfo."""
    if host.platform == "win32":
        from mlbackends.host.windows import cpu as windows

        return windows.online_cpus(host)
    if online := parse_cpu_list(host.read(f"{CPU}/online")):
        return online
    is_off = {cpu for cpu in _present(host) if host.read(f"{CPU}/cpu{cpu}/online") == "0"}
    return tuple(cpu for cpu in _present(host) if cpu not in is_off) or processor_numbers(blocks)


@once_per_host
def _present(host: Host) -> tuple[int, ...]:
    """Return the CPUs that are present; Linux before 2.6.26 has a folder for each and no list."""
    if listed := parse_cpu_list(host.read(f"{CPU}/present")):
        return listed
    names = (re.fullmatch(r"cpu(\d{1,5})", name) for name in host.listdir(CPU))
    return tuple(sorted(int(name[1]) for name in names if name))


def sibling_groups(host: Host, cpus: tuple[int, ...], *names: str) -> Groups:
    """Return the groups that a topology file lists; [] if it is missing for a CPU, or groups overlap.

    names: the file's name, then the older ones it had; one that does not end in _list is a mask.
    """
    if host.platform == "win32":
        from mlbackends.host.windows import cpu as windows

        return windows.groups(host, cpus, names[0])
    name = next((n for n in names if host.read(f"{CPU}/cpu{cpus[0]}/topology/{n}")), "")
    parse = parse_cpu_list if name.endswith("_list") else parse_cpu_mask
    groups: Groups = []
    chosen = set(cpus)
    covered: set[int] = set()
    for cpu in cpus if name else ():
        if cpu in covered:
            continue
        group = chosen.intersection(parse(host.read(f"{CPU}/cpu{cpu}/topology/{name}")))
        if cpu not in group or group & covered:
            return []
        covered |= group
        groups.append(tuple(sorted(group)))
    return groups


def core_groups(host: Host, cpus: tuple[int, ...], blocks: list[Block]) -> Groups:
    """Return the threads of each core, [] if they are not known."""
    if not cpus:
        return []
    names = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
    return sibling_groups(host, cpus, *names) or _grouped(blocks, cpus, "physical id", "core id")


def package_groups(host: Host, cpus: tuple[int, ...], blocks: list[Block]) -> Groups:
    """Return the CPUs of each package as the kernel lists them, [] if they are not known."""
    names = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
    by_file = sibling_groups(host, cpus, *names)
    firsts = [group[0] for group in by_file] or cpus
    # Some kernels list only the CPU itself, though several have the number of one package.
    paths = (f"{CPU}/cpu{cpu}/topology/physical_package_id" for cpu in firsts)
    by_number: dict[int, list[int]] = {}
    for path, group in zip(paths, by_file or [(cpu,) for cpu in cpus], strict=True):
        number = whole_number(host.read(path))
        if number is None:  # -1: the kernel knows of siblings only
            return by_file or _grouped(blocks, cpus, "physical id")
        by_number.setdefault(number, []).extend(group)
    return [tuple(sorted(group)) for group in by_number.values()]


def socket_count(
    host: Host, architecture: str, cpus: tuple[int, ...], packages: Groups, kinds: Kinds
) -> int | None:
    """Return the number of sockets; None if it cannot be determined.

    With a device tree, Linux before 6.0 counts clusters of cores as packages. The binding has socket nodes
    for machines with several sockets, which have several NUMA nodes too.
    Source: Linux, drivers/base/arch_topology.c; Devicetree Specification, cpu-topology.txt.
    """
    number = whole_number(host.read(f"{CPU}/cpu{cpus[0]}/topology/physical_package_id"))
    is_certain = (len(packages) == 1 and number is not None) or host.platform == "win32"
    if is_certain or architecture not in _WITH_DEVICE_TREE or host.is_dir("/sys/firmware/acpi"):
        return len(packages) or None
    if cpu_map := host.listdir("/proc/device-tree/cpus/cpu-map"):
        return sum(1 for name in cpu_map if re.fullmatch(r"socket\d+", name)) or 1
    lists = (parse_cpu_list(str(node["cpus"])) for node in numa_nodes(host))
    nodes = [set(node) for node in lists if node]
    if len(nodes) > 1:
        is_split = all(any(node <= set(group) for group in packages) for node in nodes)
        return len(packages) if is_split and len(packages) > 1 else None
    has_tree = host.exists("/proc/device-tree/compatible") or host.is_link(f"{CPU}/cpu0/of_node")
    has_one_memory = host.is_dir(CPU) and not host.is_dir(NODE)
    return 1 if has_tree or kinds or has_one_memory else None


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
    host: Host, architecture: str, blocks: list[Block], cpus: tuple[int, ...], kinds: Kinds
) -> dict[str, FactValue]:
    """Return how many sockets, cores and threads there are, and which CPUs are online or offline.

    Levels that contradict each other are left out: a core is in one die, and a die in one socket.
    """
    if not cpus:
        return {}
    cores, packages = core_groups(host, cpus, blocks), package_groups(host, cpus, blocks)
    sockets = socket_count(host, architecture, cpus, packages, kinds)
    if sockets == len(packages) and not _lie_in(cores, packages):
        cores, packages, sockets = [], [], None
    dies = sibling_groups(host, cpus, "die_cpus_list", "die_cpus")
    # Where the kernel does not know of dies, their number is -1, and each CPU is listed alone.
    is_reported = not host.read(f"{CPU}/cpu{cpus[0]}/topology/die_id").startswith("-")
    is_reported = is_reported and not (len(dies) >= len(cores) > (sockets or 1))
    if not (is_reported and _lie_in(cores, dies) and _lie_in(dies, packages)):
        dies = []
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
        "sockets": sockets,
        "dies": len(dies) or None,
        "isolated_cpus": format_cpu_list(parse_cpu_list(host.read(f"{CPU}/isolated"))),
        "nohz_full_cpus": format_cpu_list(parse_cpu_list(host.read(f"{CPU}/nohz_full"))),
        "kinds": described,
    }
    present = _present(host)
    offline = format_cpu_list(set(present) - set(cpus))
    if len({*map(len, cores)}) > 1 or len(cores) % (len(dies) or sockets or 1):
        noun = "cores" if len({*map(len, cores)}) > 1 else "sockets"
        why = f"CPU {offline} is off" if offline else f"the kernel lists {noun} of several sizes"
        facts["uneven"] = "the kinds of core differ" if kinds else why
    return nonempty(facts) | ({"offline_cpus": offline} if present else {})


def _lie_in(inner: Groups, outer: Groups) -> bool:
    """Return whether each inner group is in one outer group; True if one of the two is not known."""
    at = {cpu: number for number, group in enumerate(outer) for cpu in group}
    return not outer or all(len({at.get(cpu) for cpu in group}) == 1 for group in inner)


def kind_groups(host: Host, cpus: tuple[int, ...], blocks: list[Block], limits: Limits) -> Kinds:
    """Return each kind of core, the fastest first; [] on the usual machine, where all are equal.

    Kinds follow the part number of the core. Capacity, else the highest frequency, distinguishes them only
    if a CPU's part is not known: cores of one part may be clocked differently. limits: as `speed.limits`
    returns them.
    """
    kinds: Kinds = []
    for folder, name in _COUNTERS.items():
        listed = set(parse_cpu_list(host.read(f"/sys/devices/{folder}/cpus")))
        if group := tuple(cpu for cpu in cpus if cpu in listed):
            kinds.append((name, group, {}))
    if len(kinds) > 1 or not cpus or (blocks and "flags" in blocks[0]):
        return kinds if len(kinds) > 1 else []
    by_cpu = designs(blocks)
    for cpu in cpus:
        register = f"{CPU}/cpu{cpu}/regs/identification/midr_el1"
        if cpu not in by_cpu and (midr := whole_number(host.read(register))) is not None:
            by_cpu[cpu] = design_of_midr(midr)
    # Old kernels state the part of one core, or "0xc07 & 0xc0f"; then frequencies distinguish the clusters.
    has_clocks = bool(by_cpu or first(blocks, "cpu part")) and limits.keys() >= set(cpus)
    by_cpu = {cpu: by_cpu[cpu] for cpu in cpus} if by_cpu.keys() >= set(cpus) else {}
    if len({design.key for design in by_cpu.values()}) == 1:
        return []
    has_capacity = bool(host.read(f"{CPU}/cpu{cpus[0]}/cpu_capacity"))
    groups: dict[str, list[int]] = {}
    strengths: dict[str, tuple[int, int]] = {}  # the most of capacity, and of frequency
    for cpu in cpus:
        text = host.read(f"{CPU}/cpu{cpu}/cpu_capacity") if has_capacity else ""
        capacity = whole_number(text, highest=65536) or 0
        fastest = limits.get(cpu, (0, 0))[0] or 0 if has_clocks or by_cpu else 0
        key = by_cpu[cpu].key if by_cpu else str(capacity or fastest)
        strengths[key] = max((capacity, fastest), strengths.get(key, (0, 0)))
        groups.setdefault(key, []).append(cpu)
    kinds = []
    for key in sorted(groups, key=lambda key: (strengths[key], key), reverse=True):
        capacity, fastest = strengths[key]
        name, more = f"capacity-{key}", nonempty({"capacity": capacity or None})
        if not capacity and fastest:
            name = f"{fastest / 1e9:.3g}-GHz"
        if by_cpu:
            own = [by_cpu[cpu] for cpu in groups[key]]
            is_second = own[0].name in (kind[0] for kind in kinds)
            name = f"{own[0].name} {own[0].part}".strip() if is_second else own[0].name
            more = {**common_facts(own), **more}
        kinds.append((name, tuple(groups[key]), more))
    return kinds if len(kinds) > 1 else []


# ---- caches ------------------------------------------------------------------------------------


def caches(host: Host, cpus: Sequence[int], kinds: Kinds, blocks: list[Block]) -> list[Cache]:
    """Return one record for each different cache, from the first level to the last.

    The size is that of one instance, the count is of instances on the whole machine. A cache that only one
    kind of core has names the kind; instances times sharing is the number of its CPUs, without those that are
    offline. A cache without a list of sharing CPUs, or with contradicting lists, has no count.
    Each instance is met once, through the first CPU that has it. Its size is read each time; its other
    attributes once for the CPUs of a kind that have as many caches, of the same size.
    """
    online, of_kind = set(cpus), {cpu: name for name, group, _ in kinds for cpu in group}
    has_offline = not online.issuperset(_present(host))
    indexes: dict[tuple[str, ...], dict[str, Cache]] = {}  # by kind and the names of the folders
    counts: dict[Any, list[int]] = {}  # numbers of sharing CPUs, by attributes and kind of core
    covered: dict[tuple[FactValue, FactValue], set[int]] = {}
    unclear = set()
    for cpu in cpus:
        if covered and all(cpu in done for done in covered.values()):
            continue
        layout = (of_kind.get(cpu, ""), *host.listdir(f"{CPU}/cpu{cpu}/cache"))
        if layout not in indexes:
            of_brother = next((other for key, other in indexes.items() if key[0] == layout[0]), {})
            indexes[layout] = _indexes(host, cpu, of_brother)
        for name, usual in indexes[layout].items():
            folder, level = f"{CPU}/cpu{cpu}/cache/{name}", (usual["level"], usual["type"])
            done = covered.setdefault(level, set())
            if cpu in done:
                continue
            sharing = parse_cpu_list(host.read(f"{folder}/shared_cpu_list"))
            if cpu not in sharing:
                sharing = parse_cpu_mask(host.read(f"{folder}/shared_cpu_map"))
            shared = online.intersection(sharing)
            if cpu not in shared or shared & done:
                unclear.add(level)
                shared = {cpu}
            done |= shared
            size = size_in_bytes(host.read(f"{folder}/size"))
            is_usual = size in (None, usual["size_bytes"])
            cache = usual if is_usual else _indexes(host, cpu, {}).get(name, usual)
            owners = {of_kind.get(other, "") for other in shared}
            owner = owners.pop() if len(owners) == 1 else ""
            # If a CPU is offline, the others still share its cache.
            alike = (tuple(cache.items()), owner, 0 if has_offline else len(shared))
            counts.setdefault(alike, []).append(len(shared))
    listed: list[Cache] = []
    for (attributes, kind, _), numbers in counts.items():
        cache = dict(attributes)
        if (cache["level"], cache["type"]) not in unclear:
            cache |= {"instances": len(numbers), "shared_by_cpus": max(numbers)}
        cache |= {"kind": kind} if kind else {}
        if cache not in listed:
            listed.append(cache)
    listed += _caches_of_cpuinfo(blocks, {cache["level"] for cache in listed})
    return sorted(listed, key=lambda other: (other["level"], other["type"], -other["size_bytes"]))  # type: ignore[operator]


def _caches_of_cpuinfo(blocks: list[Block], levels: set[FactValue]) -> list[Cache]:
    """Return the caches of other levels that only /proc/cpuinfo of s390x lists, without a count."""
    caches: list[Cache] = []
    for key, value in ((key, value) for block in blocks for key, value in block.items()):
        if key.startswith("cache") and key[5:].isdecimal():
            words = dict(re.findall(r"(\w+)=(\S+)", value))
            names = ("level", "type", "size", "line_size", "associativity")
            cache = _cache(*(words.get(name, "") for name in names))
            if cache and cache["level"] not in levels and cache not in caches:
                caches.append(cache)
    return caches


def _indexes(host: Host, cpu: int, of_brother: dict[str, Cache]) -> dict[str, Cache]:
    """Return one CPU's caches by the name of their folder, without those that lack a level or size.

    of_brother: those of a CPU of its kind, for recordings that have only the list of sharing CPUs.
    """
    indexes = {}
    files = ("level", "type", "size", "coherency_line_size", "ways_of_associativity")
    for name in host.listdir(f"{CPU}/cpu{cpu}/cache"):
        folder = f"{CPU}/cpu{cpu}/cache/{name}"
        cache = None
        if name.startswith("index") and name[5:].isdecimal():
            texts = [host.read(f"{folder}/{file}") for file in (*files, "number_of_sets")]
            cache = _cache(*texts) if texts[0] else of_brother.get(name)
            if cache and "ways" not in cache:
                texts.append(host.read(f"{folder}/physical_line_partition"))
                cache = _cache(*texts) or cache
        if cache:
            indexes[name] = cache
    return indexes


def _cache(
    level_text: str,
    type_text: str,
    size_text: str,
    line: str,
    ways: str,
    sets: str = "",
    lines: str = "",
) -> Cache | None:
    """Return a cache's record, None without level, type or size. lines: how many share a tag."""
    level, size = whole_number(level_text, 1, 8), size_in_bytes(size_text)
    kind = _CACHE_TYPES.get(type_text)
    if level is None or kind is None or not size or size > _LARGEST_CACHE:
        return None
    cache: Cache = {"level": level, "type": kind, "size_bytes": size}
    # Hypervisors and device trees write 0 for what they do not know.
    numbers = [whole_number(text, 1, 1 << 24) for text in (line, ways, sets, lines)]
    line_bytes, way_count, set_count, line_count = numbers
    if line_bytes:
        cache["line_bytes"] = line_bytes
    set_bytes = (line_bytes or 1) * (way_count or 1) * (line_count or 1)
    if not way_count and line_bytes and set_count:  # some kernels report the sets alone
        way_count = size // (set_bytes * set_count)
        set_bytes *= way_count
    if way_count and (set_count * set_bytes == size if set_count else size % set_bytes == 0):
        cache["ways"] = way_count
    return cache
