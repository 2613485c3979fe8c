"""The cores that a launch may use, of recorded machines and of machines made here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlbackends.host.host import Host
from mlbackends.launch.cores import Core, Topology, read_topology

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
CPU = "root/sys/devices/system/cpu"
NODE = "root/sys/devices/system/node"


def machine(root: Path, files: dict[str, str], affinity: list[int] | None = None) -> Host:
    told = {"platform": "linux", **({"affinity": affinity} if affinity is not None else {})}
    (root / "host.json").write_text(json.dumps(told))
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((text + "\n").encode())
    return Host(str(root))


def physical(topology: Topology, node: int | None = None) -> tuple[int, ...]:
    return tuple(core.cpus[0] for core in topology.cores if node in (None, core.node))


def logical(topology: Topology) -> tuple[int, ...]:
    return tuple(cpu for core in topology.cores for cpu in core.cpus)


def test_twelve_nodes_are_twelve(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-11", f"{CPU}/cpu0/topology/core_cpus_list": "0"}
    files |= {f"{NODE}/node{cpu}/cpulist": str(cpu) for cpu in range(12)}
    topology = read_topology(machine(tmp_path, files))
    assert topology.nodes == tuple(range(12))
    assert physical(topology, 11) == (11,)


def test_nodes_may_be_uneven(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-9", f"{NODE}/node0/cpulist": "0-5", f"{NODE}/node1/cpulist": "6-9"}
    topology = read_topology(machine(tmp_path, files))
    assert [len(physical(topology, node)) for node in topology.nodes] == [6, 4]
    assert len(topology.cores) == 10


def test_nodes_may_be_numbered_with_gaps(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-3", f"{NODE}/node0/cpulist": "0-1", f"{NODE}/node8/cpulist": "2-3"}
    topology = read_topology(machine(tmp_path, files))
    assert topology.nodes == (0, 8)


def test_nodes_that_alternate_are_told_node_by_node(tmp_path: Path) -> None:
    files = {
        f"{CPU}/online": "0-5",
        f"{NODE}/node0/cpulist": "0,2,4",
        f"{NODE}/node1/cpulist": "1,3,5",
    }
    assert physical(read_topology(machine(tmp_path, files))) == (0, 2, 4, 1, 3, 5)


def test_a_cpu_that_is_off_leaves_its_core_the_other_thread() -> None:
    topology = read_topology(Host(str(HOSTS / "sapphire-rapids-workstation.machine")))
    assert 23 not in logical(topology)
    assert Core(0, (0, 12)) in topology.cores


def test_the_lowest_cpu_of_a_core_stands_for_it_and_not_the_cores_number() -> None:
    topology = read_topology(Host(str(HOSTS / "alder-lake-hybrid.machine")))
    assert physical(topology) == (0, 2, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19)


def test_a_containers_mask_leaves_other_cpus_out() -> None:
    topology = read_topology(Host(str(HOSTS / "docker-cgroup1.machine")))
    assert logical(topology) == tuple(range(8))
    assert len(topology.online) == 16


def test_a_core_of_which_one_thread_is_allowed_has_that_one() -> None:
    topology = read_topology(Host(str(HOSTS / "nested-cgroup2.machine")))
    assert physical(topology) == (4, 5, 6, 7, 8, 9, 10, 11)


def test_a_node_of_which_nothing_is_allowed_is_none() -> None:
    topology = read_topology(Host(str(HOSTS / "slurm-job.machine")))
    assert topology.nodes == (0,)
    assert len(topology.cores) == 14


def test_a_node_without_memory_is_none_to_bind_memory_to() -> None:
    topology = read_topology(Host(str(HOSTS / "epyc-eight-nodes.machine")))
    assert topology.nodes == tuple(range(8))
    assert 5 not in topology.memory_nodes
    assert len(topology.memory_nodes) == 7


def test_memory_that_the_cpuset_leaves_out_is_none_to_bind_to(tmp_path: Path) -> None:
    files = {
        f"{CPU}/online": "0-3",
        f"{NODE}/node0/cpulist": "0-1",
        f"{NODE}/node1/cpulist": "2-3",
        "root/proc/self/status": "Name:\tx\nMems_allowed_list:\t1",
    }
    assert read_topology(machine(tmp_path, files)).memory_nodes == (1,)


def test_without_numa_all_lies_on_node_0(tmp_path: Path) -> None:
    topology = read_topology(machine(tmp_path, {f"{CPU}/online": "0-1"}))
    assert topology.nodes == (0,)
    assert topology.memory_nodes == (0,)


def test_a_mask_alone_is_enough(tmp_path: Path) -> None:
    assert logical(read_topology(machine(tmp_path, {}, [3, 5]))) == (3, 5)


def test_a_machine_that_tells_of_no_cpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="names a CPU"):
        read_topology(machine(tmp_path, {}))


def test_another_system_is_refused_by_name() -> None:
    with pytest.raises(RuntimeError, match=r"Darwin is not supported!!!"):
        read_topology(Host(str(HOSTS / "macbook-m3.machine")))


LINUX = sorted(path.stem for path in HOSTS.glob("*.machine") if Host(str(path)).platform == "linux")


@pytest.mark.parametrize("name", LINUX)
def test_on_each_recorded_machine_no_cpu_is_told_twice_and_every_node_has_one(name: str) -> None:
    host = Host(str(HOSTS / f"{name}.machine"))
    topology = read_topology(host)
    cpus = logical(topology)
    assert len(cpus) == len(set(cpus)) > 0
    assert set(cpus) <= set(host.affinity() or cpus)
    assert all(physical(topology, node) for node in topology.nodes)
