"""Sockets, NUMA nodes, cores, caches and accelerators of a report, as the picture of the machine shows them.

Nothing is invented: if the facts do not tell which node a cache or which socket a node belongs to,
that is drawn around all of them, or written below.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from mlbackends.base.quantities import parse_cpu_list
from mlbackends.model.records import Device, Report
from mlbackends_cli.report.machine import Facts, index, number, numbers, rows, text
from mlbackends_cli.report.probes import MARKS, state_of
from mlbackends_cli.text.plain import binary_size

_LETTERS = {"data": "d", "instruction": "i"}


class Cores(Struct):
    """Cores that are alike. threads: of each; 0 if the squares are threads of unknown cores."""

    kind: str
    count: int
    threads: int
    caches: str = ""


class Cache(Struct):
    """Caches of one size: "L3", their size and number; sharing: CPUs per cache, 0 if unknown.

    kind: of the cores that alone have it.
    """

    name: str
    size_bytes: int
    count: int
    sharing: int = 0
    kind: str = ""


class Node(Struct):
    """A NUMA node; number is None if the machine has one memory, or its nodes are unknown."""

    number: int | None
    threads: int
    cores: list[Cores]
    memory_bytes: int
    caches: list[Cache] = []


class Package(Struct):
    """What is drawn in one frame: a socket, or several whose nodes are not known apart."""

    title: str
    nodes: list[Node]
    caches: list[Cache] = []

    @property
    def threads(self) -> int:
        """How many threads its nodes have."""
        return sum(node.threads for node in self.nodes)


# ---- nodes and their cores -----------------------------------------------------------------


def processors(report: Report) -> tuple[str, list[Package], list[str]]:
    """Return the CPUs' name, their frames, and notes on what belongs to no single frame.

    There is no frame if nothing is known about cores.
    """
    probe, memory = report.probes.get("cpu"), report.probes.get("memory")
    facts = probe.facts if probe else {}
    name = text(facts, "model_name") or text(facts, "architecture") or "Processor"
    if not (number(facts, "threads") or number(facts, "cores")):
        return name, [], []
    packages, notes = _sockets(facts, _nodes(facts, memory.facts if memory else {}))
    notes += _place_caches(facts, packages)
    if off := text(facts, "offline_cpus"):
        notes.append(f"off: CPU {off}")
    return name, packages, notes


def _nodes(facts: Facts, memory: Facts) -> list[Node]:
    listed = _numa_rows(facts)
    if len(listed) < 2:
        total = number(memory, "total_bytes") or sum(number(row, "memory_bytes") for row in listed)
        threads = number(facts, "threads") or len(parse_cpu_list(text(facts, "online_cpus")))
        lone = index(listed[0], "node") if listed else None
        return [Node(lone, threads, _all_cores(facts), total)]
    by_memory = {index(row, "node"): number(row, "total_bytes") for row in rows(memory, "nodes")}
    nodes = []
    for row in listed:
        cpus, at = parse_cpu_list(text(row, "cpus")), index(row, "node")
        size = number(row, "memory_bytes") or by_memory.get(at, 0)
        nodes.append(Node(at, len(cpus), _cores_of(facts, cpus), size))
    return nodes


def _numa_rows(facts: Facts) -> list[Facts]:
    return [row for row in rows(facts, "numa_nodes") if index(row, "node") is not None]


def _all_cores(facts: Facts) -> list[Cores]:
    """Return the cores of a machine with one node, in which the kinds need not name their CPUs."""
    cores, threads = number(facts, "cores"), number(facts, "threads")
    kinds = [_kind(row) for row in rows(facts, "kinds")]
    if len(kinds) > 1 and all(kinds) and sum(kind.count for kind in kinds if kind) == cores:
        return [kind for kind in kinds if kind]
    if cores and threads % cores == 0:
        return [Cores("", cores, threads // cores or 1)]
    return [Cores("", cores or threads, 0)]


def _cores_of(facts: Facts, cpus: Sequence[int]) -> list[Cores]:
    """Return the cores of a node by its CPUs; the CPUs themselves if they cannot be split evenly."""
    split = []
    for row in rows(facts, "kinds"):
        kind, own = _kind(row), set(parse_cpu_list(text(row, "cpus"))) & set(cpus)
        if own and kind and len(own) % kind.threads == 0:
            split.append(Cores(kind.kind, len(own) // kind.threads, kind.threads))
    if sum(cores.count * cores.threads for cores in split) == len(cpus):
        return split  # [] for a node of memory alone
    cores, threads = number(facts, "cores"), number(facts, "threads")
    each = threads // cores if cores and threads % cores == 0 else 0
    if each and len(cpus) % each == 0:
        return [Cores("", len(cpus) // each, each)]
    return [Cores("", len(cpus), 0)]


def _kind(row: Facts) -> Cores | None:
    threads, cores = number(row, "threads"), number(row, "cores")
    if not threads or not cores or threads % cores:
        return None
    return Cores(text(row, "name"), cores, threads // cores)


# ---- which nodes are in which socket -------------------------------------------------------


def _sockets(facts: Facts, nodes: list[Node]) -> tuple[list[Package], list[str]]:
    count = number(facts, "sockets")
    own = [node for node in nodes if node.threads]
    # Kernels set nodes aside for memory that a GPU may bring: with nothing on them, they show nothing.
    rest = [node for node in nodes if node.memory_bytes and not node.threads]
    memory = [Package("memory without CPUs", rest)] if rest else []
    if count == len(own):
        groups = [[node] for node in own]
    else:
        groups = [own] if count == 1 else _by_distance(facts, own, count)
    if groups:
        return [Package("socket", group) for group in groups] + memory, []
    title = f"{count} sockets" if count else "processor"
    notes = ["which NUMA node is in which socket is not known"] if count and len(own) > 1 else []
    return [Package(title, own), *memory], notes


def _by_distance(facts: Facts, own: list[Node], count: int) -> list[list[Node]]:
    """Group nodes into equal sockets if every distance inside is below every one between sockets."""
    if not count or len(own) <= count or len(own) % count:
        return []
    listed = _numa_rows(facts)
    place = {index(row, "node"): i for i, row in enumerate(listed)}
    table = {index(row, "node"): numbers(row, "distances") for row in listed}
    if any(len(table[node.number]) != len(listed) for node in own):
        return []
    size = len(own) // count
    groups: list[list[Node]] = []
    for node in own:
        distances = table[node.number]
        order = sorted(own, key=lambda other: distances[place[other.number]])
        near, far = order[:size], order[size:]
        if distances[place[near[-1].number]] >= distances[place[far[0].number]]:
            return []
        group = sorted(near, key=lambda other: place[other.number])
        if group not in groups:
            groups.append(group)
    return groups if len(groups) == count else []


# ---- the place of each cache in the picture -------------------------------------------------


def _place_caches(facts: Facts, packages: list[Package]) -> list[str]:
    """Add the caches to their owners; return those of the whole machine as text.

    The facts have of each cache how many instances there are and how many CPUs share one, not which.
    """
    by_name: dict[str, list[Cache]] = {}
    for row in rows(facts, "caches"):
        level, size = number(row, "level"), number(row, "size_bytes")
        if level and size:
            name = f"L{level}{_LETTERS.get(text(row, 'type'), '')}"
            counts = number(row, "instances"), number(row, "shared_by_cpus")
            cache = Cache(name, size, *counts, text(row, "kind"))
            by_name.setdefault(name, []).append(cache)
    notes: list[str] = []
    for name, caches in by_name.items():
        if not _assign_to_cores(packages, caches) and not _shared_out(packages, caches):
            sizes = [
                f"{f'{cache.count} × ' if cache.count > 1 else ''}{binary_size(cache.size_bytes)}"
                for cache in caches
            ]
            notes.append(f"{name} {', '.join(sizes)}")
    return notes


def _assign_to_cores(packages: list[Package], caches: list[Cache]) -> bool:
    """Assign to each kind of core the cache that each of its cores has; False if none has one."""
    cores = [core for package in packages for node in package.nodes for core in node.cores]
    expected: Counter[tuple[str, int]] = Counter()
    for core in cores:
        expected[core.kind, core.threads] += core.count
    counts = {(cache.kind, cache.sharing): cache.count for cache in caches}
    if not all(core.threads for core in cores) or counts != expected or len(counts) < len(caches):
        return False
    by_kind = {cache.kind: f"{cache.name} {binary_size(cache.size_bytes)}" for cache in caches}
    for each in cores:
        each.caches = " · ".join(filter(None, [each.caches, by_kind[each.kind]]))
    return True


def _shared_out(packages: list[Package], caches: list[Cache]) -> bool:
    """Give nodes, else sockets, their shares of a cache; False if it cannot be split evenly."""
    nodes = [node for package in packages for node in package.nodes]
    own = [node for node in nodes if node.threads]
    if len(own) == 1 and all(cache.count for cache in caches):
        own[0].caches += caches
        return True
    one = caches[0]
    if len(caches) > 1 or not one.count or not one.sharing:
        return False
    levels: tuple[list[Node | Package], ...] = ([*nodes], [*packages])
    for parts in levels:
        shares = [divmod(part.threads, one.sharing) for part in parts]
        if sum(count for count, _ in shares) == one.count and not any(rest for _, rest in shares):
            for part, (count, _) in zip(parts, shares, strict=True):
                part.caches += [Cache(one.name, one.size_bytes, count)] if count else []
            return True
    return False


_MOST = 32
#: Interfaces that see devices of other kinds and the CPU; and parts of a device.
_NO_KIND_OF_THEIR_OWN = {"opencl", "vulkan", "mig"}


class Accelerator(Struct, frozen=True):
    """One card. node: its NUMA node, None if unknown. bus: its connection, in words.

    parts: its MIG instances, as profile and size.
    """

    probe: str
    index: int
    title: str
    state: str
    about: str
    bus: str
    node: int | None
    parts: tuple[tuple[str, str], ...] = ()
    switch: bool = False
    links: int = 0


class Link(Struct, frozen=True):
    """What joins two accelerators directly, by their places in the list. count: 0 if not known."""

    one: int
    other: int
    kind: str
    count: int


class Accelerators(Struct, frozen=True):
    """All of it.

    hub: what joins the cards of `joined`, any two of them alike: a switch, or links between all.
    more: the number of further cards.
    """

    cards: tuple[Accelerator, ...]
    links: tuple[Link, ...]
    hub: str
    joined: tuple[int, ...]
    more: int


def accelerators(report: Report) -> Accelerators:
    """Return what the picture shows of accelerators; it may be nothing."""
    by_title: dict[str, dict[str, list[Device]]] = {}
    for name, probe in report.probes.items():
        for device in probe.devices:
            if device.kind not in _NO_KIND_OF_THEIR_OWN:
                by_title.setdefault(device.kind, {}).setdefault(name, []).append(device)
    cards = []
    for by_probe in by_title.values():
        # The probe that sees most of a kind. NVML has more of a GPU than the driver's other library.
        best = max(by_probe, key=lambda name: (len(by_probe[name]), name == "nvidia"))
        cards += [_card(best, device, report) for device in by_probe[best]]
    shown = tuple(cards[:_MOST])
    links = tuple(_links(report, shown))
    hub, joined = _hub(report, shown, links)
    return Accelerators(shown, () if hub else links, hub, joined, len(cards) - len(shown))


def _card(probe: str, device: Device, report: Report) -> Accelerator:
    # Every record of one device has its kind, and its PCI address or UUID.
    names = {(device.kind, each) for each in (device.pci_address, device.uuid) if each}
    everyone = (other for probe in report.probes.values() for other in probe.devices)
    same = (
        other
        for other in everyone
        if {(other.kind, other.pci_address), (other.kind, other.uuid)} & names
    )
    best = max([device, *same], key=lambda one: one.presence.level)
    state = state_of(best)
    memory = device.memory_bytes or best.memory_bytes
    capability = device.capability or best.capability
    links = number(device.facts, "nvlinks_active")
    switch = bool(links) and device.facts.get("nvlinks_lead_to_switch") is True
    about = [binary_size(memory)] if memory else []
    if capability:
        about.append(f"capability {capability}" if device.kind == "cuda" else capability)
    if report.probes[probe].facts.get("is_memory_shared") is True:
        about.append("shares the CPU's memory")
    about += [f"{links} NVLinks"] if switch else []
    if not about and device.driver:
        about.append(f"driver {device.driver}")
    if state == "broken" and best.reasons:
        about.append(best.reasons[0].message)
    # The most that its link can do: "PCIe 5 ×16".
    width, speed = number(device.facts, "max_pcie_width"), ""
    rate = device.facts.get("max_pcie_gigatransfers_per_second")
    if generation := number(device.facts, "max_pcie_generation"):
        speed = f"{generation}"
    elif isinstance(rate, int | float) and 0 < rate < 1000:
        speed = f"{rate:g} GT/s"
    bus = ["PCIe", speed, f"×{width}" if width else ""] if width or speed else []
    return Accelerator(
        probe,
        device.index,
        f"{MARKS[state]} {device.kind} {device.index} {device.name or best.name}".rstrip(),
        state,
        " · ".join(about),
        " ".join(filter(None, bus)),
        device.numa_node,
        tuple(
            (
                text(one.facts, "profile") or f"instance {one.index}",
                binary_size(one.memory_bytes) if one.memory_bytes else "",
            )
            for one in report.probes[probe].devices
            if one.kind == "mig" and one.facts.get("parent") == device.index
        ),
        switch,
        links,
    )


def _links(report: Report, cards: tuple[Accelerator, ...]) -> list[Link]:
    """Return the NVLinks of NVIDIA's GPUs, and the links of AMD's GPUs other than PCI Express."""
    place = {(card.probe, card.index): i for i, card in enumerate(cards)}
    found = set()
    for name, probe in report.probes.items():
        joined = [
            (numbers(row, "gpus"), "NVLink", number(row, "nvlinks"))
            for row in rows(probe.facts, "topology")
            if number(row, "nvlinks")
        ]
        joined += [
            (numbers({"ends": [row.get("from"), row.get("to")]}, "ends"), text(row, "kind"), 0)
            for row in rows(probe.facts, "links")
            if text(row, "kind") not in ("", "pcie", "other")
        ]
        for devices, kind, count in joined:
            ends = sorted({place[name, i] for i in devices if (name, i) in place})
            if len(devices) == len(ends) == 2:
                found.add(Link(ends[0], ends[1], kind, count))
    return sorted(found, key=lambda each: (each.other - each.one, each.one, each.kind, each.count))


def _hub(
    report: Report, cards: tuple[Accelerator, ...], links: tuple[Link, ...]
) -> tuple[str, tuple[int, ...]]:
    """Return the link that all pairs of some cards share, and the cards; "" and () if there is none."""
    if switched := tuple(i for i, card in enumerate(cards) if card.switch):
        nvidia = report.probes.get("nvidia")
        count = number(nvidia.facts, "nvswitches") if nvidia else 0
        return (f"{count} NVSwitches" if count > 1 else "NVSwitch"), switched
    ends = tuple(sorted({end for link in links for end in (link.one, link.other)}))
    kinds = {(link.kind, link.count) for link in links}
    pairs = {(link.one, link.other) for link in links}
    if len(ends) < 4 or len(kinds) != 1 or len(pairs) != len(ends) * (len(ends) - 1) // 2:
        return "", ()
    kind, count = kinds.pop()
    return f"{f'{count} {kind}s' if count > 1 else kind} between any two", ends
