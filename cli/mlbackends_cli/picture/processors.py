"""Sockets, NUMA nodes, cores and caches as a report tells them.

Nothing is made up: where the facts do not say which node a cache or which socket a node belongs to,
that is drawn around all of them, or told in words.
"""

from collections.abc import Mapping, Sequence

from mlbackends.host.quantities import parse_cpu_list
from mlbackends.model.records import Report
from mlbackends_cli.picture.caches import placed
from mlbackends_cli.picture.facts import index, number, numbers, rows, text
from mlbackends_cli.picture.machine import Cores, Node, Package, Processors


def processors(report: Report) -> Processors | None:
    """Return what the picture shows of CPUs and memory; None where nothing is known of cores."""
    probe = report.probes.get("cpu")
    facts = probe.facts if probe else {}
    if not (number(facts, "threads") or number(facts, "cores")):
        return None
    memory = report.probes.get("memory")
    nodes = _nodes(facts, memory.facts if memory else {})
    groups, notes = _sockets(facts, nodes)
    packages = [Package(title, group) for title, group in groups]
    packages, said = placed(facts, packages)
    notes += said
    if off := text(facts, "offline_cpus"):
        notes.append(f"off: CPU {off}")
    name = text(facts, "model_name") or text(facts, "architecture") or "Processor"
    return Processors(name, tuple(packages), tuple(notes))


# ---- nodes and their cores -----------------------------------------------------------------


def _nodes(facts: Mapping[str, object], memory: Mapping[str, object]) -> list[Node]:
    total = number(memory, "total_bytes")
    listed = [row for row in rows(facts, "numa_nodes") if index(row, "node") is not None]
    if len(listed) < 2:
        cpus = parse_cpu_list(text(facts, "online_cpus"))
        threads = number(facts, "threads") or len(cpus)
        total = total or sum(number(row, "memory_bytes") for row in listed)
        lone = index(listed[0], "node") if listed else None
        return [Node(lone, cpus, threads, _all_cores(facts), total)]
    by_memory = {index(row, "node"): number(row, "total_bytes") for row in rows(memory, "nodes")}
    nodes = []
    for row in listed:
        cpus = parse_cpu_list(text(row, "cpus"))
        held = number(row, "memory_bytes") or by_memory.get(index(row, "node"), 0)
        nodes.append(Node(index(row, "node"), cpus, len(cpus), _cores_of(facts, cpus), held))
    return nodes


def _all_cores(facts: Mapping[str, object]) -> tuple[Cores, ...]:
    """Return the cores of a machine with one node, where the kinds need not say their CPUs."""
    cores, threads = number(facts, "cores"), number(facts, "threads")
    kinds = [_kind(row) for row in rows(facts, "kinds")]
    if len(kinds) > 1 and all(kinds) and sum(k.count for k in kinds if k) == cores:
        return tuple(kind for kind in kinds if kind)
    if cores and threads and threads % cores == 0:
        return (Cores("", cores, threads // cores),)
    return (Cores("", cores, 1 if not threads else 0),) if cores else (Cores("", threads, 0),)


def _cores_of(facts: Mapping[str, object], cpus: Sequence[int]) -> tuple[Cores, ...]:
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
    each = _threads_each(facts)
    if each and len(cpus) % each == 0:
        return (Cores("", len(cpus) // each, each),)
    return (Cores("", len(cpus), 0),)


def _kind(row: Mapping[str, object]) -> Cores | None:
    threads, cores = number(row, "threads"), number(row, "cores")
    if not threads or not cores or threads % cores:
        return None
    return Cores(text(row, "name"), cores, threads // cores)


def _threads_each(facts: Mapping[str, object]) -> int:
    """Return how many threads each core has, 0 where they differ or it is not told."""
    cores, threads = number(facts, "cores"), number(facts, "threads")
    return threads // cores if cores and threads and threads % cores == 0 else 0


# ---- which nodes are in which socket -------------------------------------------------------


def _sockets(
    facts: Mapping[str, object], nodes: list[Node]
) -> tuple[list[tuple[str, tuple[Node, ...]]], list[str]]:
    count = number(facts, "sockets")
    own = [node for node in nodes if node.threads]
    # Kernels set nodes aside for memory that a GPU may bring: with nothing on them, they show nothing.
    rest = tuple(node for node in nodes if node.memory_bytes and not node.threads)
    memory = [("memory without CPUs", rest)] if rest else []
    if count == len(own):
        return [("socket", (node,)) for node in own] + memory, []
    if count == 1:
        return [("socket", tuple(own)), *memory], []
    if groups := _by_distance(facts, own, count):
        return [("socket", group) for group in groups] + memory, []
    title = f"{count} sockets" if count else "processor"
    notes = ["which NUMA node is in which socket is not told"] if count and len(own) > 1 else []
    return [(title, tuple(own)), *memory], notes


def _by_distance(
    facts: Mapping[str, object], own: list[Node], count: int
) -> list[tuple[Node, ...]]:
    """Group nodes into equal sockets where every distance inside is below every one between."""
    if not count or len(own) <= count or len(own) % count:
        return []
    listed = [row for row in rows(facts, "numa_nodes") if index(row, "node") is not None]
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
