"""From options and cores to instances: how many there are, and which CPUs each gets.

Nothing is read from the machine here. Instances share no CPU. Source: torch 2.15, run_cpu.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from mlbackends.base.errors import BadInput
from mlbackends.base.notices import Notice, warning
from mlbackends.base.quantities import HIGHEST, format_cpu_list, parse_cpu_list
from mlbackends.launch.cores import Topology
from mlbackends.launch.options import Options, Refused, UnknownCpu

#: The CPUs of each instance.
Shares = list[tuple[int, ...]]
_CORES_IN_LATENCY_MODE = 4


class Instance(Struct, frozen=True):
    """One program that will be started. memory_nodes: the NUMA nodes of its CPUs that have memory."""

    cpus: tuple[int, ...]
    memory_nodes: tuple[int, ...]


class Plan(Struct, frozen=True):
    """What will be started, and the notices about it. shares_cores: two CPUs of one core are used."""

    instances: tuple[Instance, ...]
    shares_cores: bool
    notices: tuple[Notice, ...]


def plan(options: Options, topology: Topology, environment: Mapping[str, str]) -> Plan:
    """Divide the chosen cores among instances.

    environment: where LOCAL_WORLD_SIZE tells that torchrun starts several launchers side by side.
    Raises Refused, BadInput or UnknownCpu: the exceptions of torch by their other base.
    """
    ranks = environment.get("LOCAL_WORLD_SIZE", "1")
    if ranks != "1" and options.core_list is None:
        raise Refused(
            f"torchrun starts {ranks} launchers, which would use the same cores: give each its --cores"
        )
    cpus = chosen_cpus(options, topology)
    owner = {cpu: core.node for core in topology.cores for cpu in core.cpus}
    by_node = [tuple(cpu for cpu in cpus if owner[cpu] == node) for node in topology.nodes]
    shares = shares_of(options, cpus, [group for group in by_node if group])
    if options.rank != -1:
        if not 0 <= options.rank < len(shares):
            raise Refused(f"--rank is {options.rank}; the instances are 0 to {len(shares) - 1}")
        shares = [shares[options.rank]]
    instances, notices = [], []
    for index, share in enumerate(shares):
        nodes = sorted({owner[cpu] for cpu in share})
        memory = tuple(node for node in nodes if node in topology.memory_nodes)
        instances.append(Instance(share, memory))
        if len(nodes) > 1:
            spanned = f"instance {index} spans the NUMA nodes {', '.join(map(str, nodes))}"
            fitting = "a --ncores-per-instance that divides the cores of a node"
            notices.append(warning(f"{spanned}; --skip-cross-node-cores, or {fitting}, avoids it"))
    used = {cpu for share in shares for cpu in share}
    shares_cores = any(len(used.intersection(core.cpus)) > 1 for core in topology.cores)
    return Plan(tuple(instances), shares_cores, tuple(notices))


def chosen_cpus(options: Options, topology: Topology) -> tuple[int, ...]:
    """Return the CPUs that the options choose, node by node and core by core."""
    node, nodes = options.node_id, topology.nodes
    if node not in (-1, *nodes):
        raise BadInput(f"Invalid node id: {node}. Valid node ids: {list(nodes)}")
    cores = [core.cpus for core in topology.cores if node in (-1, core.node)]
    if options.core_list is None:
        threads = None if options.use_logical_core else 1
        return tuple(cpu for core in cores for cpu in core[:threads])
    listed = usable_cpus(options.core_list, topology)
    cpus = tuple(cpu for core in cores for cpu in core if cpu in listed)
    if not cpus:
        raise Refused(f"none of the CPUs {options.core_list} is on node {node}")
    return cpus


def usable_cpus(text: str, topology: Topology) -> list[int]:
    """Return the CPUs of a list such as "0-3,8".

    Raises BadInput for what is not a list, or names a CPU twice; UnknownCpu for one that may not be used.
    """
    cpus: list[int] = []
    for item in text[: 16 * HIGHEST].split(","):
        piece = item.strip()
        numbers = parse_cpu_list(piece) if " " not in piece and ":" not in piece else ()
        if not numbers:
            raise BadInput(
                f"{text[:80]!r} is not a list of CPUs: {piece[:40]!r} is not a number below "
                f"{HIGHEST} or a range; write 0,1,2 or 0-3,8"
            )
        cpus += numbers
        if len(set(cpus)) < len(cpus):
            raise BadInput(f"{text[:80]!r} names a CPU twice")
    usable = [cpu for core in topology.cores for cpu in core.cpus]
    for cpu in cpus:
        if cpu not in usable:
            is_on = cpu in topology.online
            state = "may not be used by this process" if is_on else "is off or does not exist"
            raise UnknownCpu(
                f"CPU {cpu} {state}; this process may use {format_cpu_list(usable)}",
                "affinity masks and cpusets of containers and schedulers count",
            )
    return cpus


def shares_of(options: Options, cpus: Sequence[int], by_node: Shares) -> Shares:
    """Divide CPUs among instances by mode or by counts; without either, one instance gets all."""
    count, size, total = options.ninstances, options.ncores_per_instance, len(cpus)
    for name, number in (("--ninstances", count), ("--ncores-per-instance", size)):
        if number != -1 and number < 1:
            raise BadInput(f"{name} is {number}; at least 1 is needed")
    if options.throughput_mode or (
        options.multi_instance and count == size == -1 and not options.latency_mode
    ):
        return by_node
    units = by_node if options.skip_cross_node_cores else [tuple(cpus)]

    def whole_parts(size: int) -> Shares:
        starts = [(unit, at) for unit in units for at in range(0, len(unit) - size + 1, size)]
        return [unit[at : at + size] for unit, at in starts]

    if options.latency_mode:
        size = _CORES_IN_LATENCY_MODE
        rest = () if options.skip_cross_node_cores else tuple(cpus)[total - total % size :]
        if not (shares := [*whole_parts(size), *([rest] if rest else [])]):
            raise Refused(f"latency mode needs {size} cores of a node; the largest has fewer")
        return shares
    if size == -1:
        count = max(count, 1)
        if options.skip_cross_node_cores and count <= len(by_node):
            return by_node[:count]
        size = max(total // count, 1)
        while size > 1 and len(whole_parts(size)) < count:
            size -= 1
    elif count == -1:  # a list of cores is divided, as torch did before 2.14
        count = max(total // size, 1) if options.core_list is not None else 1
    if count * size > total:
        raise Refused(f"{count} instances of {size} cores need {count * size}; there are {total}")
    if len(shares := whole_parts(size)) < count:
        raise Refused(
            f"--skip-cross-node-cores leaves no node with {size} cores free for an instance;"
            f" the largest has {max(map(len, by_node))}"
        )
    if options.skip_cross_node_cores and all(len(group) >= size for group in by_node[:count]):
        shares = [group[:size] for group in by_node] if count <= len(by_node) else shares
    return shares[:count]
