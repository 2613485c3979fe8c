"""The cores that a launch may use, their CPUs and their NUMA nodes.

Cores come from /sys or /proc/cpuinfo, without CPUs that are off and those that the affinity mask or cpuset
of this process excludes.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from mlbackends.base.quantities import parse_cpu_list
from mlbackends.host.cpu.cpuinfo import read_blocks
from mlbackends.host.cpu.topology import core_groups, online_cpus
from mlbackends.host.host import Host
from mlbackends.host.system.cgroups import allowed_cpus, allowed_memory_nodes
from mlbackends.host.system.numa import numa_nodes
from mlbackends.launch.options import Refused


class Core(Struct, frozen=True, order=True):
    """A physical core: the NUMA node that owns it, and its usable CPUs (hyper-threads), sorted."""

    node: int
    cpus: tuple[int, ...]


class Topology(Struct, frozen=True):
    """The usable cores, by node and then by their lowest CPU.

    memory_nodes: the nodes whose memory may be used. online: every CPU that is on, usable or not.
    """

    cores: tuple[Core, ...]
    memory_nodes: tuple[int, ...]
    online: tuple[int, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that have a usable CPU; their numbers may have gaps."""
        return tuple(dict.fromkeys(core.node for core in self.cores))


def topology_of(
    groups: Iterable[Sequence[int]],
    nodes: dict[int, int],
    memory_nodes: Iterable[int],
    online: Iterable[int],
) -> Topology:
    """Return cores made of CPUs that share one; a CPU without a node gets the lowest node."""
    lowest = min(nodes.values(), default=0)
    cores = [Core(nodes.get(min(group), lowest), tuple(sorted(group))) for group in groups if group]
    return Topology(tuple(sorted(cores)), tuple(memory_nodes), tuple(online))


def read_topology(host: Host) -> Topology:
    """Return the cores of a machine that this process may use; raises Refused if that is not Linux."""
    if host.platform != "linux":
        name = host.uname().get("sysname") or host.platform
        raise Refused(f"{name} is not supported!!!", "cores can be bound on Linux only")
    blocks = read_blocks(host)
    mask = host.affinity() or allowed_cpus(host)
    online = online_cpus(host, blocks) or tuple(sorted(mask))
    # A container may show the files of the machine although its mask allows fewer CPUs.
    usable = set(mask).intersection(online) or set(mask) or set(online)
    if not usable:
        raise Refused("neither /sys nor /proc/cpuinfo names a CPU of this machine")
    groups = [[cpu for cpu in group if cpu in usable] for group in core_groups(host, online, blocks)]
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
