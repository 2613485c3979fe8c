"""Sockets, cores, kinds and nodes, from /sys and from /proc/cpuinfo alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.host.cpu.topology import kind_groups, online_cpus, topology_facts
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from pathlib import Path

CPU = "sys/devices/system/cpu"


def machine(root: Path, files: dict[str, str]) -> Host:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return Host(str(root))


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


def test_two_sockets_with_two_threads_a_core_are_counted(tmp_path: Path) -> None:
    host = machine(tmp_path, two_sockets())
    facts = topology_facts(host, [], online_cpus(host, []), [])
    assert facts == {
        "threads": 16,
        "online_cpus": "0-15",
        "cores": 8,
        "threads_per_core": 2,
        "sockets": 2,
        "offline_cpus": "",
    }


def test_cpus_that_are_off_are_told_and_not_counted(tmp_path: Path) -> None:
    host = machine(tmp_path, two_sockets() | {f"{CPU}/online": "0-7,9-15"})
    facts = topology_facts(host, [], online_cpus(host, []), [])
    assert facts["offline_cpus"] == "8"
    assert (facts["threads"], facts["cores"], facts["threads_per_core"]) == (15, 8, 2)


def test_cpus_that_could_be_plugged_in_are_not_off(tmp_path: Path) -> None:
    files = two_sockets() | {f"{CPU}/offline": "16-127", f"{CPU}/possible": "0-127"}
    host = machine(tmp_path, files)
    assert topology_facts(host, [], online_cpus(host, []), [])["offline_cpus"] == ""


def test_proc_alone_tells_cores_and_sockets(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    blocks = [
        {"processor": str(cpu), "physical id": str(cpu // 4), "core id": str(cpu % 2)}
        for cpu in range(8)
    ]
    host = machine(tmp_path, {})
    facts = topology_facts(host, blocks, online_cpus(host, blocks), [])
    assert (facts["sockets"], facts["cores"], facts["threads"]) == (2, 4, 8)


def test_proc_without_ids_leaves_cores_and_sockets_out(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    blocks = [{"processor": "0"}, {"processor": "1"}]
    host = machine(tmp_path, {})
    facts = topology_facts(host, blocks, online_cpus(host, blocks), [])
    assert facts == {"threads": 2, "online_cpus": "0-1"}


def test_proc_that_tells_of_other_cpus_than_sys_is_not_believed(tmp_path: Path) -> None:
    blocks = [{"processor": "0", "physical id": "0", "core id": "0"}]
    host = machine(tmp_path, {f"{CPU}/online": "0-7"})
    facts = topology_facts(host, blocks, online_cpus(host, blocks), [])
    assert facts == {"threads": 8, "online_cpus": "0-7"}


def test_a_device_tree_without_sockets_claims_none(tmp_path: Path) -> None:
    files = two_sockets() | {f"{CPU}/cpu0/topology/physical_package_id": "-1"}
    host = machine(tmp_path, files)
    assert "sockets" not in topology_facts(host, [], online_cpus(host, []), [])


def test_siblings_that_make_no_sense_leave_cores_out(tmp_path: Path) -> None:
    files = two_sockets() | {f"{CPU}/cpu3/topology/core_cpus_list": "garbage"}
    host = machine(tmp_path, files)
    assert "cores" not in topology_facts(host, [], online_cpus(host, []), [])


def test_intel_hybrid_kinds_have_their_cpus_and_cores(tmp_path: Path) -> None:
    files = {
        f"{CPU}/online": "0-5",
        "sys/devices/cpu_core/cpus": "0-3",
        "sys/devices/cpu_atom/cpus": "4-5",
    }
    for cpu, siblings in enumerate(("0-1", "0-1", "2-3", "2-3", "4", "5")):
        files[f"{CPU}/cpu{cpu}/topology/core_cpus_list"] = siblings
    host = machine(tmp_path, files)
    cpus = online_cpus(host, [])
    facts = topology_facts(host, [], cpus, kind_groups(host, cpus, []))
    assert facts["kinds"] == [
        {"name": "performance", "threads": 4, "cpus": "0-3", "cores": 2},
        {"name": "efficiency", "threads": 2, "cpus": "4-5", "cores": 2},
    ]


def test_arm_kinds_come_strongest_first(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-2"}
    for cpu, capacity in enumerate(("400", "400", "1024")):
        files[f"{CPU}/cpu{cpu}/cpu_capacity"] = capacity
    blocks = [
        {"processor": str(cpu), "cpu implementer": "0x41", "cpu part": part}
        for cpu, part in enumerate(("0xd46", "0xd46", "0xd48"))
    ]
    host = machine(tmp_path, files)
    assert kind_groups(host, (0, 1, 2), blocks) == [
        ("Cortex-X2", (2,), {"capacity": 1024}),
        ("Cortex-A510", (0, 1), {"capacity": 400}),
    ]


def test_equal_cores_are_of_no_kind(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    blocks = [
        {"processor": str(cpu), "cpu implementer": "0x41", "cpu part": "0xd40"} for cpu in range(4)
    ]
    assert kind_groups(machine(tmp_path, {}), (0, 1, 2, 3), blocks) == []
