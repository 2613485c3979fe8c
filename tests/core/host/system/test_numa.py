"""NUMA nodes: what memory they hold, and which CPUs are near."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.host.system.numa import numa_nodes
from mlbackends_probes import memory

if TYPE_CHECKING:
    from tests.conftest import Machine

NODE = "sys/devices/system/node"
#: In the kB of meminfo.
GIB = 1 << 20


def node_files(*nodes: tuple[str, int], distances: str = "") -> dict[str, str]:
    """Return the files of nodes: their CPUs and GiB; distances: a row for each node."""
    files = {}
    rows = distances.split("/") if distances else [""] * len(nodes)
    for number, ((cpus, size), row) in enumerate(zip(nodes, rows, strict=True)):
        files[f"{NODE}/node{number}/cpulist"] = cpus
        files[f"{NODE}/node{number}/meminfo"] = (
            f"Node {number} MemTotal: {size * GIB} kB\nNode {number} MemFree: {size * GIB // 2} kB"
        )
        files[f"{NODE}/node{number}/distance"] = row
    return files


def test_a_node_without_cpus_is_memory_of_its_own(machine: Machine) -> None:
    files = {f"{NODE}/node1/cpulist": "", f"{NODE}/node1/meminfo": "Node 1 MemTotal: 4 kB"}
    assert numa_nodes(machine(files)) == [{"node": 1, "cpus": "", "memory_bytes": 4096}]


def test_a_gpu_without_a_node_leaves_the_memory_as_it_is(machine: Machine) -> None:
    files = node_files(("0-3", 64)) | {
        "proc/meminfo": f"MemTotal: {64 * GIB} kB",
        "proc/driver/nvidia/gpus/0000:01:00.0/numa_status": "Node:\t\t-1",
    }
    facts = memory.find(machine(files)).facts

    assert facts["total_bytes"] == 64 << 30
    assert "gpu_bytes" not in facts


def test_a_cache_before_the_memory_has_its_size(machine: Machine) -> None:
    """Xeon Max in cache mode: HBM caches the DDR of its node, which is the only one."""
    files = node_files(("0-55", 512)) | {f"{NODE}/node0/memory_side_cache/index1/size": str(64 << 30)}

    assert numa_nodes(machine(files))[0]["memory_side_cache_bytes"] == 64 << 30


def test_a_mask_names_a_nodes_cpus_where_there_is_no_list(machine: Machine) -> None:
    files = {f"{NODE}/node0/cpumap": "00000001,0000000f", f"{NODE}/node0/meminfo": "Node 0 x: 1"}
    assert numa_nodes(machine(files))[0]["cpus"] == "0-3,32"


def test_nodes_have_their_tier_and_those_without_cpus_the_nearest(machine: Machine) -> None:
    files = node_files(("0-3", 8), ("4-7", 8), ("", 8), distances="10 21 28/21 10 17/28 17 10")
    for tier, listed in ((4, "0-1"), (10, "2")):
        files[f"sys/devices/virtual/memory_tiering/memory_tier{tier}/nodelist"] = listed
    nodes = numa_nodes(machine(files))

    assert [node["tier"] for node in nodes] == [4, 4, 10]
    assert nodes[2]["near_cpus"] == "4-7"
