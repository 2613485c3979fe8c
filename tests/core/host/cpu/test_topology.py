"""Sockets, cores, kinds and nodes, from /sys and from /proc/cpuinfo alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.host.cpu.topology import Limits, kind_groups, online_cpus, topology_facts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Machine

    from mlbackends.host.host import Host

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def two_sockets(threads: int = 2, cores: int = 4) -> dict[str, str]:
    """Each socket has `cores` cores; a core's second thread is numbered after all first ones."""
    total = 2 * cores * threads
    files = {f"{CPU}/online": f"0-{total - 1}", f"{CPU}/present": f"0-{total - 1}"}
    for cpu in range(total):
        core = cpu % (2 * cores)
        siblings = ",".join(str(core + 2 * cores * thread) for thread in range(threads))
        socket = core // cores
        package = ",".join(
            f"{socket * cores + 2 * cores * t}-{socket * cores + 2 * cores * t + cores - 1}"
            for t in range(threads)
        )
        files[f"{CPU}/cpu{cpu}/topology/core_cpus_list"] = siblings
        files[f"{CPU}/cpu{cpu}/topology/package_cpus_list"] = package
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = str(socket)
    return files


def test_old_kernels_tell_for_each_cpu_whether_it_is_on(machine: Machine) -> None:
    files = {f"{CPU}/cpu{cpu}/topology/core_id": str(cpu) for cpu in range(4)}
    host = machine(files | {f"{CPU}/cpu2/online": "0", f"{CPU}/cpu3/online": "1"})
    assert online_cpus(host, []) == (0, 1, 3)


def test_cpus_that_could_be_plugged_in_are_not_off(machine: Machine) -> None:
    files = two_sockets() | {f"{CPU}/offline": "16-127", f"{CPU}/possible": "0-127"}
    host = machine(files)
    assert topology_facts(host, "x86_64", [], online_cpus(host, []), [])["offline_cpus"] == ""


def test_proc_alone_tells_cores_and_sockets(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    blocks = [
        {"processor": str(cpu), "physical id": str(cpu // 4), "core id": str(cpu % 2)} for cpu in range(8)
    ]
    host = machine({})
    facts = topology_facts(host, "x86_64", blocks, online_cpus(host, blocks), [])
    assert (facts["sockets"], facts["cores"], facts["threads"]) == (2, 4, 8)


def test_proc_without_ids_leaves_cores_and_sockets_out(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    blocks = [{"processor": "0"}, {"processor": "1"}]
    host = machine({})
    facts = topology_facts(host, "x86_64", blocks, online_cpus(host, blocks), [])
    assert facts == {"threads": 2, "online_cpus": "0-1"}


def test_proc_that_tells_of_other_cpus_than_sys_is_not_believed(machine: Machine) -> None:
    blocks = [{"processor": "0", "physical id": "0", "core id": "0"}]
    host = machine({f"{CPU}/online": "0-7"})
    facts = topology_facts(host, "x86_64", blocks, online_cpus(host, blocks), [])
    assert facts == {"threads": 8, "online_cpus": "0-7"}


def clusters(siblings: tuple[str, ...], numbers: tuple[int, ...]) -> dict[str, str]:
    """Return a chip whose kernel takes clusters for packages, and knows of no dies."""
    files = {f"{CPU}/online": f"0-{len(numbers) - 1}"}
    for cpu, (listed, number) in enumerate(zip(siblings, numbers, strict=True)):
        folder = f"{CPU}/cpu{cpu}/topology"
        files[f"{folder}/physical_package_id"] = str(number)
        files[f"{folder}/core_siblings_list"] = listed
        files[f"{folder}/thread_siblings_list"] = str(cpu)
        files[f"{folder}/die_cpus_list"] = str(cpu)
        files[f"{folder}/die_id"] = "-1"
    return files


TWO_CLUSTERS = clusters(("0-1", "0-1", "2-3", "2-3"), (0, 0, 1, 1))
ONE_NODE = {f"{NODE}/node0/cpulist": "0-3"}
TWO_NODES = {f"{NODE}/node0/cpulist": "0-1", f"{NODE}/node1/cpulist": "2-3"}
TREE = {"proc/device-tree/compatible": "vendor,board"}


@pytest.mark.parametrize(
    ("architecture", "files", "sockets"),
    [
        ("aarch64", TWO_CLUSTERS | ONE_NODE | TREE, 1),
        ("riscv64", TWO_CLUSTERS | ONE_NODE | TREE, 1),
        ("arm", TWO_CLUSTERS, 1),  # a kernel without NUMA
        ("aarch64", clusters(("0", "1", "2", "3"), (0, 0, 0, 0)) | ONE_NODE, 1),
        ("aarch64", clusters(("0", "1", "2", "3"), (-1, -1, -1, -1)) | ONE_NODE | TREE, 1),
        ("aarch64", TWO_CLUSTERS | ONE_NODE | {"sys/firmware/acpi/pm_profile": "4"}, 2),
        ("aarch64", TWO_CLUSTERS | TWO_NODES, 2),
        ("aarch64", TWO_CLUSTERS | ONE_NODE, None),  # a container hides what the firmware is
        ("x86_64", TWO_CLUSTERS | ONE_NODE, 2),
        (
            "aarch64",
            TWO_CLUSTERS
            | {f"proc/device-tree/cpus/cpu-map/{name}/name": "" for name in ("socket0", "socket1")},
            2,
        ),
        ("aarch64", TWO_CLUSTERS | {"proc/device-tree/cpus/cpu-map/cluster0/name": ""}, 1),
    ],
)
def test_clusters_are_no_sockets(
    machine: Machine, architecture: str, files: dict[str, str], sockets: int | None
) -> None:
    facts = topology_facts(machine(files), architecture, [], (0, 1, 2, 3), [])
    assert facts.get("sockets") == sockets
    assert facts["cores"] == 4
    assert "dies" not in facts


def test_dies_without_a_number_are_not_known(machine: Machine) -> None:
    files = two_sockets()
    for cpu in range(16):
        files[f"{CPU}/cpu{cpu}/topology/die_cpus_list"] = str(cpu)
    host = machine(files)
    assert "dies" not in topology_facts(host, "x86_64", [], online_cpus(host, []), [])


def test_levels_that_contradict_each_other_are_left_out(machine: Machine) -> None:
    files = two_sockets(threads=1)
    for cpu in range(8):  # a die of CPUs from both sockets
        files[f"{CPU}/cpu{cpu}/topology/die_cpus_list"] = "0,4" if cpu in (0, 4) else "1-3,5-7"
    host = machine(files)
    assert "dies" not in topology_facts(host, "x86_64", [], online_cpus(host, []), [])
    files = two_sockets(threads=1)
    for cpu in range(8):  # a core in both sockets
        files[f"{CPU}/cpu{cpu}/topology/core_cpus_list"] = f"{cpu % 4},{cpu % 4 + 4}"
    host = machine(files)
    facts = topology_facts(host, "x86_64", [], online_cpus(host, []), [])
    assert facts["threads"] == 8
    assert not {"cores", "sockets"} & facts.keys()


def test_cores_that_do_not_divide_say_why(machine: Machine) -> None:
    host = machine(two_sockets() | {f"{CPU}/online": "0-7,9-15"})
    facts = topology_facts(host, "x86_64", [], online_cpus(host, []), [])
    assert facts["uneven"] == "CPU 8 is off"
    uneven = machine(clusters(("0-1", "0-1", "2"), (-1, -1, -1)))
    facts = topology_facts(uneven, "s390x", [], (0, 1, 2), [])
    assert facts["uneven"] == "the kernel lists sockets of several sizes"


def test_siblings_that_make_no_sense_leave_cores_out(machine: Machine) -> None:
    files = two_sockets() | {f"{CPU}/cpu3/topology/core_cpus_list": "garbage"}
    host = machine(files)
    assert "cores" not in topology_facts(host, "x86_64", [], online_cpus(host, []), [])


def kinds_of(host: Host, blocks: list[dict[str, str]], cpus: int) -> list[tuple[object, ...]]:
    kinds = kind_groups(host, tuple(range(cpus)), blocks, {})
    return [(name, group, more.get("part"), more.get("capacity")) for name, group, more in kinds]


def capacities(*numbers: int) -> dict[str, str]:
    return {f"{CPU}/cpu{cpu}/cpu_capacity": str(number) for cpu, number in enumerate(numbers)}


def test_capacity_tells_kinds_apart_where_no_part_is_known(machine: Machine) -> None:
    assert kinds_of(machine(capacities(446, 1024)), [], 2) == [
        ("capacity-1024", (1,), None, 1024),
        ("capacity-446", (0,), None, 446),
    ]


def test_frequencies_tell_kinds_apart_where_the_part_of_one_core_is_known(machine: Machine) -> None:
    """Old kernels of phones state the part of the core that wrote the file, and no capacity."""
    blocks = [{"processor": str(cpu)} for cpu in range(4)]
    blocks[3] |= {"cpu implementer": "0x41", "cpu part": "0xd07"}
    limits: Limits = {
        cpu: (hertz, hertz) for cpu, hertz in enumerate(2 * [1_500_000_000] + 2 * [2_100_000_000])
    }
    for part in ("0xd07", "0xd03 & 0xd07"):  # Kirin 920 lists both
        blocks[3]["cpu part"] = part
        kinds = kind_groups(machine({}), (0, 1, 2, 3), blocks, limits)
        assert [(name, group) for name, group, _ in kinds] == [("2.1-GHz", (2, 3)), ("1.5-GHz", (0, 1))]
    assert kind_groups(machine({}), (0, 1, 2, 3), [], limits) == []


def test_the_register_of_each_core_tells_what_proc_does_not(machine: Machine) -> None:
    register = "regs/identification/midr_el1"
    files = {
        f"{CPU}/cpu0/{register}": "0x00000000410fd034",
        f"{CPU}/cpu1/{register}": "0x00000000410fd082",
    }
    assert kinds_of(machine(files), [], 2) == [
        ("Cortex-A72", (1,), "0xd08", None),
        ("Cortex-A53", (0,), "0xd03", None),
    ]
