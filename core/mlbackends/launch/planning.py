"""From options and cores to instances: how many, and which CPUs each gets.

Nothing is asked of the machine here. Instances are all of one size and share no CPU.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.launch.cpu_choice import chosen_cpus, takes_modes
from mlbackends.launch.notices import Notice, information, warning
from mlbackends.launch.options import Options
from mlbackends.launch.refusals import Refused, TooFewCores
from mlbackends.launch.shares import Shares, shares_of_counts, shares_of_mode
from mlbackends.launch.topology import Topology
from mlbackends.model.errors import BadInput


class Instance(Struct, frozen=True):
    """One program that will be started.

    index: from 0, of those that are started. nodes: the NUMA nodes of its CPUs, sorted;
    memory_nodes: those among them whose memory it may be bound to.
    """

    index: int
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]


class Plan(Struct, frozen=True):
    """What will be started, and what is to be told of it.

    threads: how many CPUs each instance has. shares_cores: hyper-threads of one core may both be in
    use.
    """

    instances: tuple[Instance, ...]
    threads: int
    shares_cores: bool
    notices: tuple[Notice, ...]


def plan(options: Options, topology: Topology, environment: Mapping[str, str]) -> Plan:
    """Deal the chosen cores out to instances.

    environment: LOCAL_WORLD_SIZE and LOCAL_RANK, which torchrun sets, split each instance's cores.
    Raises Refused, BadInput, UnknownCpu or TooFewCores: the exceptions of torch by their other base.
    """
    _check_counts(options)
    options = _with_default_mode(options)
    notices: list[Notice] = []
    cpus = chosen_cpus(options, topology, notices)
    deal = shares_of_mode if takes_modes(options) else shares_of_counts
    shares = deal(options, cpus, _by_node(cpus, topology), notices)
    if options.rank != -1:
        shares = [_ranked(options.rank, shares)]
        notices.append(information(f"assigning {len(shares[0])} cores for instance {options.rank}"))
    shares = _local_part(shares, environment)
    instances = tuple(_instance(index, share, topology) for index, share in enumerate(shares))
    return Plan(
        instances,
        len(shares[0]),
        _shares_cores(options, instances, topology),
        (*notices, *(_spanning(one) for one in instances if len(one.nodes) > 1)),
    )


def _check_counts(options: Options) -> None:
    for name in ("ninstances", "ncores_per_instance"):
        number = getattr(options, name)
        if number != -1 and number < 1:
            raise BadInput(f"--{name.replace('_', '-')} is {number}; at least 1 is needed")


def _with_default_mode(options: Options) -> Options:
    """Return the options with throughput mode where --multi-instance stands without counts."""
    counts = (options.ninstances, options.ncores_per_instance)
    if options.multi_instance and counts == (-1, -1) and not options.latency_mode:
        return replace(options, throughput_mode=True)
    return options


def _by_node(cpus: Sequence[int], topology: Topology) -> Shares:
    owner = topology.node_of()
    groups = [tuple(cpu for cpu in cpus if owner[cpu] == node) for node in topology.nodes]
    return [group for group in groups if group]


def _ranked(rank: int, shares: Shares) -> tuple[int, ...]:
    if not 0 <= rank < len(shares):
        raise Refused(f"--rank is {rank}; the instances are 0 to {len(shares) - 1}")
    return shares[rank]


def _local_part(shares: Shares, environment: Mapping[str, str]) -> Shares:
    """Return this process's part of each share, where torchrun started several of us."""
    world = _whole(environment, "LOCAL_WORLD_SIZE", default=1, lowest=1)
    if world == 1:
        return shares
    rank = _whole(environment, "LOCAL_RANK", default=0, lowest=0)
    if rank >= world:
        raise BadInput(f"LOCAL_RANK is {rank}; with a LOCAL_WORLD_SIZE of {world} it is lower")
    size = len(shares[0]) // world
    if size == 0:
        raise TooFewCores(
            f"each rank needs a core at least; there are {len(shares[0])} for {world} ranks"
        )
    return [share[rank * size : (rank + 1) * size] for share in shares]


def _whole(environment: Mapping[str, str], name: str, *, default: int, lowest: int) -> int:
    text = environment.get(name)
    if text is None:
        return default
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
    if number < lowest:
        raise BadInput(f"{name} is {text[:40]!r}; a whole number from {lowest} up is needed")
    return number


def _instance(index: int, cpus: tuple[int, ...], topology: Topology) -> Instance:
    owner = topology.node_of()
    nodes = tuple(sorted({owner[cpu] for cpu in cpus}))
    memory = tuple(node for node in nodes if node in topology.memory_nodes)
    return Instance(index, cpus, nodes, memory)


def _shares_cores(options: Options, instances: tuple[Instance, ...], topology: Topology) -> bool:
    if options.use_logical_core and options.core_list is None and not takes_modes(options):
        return True
    used = {cpu for instance in instances for cpu in instance.cpus}
    return any(len(used.intersection(core.cpus)) > 1 for core in topology.cores)


def _spanning(instance: Instance) -> Notice:
    nodes = ", ".join(map(str, instance.nodes))
    return warning(
        f"instance {instance.index} spans the NUMA nodes {nodes}; --skip-cross-node-cores, or a "
        "--ncores-per-instance that divides the cores of a node, avoids it",
    )
