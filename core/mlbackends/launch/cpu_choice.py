"""Which CPUs the instances are made of, in the order in which they are dealt out."""

from collections.abc import Iterable

from mlbackends.host.quantities import HIGHEST, format_cpu_list, parse_cpu_list
from mlbackends.launch.notices import Notice, warning
from mlbackends.launch.options import Options
from mlbackends.launch.refusals import Refused, UnknownCpu
from mlbackends.launch.topology import Topology
from mlbackends.model.errors import BadInput


def chosen_cpus(options: Options, topology: Topology, notices: list[Notice]) -> tuple[int, ...]:
    """Return the CPUs that the options choose, node by node; a --core-list's by number, as torch has it.

    Raises BadInput for a list that cannot be read and a node that is not there, UnknownCpu for a
    CPU that cannot be used, Refused for options that contradict each other.
    """
    if options.core_list is not None:
        if options.cores is not None:
            raise Refused("--core-list and --cores both say which CPUs to use; give one of them")
        cpus = _usable(listed_cpus(options.core_list, "--core-list"), topology)
        if options.ncores_per_instance == -1:
            raise Refused("--core-list needs --ncores-per-instance, which was not given")
        notices.extend(_ignored_beside_list(options))
        return cpus
    if options.cores is not None:
        wanted = set(_usable(listed_cpus(options.cores, "--cores"), topology))
        cpus = tuple(cpu for cpu in topology.logical() if cpu in wanted)
        return cpus if takes_modes(options) else _of_node(options, topology, cpus)
    if takes_modes(options):
        return topology.physical()
    node = None if options.node_id == -1 else options.node_id
    return topology.logical(node) if options.use_logical_core else topology.physical(node)


def takes_modes(options: Options) -> bool:
    """Tell whether latency or throughput mode decides: a --core-list with its counts goes before."""
    return options.core_list is None and (options.latency_mode or options.throughput_mode)


def listed_cpus(text: str, name: str) -> list[int]:
    """Return the numbers of a list such as "0,1,2" or "0-3,8", as they stand there.

    name: the option, for the message. Raises BadInput for anything else, and for a number that
    stands there twice.
    """
    found: list[int] = []
    for item in text.split(","):
        piece = item.strip()
        cpus = parse_cpu_list(piece) if " " not in piece and ":" not in piece else ()
        if not cpus:
            raise BadInput(
                f"{name} {text[:80]!r} is not a list of CPUs: {piece[:40]!r} is no number below "
                f"{HIGHEST} and no range; write 0,1,2 or 0-3,8"
            )
        found.extend(cpus)
        if len(found) > HIGHEST:
            raise BadInput(f"{name} names more than {HIGHEST} CPUs")
    seen: set[int] = set()
    for cpu in found:
        if cpu in seen:
            raise BadInput(f"{name} {text[:80]!r} names CPU {cpu} twice")
        seen.add(cpu)
    return found


def _usable(cpus: Iterable[int], topology: Topology) -> tuple[int, ...]:
    usable = set(topology.logical())
    for cpu in cpus:
        if cpu in usable:
            continue
        seen = "is not for this process" if cpu in topology.online else "is off or not there"
        raise UnknownCpu(
            f"CPU {cpu} {seen}; this process may use {format_cpu_list(usable)}",
            "affinity masks and cpusets of containers and schedulers count",
        )
    return tuple(sorted(cpus))


def _of_node(options: Options, topology: Topology, cpus: tuple[int, ...]) -> tuple[int, ...]:
    if options.node_id == -1:
        return cpus
    on_node = set(topology.logical(options.node_id))
    left = tuple(cpu for cpu in cpus if cpu in on_node)
    if not left:
        raise Refused(f"none of the CPUs {options.cores} lies on node {options.node_id}")
    return left


def _ignored_beside_list(options: Options) -> list[Notice]:
    asked = {
        "--node-id": options.node_id != -1,
        "--use-logical-core": options.use_logical_core,
        "--latency-mode": options.latency_mode,
        "--throughput-mode": options.throughput_mode,
    }
    return [
        warning(f"{name} does not count beside --core-list")
        for name, is_asked in asked.items()
        if is_asked
    ]
