"""The picture of a machine, as HTML: sockets, the accelerators at each, and the links between these.

Nothing is invented: if the facts do not tell which node a cache or which socket a node belongs to,
that is drawn around all of them, or written below.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from mlbackends.base.errors import counted
from mlbackends.base.quantities import parse_cpu_list
from mlbackends.model.records import Device, Report
from mlbackends_cli.report.machine import Facts, index, number, numbers, rows, text
from mlbackends_cli.report.probes import MARKS, state_of
from mlbackends_cli.text.elements import element, escaped, words
from mlbackends_cli.text.plain import binary_size, joined

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
    packages, notes = _sockets(facts, _numa_nodes(facts, memory.facts if memory else {}))
    notes += _place_caches(facts, packages)
    if off := text(facts, "offline_cpus"):
        notes.append(f"off: CPU {off}")
    return name, packages, notes


def _numa_nodes(facts: Facts, memory: Facts) -> list[Node]:
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
    kinds = [_alike_cores(row) for row in rows(facts, "kinds")]
    if len(kinds) > 1 and all(kinds) and sum(kind.count for kind in kinds if kind) == cores:
        return [kind for kind in kinds if kind]
    if cores and threads % cores == 0:
        return [Cores("", cores, threads // cores or 1)]
    return [Cores("", cores or threads, 0)]


def _cores_of(facts: Facts, cpus: Sequence[int]) -> list[Cores]:
    """Return the cores of a node by its CPUs; the CPUs themselves if they cannot be split evenly."""
    split = []
    for row in rows(facts, "kinds"):
        kind, own = _alike_cores(row), set(parse_cpu_list(text(row, "cpus"))) & set(cpus)
        if own and kind and len(own) % kind.threads == 0:
            split.append(Cores(kind.kind, len(own) // kind.threads, kind.threads))
    if sum(cores.count * cores.threads for cores in split) == len(cpus):
        return split  # [] for a node of memory alone
    cores, threads = number(facts, "cores"), number(facts, "threads")
    each = threads // cores if cores and threads % cores == 0 else 0
    if each and len(cpus) % each == 0:
        return [Cores("", len(cpus) // each, each)]
    return [Cores("", len(cpus), 0)]


def _alike_cores(row: Facts) -> Cores | None:
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
    for alike in cores:
        alike.caches = " · ".join(filter(None, [alike.caches, by_kind[alike.kind]]))
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


#: Maximum number of cards, sockets, pieces of a bar, and squares of a node's cores.
_MOST_CARDS, _MOST_PACKAGES, _MOST_PIECES, _MOST_SQUARES = 32, 32, 12, 256
#: Interfaces that see devices of other kinds and the CPU; and parts of a device.
_NO_KIND_OF_THEIR_OWN = {"opencl", "vulkan", "mig"}


# ---- accelerators and their links ----------------------------------------------------------


class Card(NamedTuple):
    """An accelerator. place: its index. node: its NUMA node, None if unknown. bus: its connection, in words.

    parts: its MIG instances, as profile and size. switched: whether its NVLinks lead to a switch.
    """

    probe: str
    place: int
    title: str
    state: str
    about: str
    bus: str
    node: int | None
    parts: list[tuple[str, str]]
    switched: bool


def _cards(report: Report) -> list[Card]:
    """Return every accelerator once, by the probe that sees most of its kind."""
    by_kind: dict[str, dict[str, list[Device]]] = {}
    for name, probe in report.probes.items():
        for device in probe.devices:
            if device.kind not in _NO_KIND_OF_THEIR_OWN:
                by_kind.setdefault(device.kind, {}).setdefault(name, []).append(device)
    cards = []
    for by_probe in by_kind.values():
        # NVML has more of a GPU than the driver's other library.
        best = max(by_probe, key=lambda name: (len(by_probe[name]), name == "nvidia"))
        cards += [_card(best, device, report) for device in by_probe[best]]
    return cards


def _card(probe: str, device: Device, report: Report) -> Card:
    # Every record of one device has its kind, and its PCI address or UUID.
    names = {device.pci_address, device.uuid} - {""}
    everyone = (other for probe in report.probes.values() for other in probe.devices)
    same = (
        other for other in everyone if other.kind == device.kind and names & {other.pci_address, other.uuid}
    )
    best = max([device, *same], key=lambda one: one.presence.level)
    state, facts, own = state_of(best), device.facts, report.probes[probe]
    memory, capability = (
        getattr(device, name) or getattr(best, name) for name in ("memory_bytes", "capability")
    )
    links = number(facts, "nvlinks_active")
    switched = bool(links) and facts.get("nvlinks_lead_to_switch") is True
    about = [
        binary_size(memory) if memory else "",
        f"{'capability ' * (device.kind == 'cuda')}{capability}" if capability else "",
        "shares the CPU's memory" if own.facts.get("is_memory_shared") is True else "",
        f"{links} NVLinks" if switched else "",
    ]
    about += [f"driver {device.driver}"] if device.driver and not any(about) else []
    about += [best.reasons[0].message] if state == "broken" and best.reasons else []
    # The most that its link can do: "PCIe 5 ×16".
    width, generation = (number(facts, f"max_pcie_{name}") for name in ("width", "generation"))
    rate = facts.get("max_pcie_gigatransfers_per_second")
    is_rate = isinstance(rate, int | float) and 0 < rate < 1000
    speed = f"{generation}" if generation else f"{rate:g} GT/s" if is_rate else ""
    bus = " ".join(filter(None, (speed, f"×{width}" if width else "")))
    return Card(
        probe,
        device.index,
        f"{MARKS[state]} {device.kind} {device.index} {device.name or best.name}".rstrip(),
        state,
        joined(*about),
        f"PCIe {bus}" if bus else "",
        device.numa_node,
        [
            (
                text(instance.facts, "profile") or f"instance {instance.index}",
                binary_size(instance.memory_bytes) if instance.memory_bytes else "",
            )
            for instance in own.devices
            if instance.kind == "mig" and instance.facts.get("parent") == device.index
        ],
        switched,
    )


def _links(report: Report, cards: Sequence[Card]) -> tuple[str, list[str]]:
    """Return what joins any two of some cards, "" for nothing; and what joins pairs, a line for each kind.

    That is a switch, NVLinks of NVIDIA's GPUs, or links of AMD's GPUs other than PCI Express.
    """
    if switched := sum(card.switched for card in cards):
        nvidia = report.probes.get("nvidia")
        count = number(nvidia.facts, "nvswitches") if nvidia else 0
        hub = f"{count} NVSwitches" if count > 1 else "NVSwitch"
        return hub + (f", {switched} of these cards" if switched < len(cards) else ""), []
    shown = {(card.probe, card.place) for card in cards}
    pairs: dict[str, set[tuple[int, int]]] = {}
    for name, probe in report.probes.items():
        ends = [
            (numbers(row, "gpus"), counted(number(row, "nvlinks"), "NVLink"))
            for row in rows(probe.facts, "topology")
            if number(row, "nvlinks")
        ]
        ends += [
            (numbers({"ends": [row.get("from"), row.get("to")]}, "ends"), text(row, "kind"))
            for row in rows(probe.facts, "links")
            if text(row, "kind") not in ("", "pcie", "other")
        ]
        for pair, kind in ends:
            if len({*pair}) == len(pair) == 2 and all((name, i) in shown for i in pair):
                pairs.setdefault(kind, set()).add((min(pair), max(pair)))
    joined_cards = {i for joined_pairs in pairs.values() for pair in joined_pairs for i in pair}
    every = len(joined_cards) * (len(joined_cards) - 1) // 2
    if len(pairs) == 1 and len(joined_cards) > 3 and len(*pairs.values()) == every:
        return f"{next(iter(pairs))} between any two", []
    return "", [
        f"{kind} between {', '.join(f'{a} and {b}' for a, b in sorted(joined_pairs))}"
        for kind, joined_pairs in sorted(pairs.items())
    ]


# ---- the picture ---------------------------------------------------------------------------


def picture(report: Report) -> str:
    """Return the machine as one element of a page; "" if nothing is known about its cores."""
    title, every_package, notes = processors(report)
    if not every_package:
        return ""
    packages = every_package[:_MOST_PACKAGES]
    # With a single node, every card's bus leads to it.
    is_lone = len(packages) == 1 and len(packages[0].nodes) == 1
    every_card = _cards(report)
    left_over = every_card[:_MOST_CARDS]
    hub, pairs = _links(report, left_over)
    drawn = []
    for package in (*packages, None):
        nodes = {node.number for node in package.nodes} - {None} if package else set()
        own = [card for card in left_over if is_lone or not package or card.node in nodes]
        left_over = [card for card in left_over if card not in own]
        rows = []
        for card in own:
            is_placed = bool(card.bus) or card.node is not None
            bus = words("span", card.bus, "bus" if is_placed else "bus unknown") if package else ""
            node = f"node {card.node}" if card.node is not None and not is_lone else ""
            rows.append(element("div", bus, _card_box(card, node, package is not None), kind="row"))
        beside = element("div", *rows, kind="cards") if rows else ""
        socket = ""
        if package:  # a frame, its nodes, and the caches that they share
            count = _counted([core for node in package.nodes for core in node.cores])
            is_divided = len(package.nodes) > 1
            name = f"{package.title} · {count}" if count and is_divided else package.title
            inside = map(_node_box, package.nodes)
            halves = element("div", *inside, kind="nodes two" if is_divided else "nodes")
            socket = element("div", words("b", name), halves, _caches(package.caches), kind="frame")
        frame = element("div", socket, kind="place")
        drawn += [element("div", frame, beside, kind="group")] if package or rows else []
    more = {
        "more socket": len(every_package) - len(packages),
        "more accelerator": len(every_card) - _MOST_CARDS,
    }
    notes += [f"and {counted(count, noun)}" for noun, count in more.items() if count > 0]
    notes += pairs
    # What the picture shows in words, for those who do not see it.
    nodes_of_all = [node for package in every_package for node in package.nodes]
    cores = sum(core.count for node in nodes_of_all for core in node.cores)
    about = f"Picture of the machine. {title}: {len(every_package)} frames,"
    about += f" {len(nodes_of_all)} nodes, {cores} cores or threads."
    for pictured in every_card[:_MOST_CARDS]:
        place = "not known" if pictured.node is None else pictured.node
        about += f" {pictured.title}, {pictured.about}, {pictured.bus or 'link not known'}, node {place}."
    groups = element("div", *drawn, kind="groups" if every_card or len(packages) < 2 else "groups two")
    bar = element("div", words("span", hub), kind="hub") if hub else ""
    return element(
        "figure",
        words("b", title),
        element("div", groups, bar, kind="whole"),
        *(words("p", note) for note in notes),
        kind="machine",
        role="img",
        aria_label=about,
    )


def _node_box(one: Node) -> str:
    """Return a node: its cores as squares, its caches and its memory as bars."""
    name = f"NUMA node {one.number}" if one.number is not None else ""
    inside = [words("div", joined(name, _counted(one.cores)))]
    for cores in one.cores:
        inside += [words("div", _counted([cores]), "small")] if len(one.cores) > 1 else []
        # A square for each core, divided into threads; or for several cores if there are many.
        each = -(-cores.count // _MOST_SQUARES)
        kind = "cores" if cores.threads else "cores outlined"
        kind += " weaker" * cores.kind.startswith(("efficiency", "low-power"))
        kind += f" cut{min(cores.threads, 8)}" if each == 1 and cores.threads > 1 else ""
        squares = "<i></i>" * -(-cores.count // each)
        inside.append(element("div", squares, kind=kind, title=_counted([cores])))
        inside += [words("div", f"each square is {each} cores", "small")] if each > 1 else []
        if cores.caches:
            owner = "each core" if cores.count > 1 else "the core"
            pieces = (words("span", part) for part in f"{owner}: {cores.caches}".split(" · "))
            inside.append(element("div", " · ".join(pieces), kind="small"))
    inside.append(_caches(one.caches))
    if one.memory_bytes:
        memory = words("span", f"memory {binary_size(one.memory_bytes)}")
        inside.append(element("div", memory, kind="bars memory"))
    return element("div", *inside, kind="node")


def _counted(groups: Sequence[Cores]) -> str:
    """Return "8 performance cores, 16 efficiency cores · 32 threads"."""
    counts: Counter[tuple[str, bool]] = Counter()
    for group in groups:
        counts[group.kind, bool(group.threads)] += group.count
    parts = []
    for (kind, has_cores), count in counts.items():
        noun = ("core" if count == 1 else "cores") if has_cores else "threads"
        parts.append(f"{count} {kind} {noun}" if kind else f"{count} {noun}")
    threads = sum(group.count * group.threads for group in groups)
    if threads != sum(group.count for group in groups if group.threads):
        parts[-1] += f" · {threads} threads"
    return ", ".join(parts)


def _caches(caches: Sequence[Cache]) -> str:
    """Return a bar for each level, with a piece for each cache, or with their number."""
    levels: dict[str, list[str]] = {}
    for cache in caches:
        label = f"{cache.name} {binary_size(cache.size_bytes)}"
        is_whole = cache.count > _MOST_PIECES
        labels = [f"{cache.count} × {label}"] if is_whole else [label] * cache.count
        levels.setdefault(cache.name, []).extend(words("span", label) for label in labels)
    return "".join(element("div", *pieces, kind="bars") for pieces in levels.values())


def _card_box(one: Card, node: str, has_wire: bool) -> str:
    """Return an accelerator, and the instances into which it is split. has_wire: its bus is drawn."""
    parts = [
        element("span", escaped(profile), title=f"MIG {profile} {memory}".rstrip())
        for profile, memory in one.parts
    ]
    return element(
        "div",
        words("b", one.title),
        words("div", joined(one.about, node), "small"),
        words("div", one.bus, "small narrow" if has_wire else "small") if one.bus else "",
        element("div", *parts, kind="bars parts") if parts else "",
        kind=f"card {one.state}",
    )
