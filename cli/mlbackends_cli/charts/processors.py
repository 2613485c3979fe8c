"""Sockets, NUMA nodes, cores and caches of a report, as the picture of the machine shows them.

Nothing is made up: where the facts do not say which node a cache or which socket a node belongs to,
that is drawn around all of them, or written below.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.host.quantities import parse_cpu_list
from mlbackends.model.records import Report
from mlbackends_cli.text.plain import binary_size

Facts = Mapping[str, object]
_LARGEST = 1 << 62
_LETTERS = {"data": "d", "instruction": "i"}


class Cores(Struct, frozen=True):
    """Cores that are alike. threads: of each; 0 if the squares are threads of unknown cores."""

    kind: str
    count: int
    threads: int
    caches: str = ""


class Cache(Struct, frozen=True):
    """Caches of one size: "L3", their size, and how many; sharing: CPUs of each, 0 if unknown."""

    name: str
    size_bytes: int
    count: int
    sharing: int = 0


class Node(Struct, frozen=True):
    """A NUMA node; number is None where the machine has one memory, or its nodes are not known."""

    number: int | None
    threads: int
    cores: tuple[Cores, ...]
    memory_bytes: int
    caches: tuple[Cache, ...] = ()


class Package(Struct, frozen=True):
    """What is drawn in one frame: a socket, or several whose nodes are not known apart."""

    title: str
    nodes: tuple[Node, ...]
    caches: tuple[Cache, ...] = ()


class Processors(Struct, frozen=True):
    """All of it. notes: what belongs to no single frame."""

    title: str
    packages: tuple[Package, ...]
    notes: tuple[str, ...]


# ---- facts that may be missing or of another type: a saved report can hold anything ---------


def number(facts: Facts, name: str) -> int:
    """Return a whole number above 0, or 0 where there is none."""
    value = facts.get(name)
    return value if type(value) is int and 0 < value < _LARGEST else 0


def index(facts: Facts, name: str) -> int | None:
    """Return a whole number from 0 on, or None where there is none."""
    value = facts.get(name)
    return value if type(value) is int and 0 <= value < _LARGEST else None


def text(facts: Facts, name: str) -> str:
    """Return a text, or "" where there is none."""
    value = facts.get(name)
    return value if isinstance(value, str) else ""


def rows(facts: Facts, name: str) -> list[Facts]:
    """Return the records of a list, [] where there is none."""
    value = facts.get(name)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def numbers(facts: Facts, name: str) -> list[int]:
    """Return a list of whole numbers from 0 on; [] where it holds anything else."""
    value = facts.get(name)
    if not isinstance(value, list):
        return []
    whole = [one for one in value if type(one) is int and 0 <= one < _LARGEST]
    return whole if len(whole) == len(value) else []


# ---- nodes and their cores -----------------------------------------------------------------


def processors(report: Report) -> Processors | None:
    """Return what the picture shows of CPUs and memory; None where nothing is known of cores."""
    probe, memory = report.probes.get("cpu"), report.probes.get("memory")
    facts = probe.facts if probe else {}
    if not (number(facts, "threads") or number(facts, "cores")):
        return None
    packages, notes = _sockets(facts, _nodes(facts, memory.facts if memory else {}))
    packages, unplaced = _with_caches(facts, packages)
    notes += unplaced
    if off := text(facts, "offline_cpus"):
        notes.append(f"off: CPU {off}")
    name = text(facts, "model_name") or text(facts, "architecture") or "Processor"
    return Processors(name, tuple(packages), tuple(notes))


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
        cpus = parse_cpu_list(text(row, "cpus"))
        held = number(row, "memory_bytes") or by_memory.get(index(row, "node"), 0)
        nodes.append(Node(index(row, "node"), len(cpus), _cores_of(facts, cpus), held))
    return nodes


def _numa_rows(facts: Facts) -> list[Facts]:
    return [row for row in rows(facts, "numa_nodes") if index(row, "node") is not None]


def _all_cores(facts: Facts) -> tuple[Cores, ...]:
    """Return the cores of a machine with one node, where the kinds need not name their CPUs."""
    cores, threads = number(facts, "cores"), number(facts, "threads")
    kinds = [_kind(row) for row in rows(facts, "kinds")]
    if len(kinds) > 1 and all(kinds) and sum(k.count for k in kinds if k) == cores:
        return tuple(kind for kind in kinds if kind)
    if cores and threads and threads % cores == 0:
        return (Cores("", cores, threads // cores),)
    return (Cores("", cores, 1 if not threads else 0),) if cores else (Cores("", threads, 0),)


def _cores_of(facts: Facts, cpus: Sequence[int]) -> tuple[Cores, ...]:
    """Return the cores of a node by its CPUs; the CPUs themselves where the split is not even."""
    if not cpus:
        return ()
    split = []
    for row in rows(facts, "kinds"):
        kind, own = _kind(row), set(parse_cpu_list(text(row, "cpus"))) & set(cpus)
        if own and kind and len(own) % kind.threads == 0:
            split.append((len(own), Cores(kind.kind, len(own) // kind.threads, kind.threads)))
    if sum(count for count, _ in split) == len(cpus):
        return tuple(cores for _, cores in split)
    cores, threads = number(facts, "cores"), number(facts, "threads")
    each = threads // cores if cores and threads and threads % cores == 0 else 0
    if each and len(cpus) % each == 0:
        return (Cores("", len(cpus) // each, each),)
    return (Cores("", len(cpus), 0),)


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
    rest = tuple(node for node in nodes if node.memory_bytes and not node.threads)
    memory = [Package("memory without CPUs", rest)] if rest else []
    if count == len(own):
        return [Package("socket", (node,)) for node in own] + memory, []
    if count == 1:
        return [Package("socket", tuple(own)), *memory], []
    if groups := _by_distance(facts, own, count):
        return [Package("socket", group) for group in groups] + memory, []
    title = f"{count} sockets" if count else "processor"
    notes = ["which NUMA node is in which socket is not known"] if count and len(own) > 1 else []
    return [Package(title, tuple(own)), *memory], notes


def _by_distance(facts: Facts, own: list[Node], count: int) -> list[tuple[Node, ...]]:
    """Group nodes into equal sockets where every distance inside is below every one between."""
    if not count or len(own) <= count or len(own) % count:
        return []
    listed = _numa_rows(facts)
    place = {index(row, "node"): i for i, row in enumerate(listed)}
    table = {index(row, "node"): numbers(row, "distances") for row in listed}
    if any(len(table[node.number]) != len(listed) for node in own):
        return []
    size = len(own) // count
    groups: list[tuple[Node, ...]] = []
    for node in own:
        distances = table[node.number]
        order = sorted(own, key=lambda other: distances[place[other.number]])
        near, far = order[:size], order[size:]
        if distances[place[near[-1].number]] >= distances[place[far[0].number]]:
            return []
        group = tuple(sorted(near, key=lambda other: place[other.number]))
        if group not in groups:
            groups.append(group)
    return groups if len(groups) == count else []


# ---- where each cache is drawn -------------------------------------------------------------


def _with_caches(facts: Facts, packages: list[Package]) -> tuple[list[Package], list[str]]:
    """Return the packages with their caches, and the caches that belong to the whole machine.

    The facts have of each cache how many instances there are and how many CPUs share one, not which.
    """
    by_name: dict[str, list[Cache]] = {}
    for row in rows(facts, "caches"):
        level, size = number(row, "level"), number(row, "size_bytes")
        if level and size:
            name = f"L{level}{_LETTERS.get(text(row, 'type'), '')}"
            cache = Cache(name, size, number(row, "instances"), number(row, "shared_by_cpus"))
            by_name.setdefault(name, []).append(cache)
    notes: list[str] = []
    for name, caches in by_name.items():
        placed = _with_cores(packages, caches) or _in_nodes(packages, caches)
        placed = placed or _around(packages, caches)
        if placed:
            packages = placed
            continue
        sizes = []
        for one in caches:
            many = f"{one.count} × " if one.count > 1 else ""
            sizes.append(many + binary_size(one.size_bytes))
        notes.append(f"{name} {', '.join(sizes)}")
    return packages, notes


def _with_cores(packages: list[Package], caches: list[Cache]) -> list[Package] | None:
    """Give each kind of core the cache that each of its cores has of its own; None if that is not so."""
    counts: dict[tuple[str, int], int] = {}
    for cores in (c for package in packages for node in package.nodes for c in node.cores):
        if not cores.threads:
            return None
        counts[cores.kind, cores.threads] = counts.get((cores.kind, cores.threads), 0) + cores.count
    wanted = {(count, threads): kind for (kind, threads), count in counts.items()}
    given = {(one.count, one.sharing): one for one in caches}
    kinds = {kind for kind, _ in counts}
    if not len(counts) == len(kinds) == len(wanted) or len(given) != len(caches):
        return None
    if set(given) != set(wanted):
        return None
    texts = {wanted[key]: f"{one.name} {binary_size(one.size_bytes)}" for key, one in given.items()}

    def with_text(cores: Cores) -> Cores:
        parts = [part for part in (cores.caches, texts[cores.kind]) if part]
        return replace(cores, caches=" · ".join(parts))

    def with_texts(node: Node) -> Node:
        return replace(node, cores=tuple(map(with_text, node.cores)))

    return [replace(each, nodes=tuple(map(with_texts, each.nodes))) for each in packages]


def _in_nodes(packages: list[Package], caches: list[Cache]) -> list[Package] | None:
    """Give each node its share of a cache that CPUs of one node have together."""
    nodes = [node for package in packages for node in package.nodes]
    if sum(bool(node.threads) for node in nodes) == 1:
        if not all(one.count for one in caches):
            return None
        shares = [tuple(caches) if node.threads else () for node in nodes]
    elif (split := _shares([node.threads for node in nodes], caches)) is not None:
        shares = split
    else:
        return None
    left = iter(shares)

    def with_share(node: Node) -> Node:
        return replace(node, caches=node.caches + next(left))

    return [replace(each, nodes=tuple(map(with_share, each.nodes))) for each in packages]


def _around(packages: list[Package], caches: list[Cache]) -> list[Package] | None:
    """Give each socket its share of a cache that CPUs of several of its nodes have together."""
    shares = _shares([sum(node.threads for node in one.nodes) for one in packages], caches)
    if shares is None:
        return None
    pairs = zip(packages, shares, strict=True)
    return [replace(package, caches=package.caches + share) for package, share in pairs]


def _shares(threads: list[int], caches: list[Cache]) -> list[tuple[Cache, ...]] | None:
    """Split one size of cache by the threads of each part; None unless it splits without rest."""
    one = caches[0]
    if len(caches) != 1 or not one.count or not one.sharing:
        return None
    counts = [part // one.sharing for part in threads]
    if any(part % one.sharing for part in threads) or sum(counts) != one.count:
        return None
    return [(replace(one, count=count),) if count else () for count in counts]
