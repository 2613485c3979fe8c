"""The cores of this machine, under the names of torch's `_CPUinfo`."""

from collections.abc import Iterable

from mlbackends.launch.notices import Refused, UnknownCpu
from mlbackends.launch.topology import Topology


class CPUinfo:
    """Which CPUs and physical cores there are, and on which NUMA nodes.

    test_input: what `lscpu --parse=CPU,Core,Socket,Node` prints, to read instead of this machine;
    of this machine only what this process may use counts. A physical core is named by the lowest
    of its CPUs, for CPUs are what can be bound. Raises RuntimeError where the system is not Linux,
    ValueError for a `test_input` that lscpu does not print.
    """

    def __init__(self, test_input: str = "") -> None:
        self.topology = _topology(test_input)

    def physical_core_nums(self) -> int:
        """Return how many physical cores there are, on all nodes."""
        return len(self.topology.cores)

    def logical_core_nums(self) -> int:
        """Return how many CPUs there are: hyper-threads count."""
        return len(self.topology.logical())

    def get_node_physical_cores(self, node_id: int) -> list[int]:
        """Return one CPU of each core of a node; raises ValueError for a node that is not there."""
        return list(self.topology.physical(node_id))

    def get_node_logical_cores(self, node_id: int) -> list[int]:
        """Return the CPUs of a node; raises ValueError for a node that is not there."""
        return sorted(self.topology.logical(node_id))

    def get_all_physical_cores(self) -> list[int]:
        """Return one CPU of each core, node by node."""
        return list(self.topology.physical())

    def get_all_logical_cores(self) -> list[int]:
        """Return every CPU, node by node."""
        return [cpu for node in self.topology.nodes for cpu in self.get_node_logical_cores(node)]

    def numa_aware_check(self, core_list: Iterable[int]) -> list[int]:
        """Return the nodes on which these CPUs lie, sorted; more than one is told as a warning.

        Raises KeyError for a CPU that is not there, RuntimeError for an empty list.
        """
        owner = self.topology.node_of()
        cpus = list(core_list)
        for cpu in cpus:
            if cpu not in owner:
                raise UnknownCpu(f"CPU {cpu} is off, or not there, or not for this process")
        nodes = sorted({owner[cpu] for cpu in cpus})
        if not nodes:
            raise Refused("invalid number of NUMA nodes; please make sure numa_ids >= 1")
        if len(nodes) > 1:
            from mlbackends.launch.launcher import tell

            tell("WARNING", f"the cores {cpus} lie on several NUMA nodes: {nodes}")
        return nodes

    # The names in torch.
    _physical_core_nums = physical_core_nums
    _logical_core_nums = logical_core_nums


def _topology(test_input: str) -> Topology:
    if test_input:
        from mlbackends.launch.topology import parse_lscpu

        return parse_lscpu(test_input)
    from mlbackends.host.host import Host
    from mlbackends.launch.topology import read_topology

    return read_topology(Host())
