"""From options and cores to instances: how many, and which CPUs each gets.

Nothing is read from the machine here. Instances share no CPU. Source: torch 2.15, run_cpu.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.base.errors import BadInput
from mlbackends.host.quantities import HIGHEST, format_cpu_list, parse_cpu_list
from mlbackends.launch.cores import Topology
from mlbackends.launch.notices import Notice, Refused, TooFewCores, UnknownCpu, information, warning
from mlbackends.launch.options import Options

#: The CPUs of each instance.
Shares = list[tuple[int, ...]]
_CORES_IN_LATENCY_MODE = 4


class Instance(Struct, frozen=True):
    """One program that will be started.

    memory_nodes: the NUMA nodes of its CPUs whose memory it may be bound to.
    """

    cpus: tuple[int, ...]
    memory_nodes: tuple[int, ...]


class Plan(Struct, frozen=True):
    """What will be started, and the notices on it.

    threads: how many CPUs the first instance has. shares_cores: hyper-threads of one core may both be in
    use.
    """

    instances: tuple[Instance, ...]
    threads: int
    shares_cores: bool
    notices: tuple[Notice, ...]


def plan(options: Options, topology: Topology, environment: Mapping[str, str]) -> Plan:
    """Divide the chosen cores among instances.

    environment: LOCAL_WORLD_SIZE and LOCAL_RANK, which torchrun sets, split each instance's cores.
    Raises Refused, BadInput, UnknownCpu or TooFewCores: the exceptions of torch by their other base.
    """
    sizes = sizes_of(options)
    counts = [("--ninstances", options.ninstances)]
    counts += [("--ncores-per-instance", size) for size in sizes]
    for name, number in counts:
        if number != -1 and number < 1:
            raise BadInput(f"{name} is {number}; at least 1 is needed")
    has_counts = options.ninstances != -1 or sizes != (-1,)
    if options.multi_instance and not has_counts and not options.latency_mode:
        options = replace(options, throughput_mode=True)
    notices: list[Notice] = []
    cpus = chosen_cpus(options, topology, notices)
    owner = topology.node_of()
    groups = [tuple(cpu for cpu in cpus if owner[cpu] == node) for node in topology.nodes]
    divide = shares_of_mode if has_modes(options) else shares_of_counts
    shares = divide(options, cpus, [group for group in groups if group], notices)
    if options.rank != -1:
        if not 0 <= options.rank < len(shares):
            raise Refused(f"--rank is {options.rank}; the instances are 0 to {len(shares) - 1}")
        shares = [shares[options.rank]]
        notices.append(information(f"assigning {len(shares[0])} cores for instance {options.rank}"))
    ranks = _number(environment, "LOCAL_WORLD_SIZE", 1)
    if ranks > 1:
        rank = _number(environment, "LOCAL_RANK", 0)
        if rank >= ranks:
            raise BadInput(f"LOCAL_RANK is {rank}; with a LOCAL_WORLD_SIZE of {ranks} it is lower")
        least = min(map(len, shares))
        if least < ranks:
            raise TooFewCores(
                f"each rank needs a core at least; there are {least} for {ranks} ranks"
            )
        parts = [(share, len(share) // ranks) for share in shares]
        shares = [share[rank * size : (rank + 1) * size] for share, size in parts]
    instances = []
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
    if options.use_logical_core and options.core_list is None and not has_modes(options):
        shares_cores = True
    return Plan(tuple(instances), len(shares[0]), shares_cores, tuple(notices))


def _number(environment: Mapping[str, str], name: str, lowest: int) -> int:
    """Return a variable of torchrun, `lowest` where it is not set."""
    text = environment.get(name, str(lowest))
    found = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
    if found < lowest:
        raise BadInput(f"{name} is {text[:40]!r}; a whole number from {lowest} up is needed")
    return found


# ---- which CPUs -------------------------------------------------------------


def chosen_cpus(options: Options, topology: Topology, notices: list[Notice]) -> tuple[int, ...]:
    """Return the CPUs that the options choose, node by node; a --core-list's by number, as torch has it.

    Raises BadInput for a list that cannot be read and a node that is not there, UnknownCpu for a
    CPU that cannot be used, Refused for options that contradict each other.
    """
    if options.core_list is not None:
        if options.cores is not None:
            raise Refused("--core-list and --cores both say which CPUs to use; give one of them")
        cpus = _usable(options.core_list, "--core-list", topology)
        if sizes_of(options) == (-1,):
            raise Refused("--core-list needs --ncores-per-instance, which was not given")
        for name, is_set in (
            ("--node-id", options.node_id != -1),
            ("--use-logical-core", options.use_logical_core),
            ("--latency-mode", options.latency_mode),
            ("--throughput-mode", options.throughput_mode),
        ):
            if is_set:
                notices.append(warning(f"{name} does not count beside --core-list"))
        return cpus
    node = None if options.node_id == -1 or has_modes(options) else options.node_id
    if options.cores is not None:
        chosen = set(_usable(options.cores, "--cores", topology))
        cpus = tuple(cpu for cpu in topology.logical(node) if cpu in chosen)
        if not cpus:
            raise Refused(f"none of the CPUs {options.cores} lies on node {options.node_id}")
        return cpus
    if options.use_logical_core and not has_modes(options):
        return topology.logical(node)
    return topology.physical(node)


def has_modes(options: Options) -> bool:
    """Tell whether latency or throughput mode decides: a --core-list with its counts goes before."""
    return options.core_list is None and (options.latency_mode or options.throughput_mode)


def listed_cpus(text: str, name: str) -> list[int]:
    """Return the numbers of a list such as "0,1,2" or "0-3,8", in its order.

    name: the option, for the message. Raises BadInput for anything else, and for a number that
    stands there twice.
    """
    found: dict[int, None] = {}
    for item in text.split(","):
        piece = item.strip()
        cpus = parse_cpu_list(piece) if " " not in piece and ":" not in piece else ()
        if not cpus:
            raise BadInput(
                f"{name} {text[:80]!r} is not a list of CPUs: {piece[:40]!r} is no number below "
                f"{HIGHEST} and no range; write 0,1,2 or 0-3,8"
            )
        for cpu in cpus:
            if cpu in found:
                raise BadInput(f"{name} {text[:80]!r} names CPU {cpu} twice")
            found[cpu] = None
        if len(found) > HIGHEST:
            raise BadInput(f"{name} names more than {HIGHEST} CPUs")
    return list(found)


def _usable(text: str, name: str, topology: Topology) -> tuple[int, ...]:
    """Return the CPUs of a list, sorted; raises UnknownCpu for one that this process may not use."""
    cpus, usable = listed_cpus(text, name), set(topology.logical())
    for cpu in cpus:
        if cpu not in usable:
            state = "is not for this process" if cpu in topology.online else "is off or not there"
            raise UnknownCpu(
                f"CPU {cpu} {state}; this process may use {format_cpu_list(usable)}",
                "affinity masks and cpusets of containers and schedulers count",
            )
    return tuple(sorted(cpus))


# ---- how many, and how large ------------------------------------------------


def sizes_of(options: Options) -> tuple[int, ...]:
    """Return the numbers of --ncores-per-instance, (-1,) where it is not given."""
    per_instance = options.ncores_per_instance
    return per_instance if isinstance(per_instance, tuple) else (per_instance,)


def shares_of_mode(
    options: Options, cpus: Sequence[int], by_node: Shares, notices: list[Notice]
) -> Shares:
    """Divide in latency mode (four cores each, and the rest) or throughput mode (one instance per node).

    by_node: the CPUs of each node. Raises Refused where no node has four cores and none may be spanned.
    """
    mode = "latency" if options.latency_mode else "throughput"
    conflicting = "--ninstances, --ncores-per-instance, --node-id and --use-logical-core"
    notices.append(warning(f"--{mode}-mode decides alone: {conflicting} do not count"))
    if mode == "throughput":
        return by_node
    size = _CORES_IN_LATENCY_MODE
    parts = by_node if options.skip_cross_node_cores else [tuple(cpus)]
    shares = [part[at : at + size] for part in parts for at in range(0, len(part), size)]
    if options.skip_cross_node_cores:
        shares = [share for share in shares if len(share) == size]
    if not shares:
        raise Refused(f"latency mode needs {size} cores of a node; the largest has fewer")
    return shares


def shares_of_counts(
    options: Options, cpus: Sequence[int], by_node: Shares, notices: list[Notice]
) -> Shares:
    """Divide by --ninstances and --ncores-per-instance; one instance has all where neither is given.

    by_node: the CPUs of each node. Raises Refused where the options need more cores than there are, BadInput
    where they give another number of sizes than of instances.
    """
    count, sizes, total = options.ninstances, sizes_of(options), len(cpus)
    if len(sizes) > 1 and count not in (-1, len(sizes)):
        raise BadInput(
            f"--ninstances is {count}, and --ncores-per-instance has {len(sizes)} numbers"
        )
    if len(sizes) == 1 and sizes[0] == -1:
        count = max(count, 1)
        if count > total:
            raise Refused(f"there are {total} cores for {count} instances; each needs one at least")
        if options.skip_cross_node_cores and count <= len(by_node):
            return by_node[:count]
        size = total // count
        if options.skip_cross_node_cores:
            while size > 1 and sum(len(group) // size for group in by_node) < count:
                size -= 1
        sizes = (size,) * count
    elif len(sizes) == 1:
        if count == -1:  # a list of cores is shared out, as torch did before 2.14
            count = max(total // sizes[0], 1) if options.core_list is not None else 1
        sizes *= count
    needed = sum(sizes)
    if needed > total and len(sizes) == 1:
        raise Refused(f"--ncores-per-instance is {needed}; there are {total} cores")
    if needed > total:
        sized = f" of {sizes[0]} cores" if len(set(sizes)) == 1 else ""
        raise Refused(f"{len(sizes)} instances{sized} need {needed}; there are {total}")
    if options.core_list is not None and needed < total:
        used = f"of the {total} cores in --core-list only the first {needed} are used"
        notices.append(warning(used))
    if options.skip_cross_node_cores:
        shares = _within_nodes(sizes, by_node)
        left = f"{total - needed} cores are left over so that no instance spans nodes"
        notices.append(information(left))
        return shares
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    return [tuple(cpus[at : at + size]) for at, size in zip(starts, sizes, strict=True)]


def _within_nodes(sizes: Sequence[int], by_node: Shares) -> Shares:
    """Return one instance a node where they fit so, else as many on a node as it has cores for."""
    if len(sizes) <= len(by_node):
        pairs = list(zip(sizes, by_node, strict=False))
        if all(size <= len(group) for size, group in pairs):
            return [group[:size] for size, group in pairs]
    left, shares = list(by_node), []
    for size in sizes:
        at = next((at for at, group in enumerate(left) if len(group) >= size), None)
        if at is None:
            largest = max(map(len, by_node))
            raise Refused(
                f"--skip-cross-node-cores leaves no node with {size} cores free for an instance;"
                f" the largest has {largest}"
            )
        shares.append(left[at][:size])
        left[at] = left[at][size:]
    return shares
