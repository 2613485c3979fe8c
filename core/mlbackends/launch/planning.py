"""From options and cores to instances: how many there are, and which CPUs each gets.

Nothing is read from the machine here. Instances share no CPU. Source: torch 2.15, run_cpu.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.base.errors import BadInput
from mlbackends.base.notices import Notice, information, warning
from mlbackends.base.quantities import HIGHEST, format_cpu_list, parse_cpu_list, whole_number
from mlbackends.launch.cores import Topology
from mlbackends.launch.errors import Refused, TooFewCores, UnknownCpu
from mlbackends.launch.options import Options

#: The CPUs of each instance.
Shares = list[tuple[int, ...]]
_CORES_IN_LATENCY_MODE = 4


class Instance(Struct, frozen=True):
    """One program that will be started. memory_nodes: the NUMA nodes of its CPUs that have memory."""

    cpus: tuple[int, ...]
    memory_nodes: tuple[int, ...]


class Plan(Struct, frozen=True):
    """What will be started, and the notices about it.

    threads: the number of CPUs of the first instance. shares_cores: hyper-threads of one core may be used.
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
    for name in ("ninstances", "ncores_per_instance"):
        if (number := getattr(options, name)) != -1 and number < 1:
            raise BadInput(f"--{name.replace('_', '-')} is {number}; at least 1 is needed")
    has_counts = options.ninstances != -1 or options.ncores_per_instance != -1
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
    shares = _share_of_rank(shares, environment)
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


def _share_of_rank(shares: Shares, environment: Mapping[str, str]) -> Shares:
    """Return what one of torchrun's processes gets of each instance's cores."""
    texts = environment.get("LOCAL_WORLD_SIZE", "1"), environment.get("LOCAL_RANK", "0")
    ranks, rank = (whole_number(text) for text in texts)
    if ranks == 1:
        return shares
    if ranks is None or rank is None or not 0 <= rank < ranks:
        raise BadInput(f"LOCAL_WORLD_SIZE and LOCAL_RANK are {texts}: not a rank of a world")
    if (least := min(map(len, shares))) < ranks:
        raise TooFewCores(f"each rank needs a core at least; there are {least} for {ranks} ranks")
    return [share[len(share) // ranks * rank :][: len(share) // ranks] for share in shares]


def chosen_cpus(options: Options, topology: Topology, notices: list[Notice]) -> tuple[int, ...]:
    """Return the CPUs that the options choose, node by node; those of --core-list by number, as in torch."""
    if options.core_list is not None:
        if options.cores is not None:
            raise Refused("--core-list and --cores both choose the CPUs; give one of them")
        cpus = _usable(options.core_list, "--core-list", topology)
        if options.ncores_per_instance == -1:
            raise Refused("--core-list needs --ncores-per-instance, which was not given")
        for name, is_set in (
            ("--node-id", options.node_id != -1),
            ("--use-logical-core", options.use_logical_core),
            ("--latency-mode", options.latency_mode),
            ("--throughput-mode", options.throughput_mode),
        ):
            if is_set:
                notices.append(warning(f"{name} has no effect with --core-list"))
        return cpus
    node = None if options.node_id == -1 or has_modes(options) else options.node_id
    if options.cores is not None:
        chosen = set(_usable(options.cores, "--cores", topology))
        cpus = tuple(cpu for cpu in topology.logical(node) if cpu in chosen)
        if not cpus:
            raise Refused(f"none of the CPUs {options.cores} is on node {options.node_id}")
        return cpus
    is_logical = options.use_logical_core and not has_modes(options)
    return topology.logical(node) if is_logical else topology.physical(node)


def has_modes(options: Options) -> bool:
    """Return whether latency or throughput mode decides; --core-list with its counts overrides both."""
    return options.core_list is None and (options.latency_mode or options.throughput_mode)


def _usable(text: str, name: str, topology: Topology) -> tuple[int, ...]:
    """Return the CPUs of a list such as "0-3,8", sorted. name: the option.

    Raises BadInput for what is not a list, or names a CPU twice; UnknownCpu for one that may not be used.
    """
    cpus: list[int] = []
    for item in text[: 16 * HIGHEST].split(","):
        piece = item.strip()
        numbers = parse_cpu_list(piece) if " " not in piece and ":" not in piece else ()
        if not numbers:
            raise BadInput(
                f"{name} {text[:80]!r} is not a list of CPUs: {piece[:40]!r} is not a number below "
                f"{HIGHEST} or a range; write 0,1,2 or 0-3,8"
            )
        cpus += numbers
        if len(set(cpus)) < len(cpus):
            raise BadInput(f"{name} {text[:80]!r} names a CPU twice")
    usable = set(topology.logical())
    for cpu in cpus:
        if cpu not in usable:
            is_on = cpu in topology.online
            state = "may not be used by this process" if is_on else "is off or does not exist"
            raise UnknownCpu(
                f"CPU {cpu} {state}; this process may use {format_cpu_list(usable)}",
                "affinity masks and cpusets of containers and schedulers count",
            )
    return tuple(sorted(cpus))


def shares_of_mode(
    options: Options, cpus: Sequence[int], by_node: Shares, notices: list[Notice]
) -> Shares:
    """Divide in latency mode (four cores each, and the rest) or throughput mode (one instance per node)."""
    mode = "latency" if options.latency_mode else "throughput"
    conflicting = "--ninstances, --ncores-per-instance, --node-id and --use-logical-core"
    notices.append(warning(f"--{mode}-mode overrides {conflicting}"))
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
    """Divide by --ninstances and --ncores-per-instance; without both, one instance gets all CPUs."""
    count, size, total = options.ninstances, options.ncores_per_instance, len(cpus)
    if size == -1:
        count = max(count, 1)
        if count > total:
            raise Refused(f"there are {total} cores for {count} instances; each needs one at least")
        if options.skip_cross_node_cores and count <= len(by_node):
            return by_node[:count]
        size = total // count
        while options.skip_cross_node_cores and size > 1 and _fitting(by_node, size) < count:
            size -= 1
    elif count == -1:  # a list of cores is divided, as torch did before 2.14
        count = max(total // size, 1) if options.core_list is not None else 1
    if count * size > total:
        needed = f"{count} instances of {size} cores need {count * size}"
        raise Refused(f"{needed}; there are {total}")
    if options.core_list is not None and count * size < total:
        used = f"of the {total} cores in --core-list only the first {count * size} are used"
        notices.append(warning(used))
    if not options.skip_cross_node_cores:
        return [tuple(cpus[at * size : (at + 1) * size]) for at in range(count)]
    if _fitting(by_node, size) < count:
        raise Refused(
            f"--skip-cross-node-cores leaves no node with {size} cores free for an instance;"
            f" the largest has {max(map(len, by_node))}"
        )
    if count <= len(by_node) and all(len(group) >= size for group in by_node[:count]):
        return [group[:size] for group in by_node[:count]]
    parts = [group[at : at + size] for group in by_node for at in range(0, len(group), size)]
    return [part for part in parts if len(part) == size][:count]


def _fitting(by_node: Shares, size: int) -> int:
    """Return the number of instances of a size that span no nodes."""
    return sum(len(group) // size for group in by_node)
