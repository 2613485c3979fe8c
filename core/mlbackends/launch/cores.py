"""The cores that a launch may use: which CPUs each has, and on which NUMA node it lies.

Cores come from /sys or /proc/cpuinfo of the machine, or from the output of lscpu; CPUs that are off, or
that the affinity mask or cpuset of this process leaves out, are not among them.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import pattern
from mlbackends.host.cpu.cpuinfo import read_blocks
from mlbackends.host.cpu.topology import core_groups, online_cpus
from mlbackends.host.host import Host
from mlbackends.host.quantities import parse_cpu_list
from mlbackends.host.system.cgroups import allowed_cpus, allowed_memory_nodes
from mlbackends.host.system.numa import numa_nodes
from mlbackends.launch.notices import Refused

_LONGEST = 1 << 22
#: CPU, core, socket and node, of which all but the first may be missing. Further columns do not count.
#: What is taken of blanks is kept (*+): else a line of many takes the fourth power of their number.
_LSCPU_LINE = pattern(r"\s*([0-9]{1,6})\s*" + r",\s*+([0-9]{1,6}|-?)\s*+" * 3 + r"(?:,|$)")


class Core(Struct, frozen=True, order=True):
    """A physical core: the NUMA node that owns it, and its usable CPUs (hyper-threads), sorted."""

    node: int
    cpus: tuple[int, ...]


class Topology(Struct, frozen=True):
    """The usable cores, node by node and in a node by their lowest CPU.

    memory_nodes: those whose memory the process may be bound to. online: CPUs that are on, usable
    or not.
    """

    cores: tuple[Core, ...]
    memory_nodes: tuple[int, ...]
    online: tuple[int, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that own a usable CPU; they need not count from 0, nor without gaps."""
        return tuple(dict.fromkeys(core.node for core in self.cores))

    def physical(self, node: int | None = None) -> tuple[int, ...]:
        """Return one CPU of each core, the lowest; of one node, or of all, node by node.

        Raises BadInput for a node that owns no usable CPU.
        """
        return tuple(core.cpus[0] for core in self._of(node))

    def logical(self, node: int | None = None) -> tuple[int, ...]:
        """Return every usable CPU, core by core; of one node, or of all, node by node.

        Raises BadInput for a node that owns no usable CPU.
        """
        return tuple(cpu for core in self._of(node) for cpu in core.cpus)

    def node_of(self) -> dict[int, int]:
        """Return the node of each usable CPU."""
        return {cpu: core.node for core in self.cores for cpu in core.cpus}

    def _of(self, node: int | None) -> list[Core]:
        if node is not None and node not in self.nodes:
            raise BadInput(f"Invalid node id: {node}. Valid node ids: {list(self.nodes)}")
        return [core for core in self.cores if node in (None, core.node)]


def topology_of(
    groups: Iterable[Sequence[int]],
    nodes: dict[int, int],
    memory_nodes: Iterable[int],
    online: Iterable[int],
) -> Topology:
    """Put together which CPUs share a core, and each CPU's node.

    A CPU of no node counts to the lowest there is: kernels without NUMA have one node, 0.
    """
    lowest = min(nodes.values(), default=0)
    cores = [Core(nodes.get(min(group), lowest), tuple(sorted(group))) for group in groups if group]
    return Topology(tuple(sorted(cores)), tuple(memory_nodes), tuple(online))


def read_topology(host: Host) -> Topology:
    """Return the cores of a machine that this process may use.

    Raises Refused where the system is not Linux, and where it names no CPU at all.
    """
    if host.platform != "linux":
        name = host.uname().get("sysname") or host.platform
        raise Refused(f"{name} is not supported!!!", "cores can be bound on Linux only")
    blocks = read_blocks(host)
    mask = host.affinity() or allowed_cpus(host)
    online = online_cpus(host, blocks) or tuple(sorted(mask))
    # A container may show the machine's files and have a mask of its own.
    usable = set(mask).intersection(online) or set(mask) or set(online)
    if not usable:
        raise Refused("neither /sys nor /proc/cpuinfo names a CPU of this machine")
    groups = [
        [cpu for cpu in group if cpu in usable] for group in core_groups(host, online, blocks)
    ]
    groups += [[cpu] for cpu in usable.difference(*groups)]
    owners: dict[int, int] = {}
    memory: list[int] = []
    for node in numa_nodes(host):
        number = node["node"]
        if isinstance(number, int):
            owners.update(dict.fromkeys(parse_cpu_list(str(node["cpus"])), number))
            if node.get("memory_bytes") != 0:
                memory.append(number)
    allowed = allowed_memory_nodes(host)
    for line in host.read("/proc/self/status", 16384).splitlines():
        name, _, value = line.partition(":")
        if name == "Mems_allowed_list":
            allowed = parse_cpu_list(value)
    memory_nodes = [node for node in memory or [0] if not allowed or node in allowed]
    return topology_of(groups, owners, memory_nodes, online)


def parse_lscpu(text: str) -> Topology:
    """Return the cores that the lines name; lines with # are comments.

    A CPU without a core is off, and left out. A CPU without a node lies on the lowest node. Raises
    BadInput for a line that is none of these, and where no CPU is left.
    """
    cores: dict[tuple[int, int], list[int]] = {}
    nodes: dict[int, int] = {}
    for line in text[:_LONGEST].splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LSCPU_LINE.match(line)
        if found is None:
            raise BadInput(
                f"lscpu's line {line.strip()[:80]!r} is not four numbers: CPU, core, socket, node"
            )
        cpu, core, socket, node = (
            int(each) if each.isdecimal() else None for each in found.groups()
        )
        if cpu is None or core is None:
            continue
        cores.setdefault((socket or 0, core), []).append(cpu)
        if node is not None:
            nodes[cpu] = node
    listed = sorted(cpu for cpus in cores.values() for cpu in cpus)
    if not listed:
        raise BadInput("lscpu's output names no CPU: lines such as 0,0,0,0 are needed")
    if len(set(listed)) < len(listed):
        raise BadInput("lscpu's output names a CPU twice")
    return topology_of(cores.values(), nodes, sorted(set(nodes.values())) or [0], listed)
