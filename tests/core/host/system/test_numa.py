"""NUMA nodes: what memory they hold, and which CPUs are near."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.host.host import Host
from mlbackends.host.system.numa import gpu_memory, numa_nodes
from mlbackends_probes import memory

if TYPE_CHECKING:
    from pathlib import Path

NODE = "sys/devices/system/node"
DAX = "sys/bus/dax/devices"
#: In the kB of meminfo.
GIB = 1 << 20


def machine(root: Path, files: dict[str, str], links: dict[str, str] | None = None) -> Host:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((text + "\n").encode())
    for name, target in (links or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    return Host(str(root))


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


def test_eight_nodes_have_cpus_memory_and_distances(tmp_path: Path) -> None:
    files = {}
    for node in range(8):
        folder = f"{NODE}/node{node}"
        files[f"{folder}/cpulist"] = f"{node * 16}-{node * 16 + 15}"
        files[f"{folder}/meminfo"] = (
            f"Node {node} MemTotal:       1048576 kB\nNode {node} MemFree: 1 kB"
        )
        files[f"{folder}/distance"] = " ".join(
            "10" if other == node else "12" for other in range(8)
        )
    nodes = numa_nodes(machine(tmp_path, files))
    assert [node["node"] for node in nodes] == list(range(8))
    assert nodes[1] == {
        "node": 1,
        "cpus": "16-31",
        "memory_bytes": 1 << 30,
        "distances": [12, 10, 12, 12, 12, 12, 12, 12],
    }


def test_a_node_without_cpus_is_memory_of_its_own(tmp_path: Path) -> None:
    files = {f"{NODE}/node1/cpulist": "", f"{NODE}/node1/meminfo": "Node 1 MemTotal: 4 kB"}
    assert numa_nodes(machine(tmp_path, files)) == [{"node": 1, "cpus": "", "memory_bytes": 4096}]


def test_garbage_in_a_node_is_left_out(tmp_path: Path) -> None:
    files = {
        f"{NODE}/node0/cpulist": "\0\x01",
        f"{NODE}/node0/distance": "10 0x1f z",
        f"{NODE}/node0/meminfo": "Node 0 MemTotal: lots",
        f"{NODE}/nodes": "",
        f"{NODE}/node9999999/cpulist": "0",
    }
    assert numa_nodes(machine(tmp_path, files)) == [{"node": 0, "cpus": ""}]


def test_memory_of_a_gpu_is_a_node_and_no_part_of_the_machines(tmp_path: Path) -> None:
    """Grace Hopper: the driver says which node it is, and PCI which CPUs are near."""
    files = node_files(("0-71", 480), ("", 96), distances="10 80/80 10")
    files |= {
        "proc/meminfo": f"MemTotal: {576 * GIB} kB\nMemFree: {288 * GIB} kB\nMemAvailable: {300 * GIB} kB",
        "proc/driver/nvidia/gpus/0009:01:00.0/numa_status": "Node:\t\t1\nStatus:\t\tonline",
        "sys/bus/pci/devices/0009:01:00.0/local_cpulist": "0-71",
    }
    host = machine(tmp_path, files)
    facts = memory.find(host).facts

    assert [each.get("kind") for each in numa_nodes(host)] == [None, "gpu"]
    assert numa_nodes(host)[1]["near_cpus"] == "0-71"
    assert gpu_memory(host, "MemTotal") == 96 << 30
    assert facts["total_bytes"] == 480 << 30
    assert facts["free_bytes"] == 240 << 30
    assert facts["available_bytes"] == 252 << 30
    assert facts["gpu_bytes"] == 96 << 30


def test_a_gpu_without_a_node_leaves_the_memory_as_it_is(tmp_path: Path) -> None:
    files = node_files(("0-3", 64)) | {
        "proc/meminfo": f"MemTotal: {64 * GIB} kB",
        "proc/driver/nvidia/gpus/0000:01:00.0/numa_status": "Node:\t\t-1",
    }
    facts = memory.find(machine(tmp_path, files)).facts

    assert facts["total_bytes"] == 64 << 30
    assert "gpu_bytes" not in facts


def test_hbm_beside_ddr_is_known_by_its_bandwidth(tmp_path: Path) -> None:
    """Xeon Max in flat mode: the firmware's table (HMAT) has bandwidths and initiators."""
    files = node_files(("0-55", 256), ("56-111", 256), ("", 64), ("", 64))
    for number, (rate, near) in enumerate([(90000, 0), (90000, 1), (240000, 0), (240000, 1)]):
        folder = f"{NODE}/node{number}/access0/initiators"
        files |= {f"{folder}/read_bandwidth": str(rate), f"{folder}/node{near}/uevent": ""}
    nodes = numa_nodes(machine(tmp_path, files))

    assert [each.get("kind") for each in nodes] == [None, None, "hbm", "hbm"]
    assert [each.get("near_cpus") for each in nodes] == [None, None, "0-55", "56-111"]
    assert nodes[2]["read_bandwidth_bytes_per_second"] == 240 * 10**9


def test_cxl_and_persistent_memory_are_known_by_their_devices(tmp_path: Path) -> None:
    files = node_files(
        ("0-7", 64),
        ("", 128),
        ("", 256),
        ("", 32),
        distances="10 14 17 17/14 10 28 28/17 28 10 28/17 28 28 10",
    )
    devices = {
        "dax0.0": ("ACPI0017:00/root0/decoder0.0/region0/dax_region0", 1),
        "dax1.0": ("ACPI0012:00/ndbus0/region1/dax1.0", 2),
        "dax2.0": ("hmem.0", 3),
    }
    links = {}
    for name, (parent, node) in devices.items():
        files[f"sys/devices/platform/{parent}/{name}/target_node"] = str(node)
        links[f"{DAX}/{name}"] = f"../../../devices/platform/{parent}/{name}"
    for tier, listed in ((4, "0"), (10, "1-3")):
        files[f"sys/devices/virtual/memory_tiering/memory_tier{tier}/nodelist"] = listed
    nodes = numa_nodes(machine(tmp_path, files, links))

    assert [each.get("kind") for each in nodes] == [None, "cxl", "persistent", "special-purpose"]
    assert [each["tier"] for each in nodes] == [4, 10, 10, 10]
    assert [each.get("near_cpus") for each in nodes] == [None, "0-7", "0-7", "0-7"]


def test_the_nearest_cpus_are_those_of_the_smallest_distance(tmp_path: Path) -> None:
    files = node_files(("0-3", 8), ("4-7", 8), ("", 8), distances="10 21 28/21 10 17/28 17 10")

    assert numa_nodes(machine(tmp_path, files))[2]["near_cpus"] == "4-7"


def test_a_cache_before_the_memory_has_its_size(tmp_path: Path) -> None:
    """Xeon Max in cache mode: HBM caches the DDR of its node, which is the only one."""
    files = node_files(("0-55", 512)) | {
        f"{NODE}/node0/memory_side_cache/index1/size": str(64 << 30)
    }

    assert numa_nodes(machine(tmp_path, files))[0]["memory_side_cache_bytes"] == 64 << 30


def test_a_mask_names_a_nodes_cpus_where_there_is_no_list(tmp_path: Path) -> None:
    files = {f"{NODE}/node0/cpumap": "00000001,0000000f", f"{NODE}/node0/meminfo": "Node 0 x: 1"}
    assert numa_nodes(machine(tmp_path, files))[0]["cpus"] == "0-3,32"
