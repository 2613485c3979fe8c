"""What nodes of clusters differ in: the probes network, mounts, clock and slurm, and versions of packages.

`RECORDED` has values of real machines, from the test data of prometheus/procfs (testdata/fixtures.ttar at
3c943fdb, Apache 2.0): a ConnectX-3, an Omni-Path adapter and a laptop's Ethernet. All else is composed.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.host.recording.anonymise import Anonymiser
from mlbackends.host.recording.recorder import Recording
from mlbackends.host.redaction import Names
from mlbackends.libraries.package_versions import package_versions, rpm_versions
from mlbackends.model.records import Presence
from mlbackends_probes import clock, cpu, mounts, network, nvidia, slurm
from mlbackends_probes import host as host_probe

if TYPE_CHECKING:
    from tests.conftest import Machine

RDMA, NET = "sys/class/infiniband", "sys/class/net"
ALL = {"clock": clock, "mounts": mounts, "network": network, "slurm": slurm}


def port(device: str, rate: str, *, number: int = 1, layer: str = "InfiniBand") -> dict[str, str | bytes]:
    folder = f"{RDMA}/{device}/ports/{number}"
    files = {"rate": rate, "state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": layer}
    return {f"{folder}/{name}": f"{text}\n" for name, text in files.items()}


RECORDED: dict[str, str | bytes] = {
    **port("hfi1_0", "100 Gb/sec (4X EDR)"),
    f"{RDMA}/hfi1_0/fw_ver": "1.27.0\n",
    **port("mlx4_0", "40 Gb/sec (4X QDR)"),
    **port("mlx4_0", "40 Gb/sec (4X QDR)", number=2),
    f"{RDMA}/mlx4_0/board_id": "SM_1141000001000\n",
    f"{RDMA}/mlx4_0/fw_ver": "2.31.5050\n",
    f"{RDMA}/mlx4_0/hca_type": "MT4099\n",
    f"{RDMA}/mlx4_0/ports/1/counters/symbol_error": "0\n",
    f"{RDMA}/mlx4_0/ports/1/counters/port_xmit_wait": "3599\n",
    f"{RDMA}/mlx4_0/ports/2/hw_counters/local_ack_timeout_err": "131\n",
    f"{NET}/eth0/device": "->../../../devices/pci0000:00/0000:00:1f.6",
    "sys/devices/pci0000:00/0000:00:1f.6/vendor": "0x8086\n",
    **{
        f"{NET}/eth0/{name}": f"{text}\n"
        for name, text in {
            "operstate": "up", "speed": "1000", "duplex": "full", "mtu": "1500", "carrier_down_count": "1",
        }.items()
    },
    f"{NET}/lo/mtu": "65536\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
}  # fmt: skip


def found(probe: Any, host: Host) -> Any:
    return probe.find(host).facts


@pytest.mark.parametrize("name", ALL)
def test_only_declared_facts_are_reported_and_nothing_of_an_empty_machine(
    name: str, machine: Machine
) -> None:
    assert set(found(ALL[name], Host())) <= set(facts_of(name))
    finding = ALL[name].find(machine({}))
    assert finding.presence is Presence.ABSENT
    assert [reason.code for reason in finding.reasons] == ["not-found"]


def test_cards_and_ports_that_were_recorded(machine: Machine) -> None:
    facts = found(network, machine(RECORDED))

    assert facts["interfaces"] == [
        {"name": "eth0", "state": "up", "bits_per_second": 1_000_000_000, "duplex": "full", "mtu": 1500}
    ]
    assert facts["interface_errors"] == [{"name": "eth0", "carrier_down_count": 1}]
    omni_path, first, second = facts["rdma_ports"]
    assert (omni_path["bits_per_second"], omni_path["firmware"]) == (100_000_000_000, "1.27.0")
    assert first == {
        "name": "mlx4_0/1",
        "link_layer": "InfiniBand",
        "state": "ACTIVE",
        "physical_state": "LinkUp",
        "bits_per_second": 40_000_000_000,
        "lanes": 4,
        "card": "MT4099",
        "board": "SM_1141000001000",
        "firmware": "2.31.5050",
    }
    assert second["name"] == "mlx4_0/2"
    assert facts["rdma_errors"] == [{"name": "mlx4_0/2", "local_ack_timeout_err": 131}]
    assert (facts["active_links"], facts["active_ports"]) == (1, 3)
    assert found(clock, machine(RECORDED)) == {"source": "tsc"}


def test_a_card_has_the_firmware_of_its_rdma_device_and_its_driver(machine: Machine) -> None:
    device = "sys/devices/pci0000:20/0000:20:01.1/0000:21:00.0"
    files: dict[str, str | bytes] = {
        f"{device}/uevent": "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:101B\n",
        f"{device}/current_link_width": "8\n",
        f"{device}/max_link_width": "16\n",
        f"{device}/infiniband/mlx5_0/fw_ver": "20.31.1014\n",
        f"{device}/driver": "->../../../../bus/pci/drivers/mlx5_core",
        "sys/bus/pci/drivers/mlx5_core/module": "->../../../../module/mlx5_core",
        "sys/bus/pci/devices/0000:21:00.0": f"->../../../{device.removeprefix('sys/')}",
        "sys/module/mlx5_core/version": "24.10-1.1.4\n",
        f"{NET}/ib0/device": f"->../../../{device.removeprefix('sys/')}",
        f"{NET}/ib0/speed": "4294967295\n",
    }
    (card,) = found(network, machine(files))["interfaces"]
    assert card == {
        "name": "ib0",
        "driver": "mlx5_core",
        "driver_version": "24.10-1.1.4",
        "firmware": "20.31.1014",
        "pci_id": "15b3:101b",
        "pcie_lanes": 8,
        "max_pcie_lanes": 16,
    }


@settings(max_examples=25)
@given(rate=st.text(max_size=30), state=st.text(max_size=20), speed=st.text(max_size=20), counter=st.text())
def test_nonsense_of_a_driver_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, rate: str, state: str, speed: str, counter: str
) -> None:
    root = tmp_path_factory.mktemp("host")
    folder = root / RDMA / "x/ports/1"
    (folder / "counters").mkdir(parents=True)
    (root / NET / "e/device").mkdir(parents=True)
    for at, text in (
        (folder / "rate", rate),
        (folder / "state", state),
        (folder / "counters/symbol_error", counter),
        (root / NET / "e/speed", speed),
    ):
        at.write_bytes(text.encode("utf-8", "surrogatepass"))
    facts = found(network, Host(str(root)))
    rows = [*facts.get("interfaces", ()), *facts.get("rdma_ports", ())]
    assert {row["name"] for row in rows} <= {"e", "x/1"}
    json.dumps(facts)


# ---- mounts -----------------------------------------------------------------------------------------------

MOUNTINFO = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
23 22 0:22 / /proc rw - proc proc rw
24 22 0:23 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=65536k
30 22 0:40 / /home rw,noatime - nfs4 filer1.corp:/export/home rw,vers=4.2,hard,clientaddr=10.9.0.7
31 22 9:0 / /scratch\040fast rw - ext4 /dev/md0 ro,errors=remount-ro
32 22 0:41 / /share rw - cifs //ann:hunter2@nas/share rw,vers=3.1.1,username=ann,password=hunter2,domain=CORP
33 22 0:42 / /mnt/ann rw - fuse.sshfs ann@login.corp:/data rw,user_id=1000,group_id=1000,allow_other
34 22 0:43 / /lustre rw - lustre 10.9.1.1@o2ib:10.9.1.2@o2ib:/work rw,flock
35 22 0:44 / /ceph rw - ceph 10.9.2.1:6789,10.9.2.2:6789:/ rw,name=admin,secret=AQBSdFhcAAAAABAA,acl
36 22 0:45 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw
37 22 8:3 / /run/media/ann/STICK rw - vfat /dev/sdc1 rw
38 22 0:46 / /dav rw - davfs https://bob:hunter2@dav.corp/d?sig=hunter2 rw
"""


def test_options_are_kept_and_names_and_keys_are_not(machine: Machine) -> None:
    facts = found(mounts, machine({"proc/self/mountinfo": MOUNTINFO}))

    rows = {row["at"]: row for row in facts["mounted"]}
    assert set(rows) == {
        "/", "/dev/shm", "/home", "/scratch fast", "/share", "/lustre", "/ceph", "/dav",
    }  # fmt: skip
    assert rows["/home"] == {
        "at": "/home",
        "type": "nfs4",
        "is_served": True,
        "options": ["hard", "noatime", "rw", "vers=4.2"],
    }
    assert "read_only_after_error" not in rows["/"]
    assert rows["/scratch fast"]["read_only_after_error"]
    assert (facts["mount_count"], facts["network_count"]) == (8, 5)
    text = json.dumps(facts)
    for secret in (
        "hunter2",
        "AQBS",
        "username",
        "CORP",
        "bob",
        "admin",
        "clientaddr",
        "filer1",
        "nas",
        "corp",
    ):
        assert secret not in text


def test_what_autofs_mounted_is_listed_separately(machine: Machine) -> None:
    lines = (
        "30 22 0:40 / /home rw - autofs /etc/auto.home rw,fd=6\n"
        "31 30 0:41 / /home/ann rw - nfs4 filer:/home/ann rw,hard\n"
        "32 22 0:42 / /homes rw - nfs4 filer:/homes rw,hard\n"
    )
    facts = found(mounts, machine({"proc/self/mountinfo": lines}))
    assert [row["at"] for row in facts["mounted"]] == ["/homes"]
    assert [row["at"] for row in facts["automounted"]] == ["/home/ann"]


def test_a_recording_has_the_mounts_and_names_no_server(machine: Machine, tmp_path: Path) -> None:
    recording = Recording(machine({"proc/self/mountinfo": MOUNTINFO}))
    live = found(mounts, recording)
    recording.write(str(tmp_path / "copy"), Anonymiser(Names("node1", "ann", "/home/ann")))
    copy = found(mounts, Host(str(tmp_path / "copy")))
    assert copy == live
    text = "".join(path.read_text() for path in (tmp_path / "copy").rglob("*") if path.is_file())
    for name in ("filer1", "corp", "nas", "hunter2", "AQBS", "10.9"):
        assert name not in text


def test_of_thousands_of_mounts_those_of_servers_are_listed_first(machine: Machine) -> None:
    disks = "".join(f"{n} 1 8:1 / /pods/{n:05} rw - ext4 /dev/sda1 rw\n" for n in range(5000))
    served = "".join(f"{n} 1 0:9 / /z/{n} rw - nfs s:/{n} rw,{'x' * 500}\n" for n in range(40))
    facts = found(mounts, machine({"proc/self/mountinfo": disks + served}))
    assert len(facts["mounted"]) == 256
    assert facts["network_count"] == 40 == sum(row["type"] == "nfs" for row in facts["mounted"])
    assert facts["mount_count"] == 5040


@pytest.mark.skipif(not shutil.which("findmnt"), reason="needs findmnt")
def test_mounts_are_those_that_findmnt_prints() -> None:
    command = ["findmnt", "--json", "--list", "--output", "TARGET,FSTYPE,OPTIONS"]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["filesystems"]
    by_place = {row["target"]: row for row in printed}
    for row in found(mounts, Host()).get("mounted", ()):
        assert row["type"] == by_place[row["at"]]["fstype"]
        assert set(row["options"]) <= set(by_place[row["at"]]["options"].split(","))


# ---- the clock --------------------------------------------------------------------------------------------


def test_the_service_that_sets_the_clock(machine: Machine) -> None:
    host = machine({"sys/fs/cgroup/system.slice/chrony.service/cgroup.procs": "1\n"})
    assert found(clock, host) == {"daemons": ["chronyd"]}


def test_the_kernel_is_asked_on_linux(machine: Machine) -> None:
    state = {"is_synchronised": True, "maximum_error_seconds": 0.5}
    assert found(clock, machine({}, system={"clock": state})) == state
    assert found(clock, machine({}, platform="darwin", system={"clock": state})) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_the_live_state_is_that_of_ntp_adjtime() -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "ntp_adjtime") or ctypes.sizeof(ctypes.c_long) != 8:
        pytest.skip("needs glibc on 64 bits")
    state = (ctypes.c_long * 64)()
    answer = libc.ntp_adjtime(state)
    facts = found(clock, Host())
    if "Seccomp:\t2" in Path("/proc/self/status").read_text():
        assert "is_synchronised" not in facts
        return
    # TIME_ERROR, or a refusal; the status is behind modes, offset, frequency and two errors.
    unsynchronised = bool(state[5] & 0x40)
    assert facts.get("is_synchronised") == (None if answer < 0 else not unsynchronised)
    assert answer == 5 or answer < 0 or not unsynchronised
    assert answer < 0 or abs(facts["maximum_error_seconds"] - state[3] / 1e6) < 0.1


# ---- firmware, drivers and power --------------------------------------------------------------------------


def test_versions_of_firmware_and_drivers(machine: Machine) -> None:
    files: dict[str, str | bytes] = {
        "sys/class/dmi/id/bios_version": "2.9.3\n",
        "sys/devices/platform/ipmi_bmc.0/firmware_revision": "5.10\n",
        "proc/modules": (
            "nvidia 1 0 - Live 0x0 (POE)\nnvidia_uvm 1 0 - Live 0x0 (POE)\nmlx5_core 1 0 - Live 0x0\n"
            "agent 1 0 - Live 0x0 (O)\nxfs 1 0 - Live 0x0\ngarbage"
        ),
        "sys/module/nvidia/version": "570.86.15\n",
        "sys/module/mlx5_core/srcversion": "A1B2C3\n",
    }
    facts = found(host_probe, machine(files))
    assert (facts["bios_version"], facts["bmc_firmware"]) == ("2.9.3", "5.10")
    assert facts["module_versions"] == {"nvidia": "570.86.15", "mlx5_core": "A1B2C3"}
    # That of CUDA is loaded when the first program uses it.
    assert facts["out_of_tree_modules"] == ["agent", "nvidia"]


def test_idle_states_and_limits_of_power(machine: Machine) -> None:
    idle, power = "sys/devices/system/cpu/cpu0/cpuidle", "sys/class/powercap/intel-rapl:0"
    files: dict[str, str | bytes] = {
        f"{idle}/state0/name": "POLL\n",
        f"{idle}/state0/latency": "0\n",
        f"{idle}/state0/disable": "0\n",
        f"{idle}/state1/name": "C6\n",
        f"{idle}/state1/latency": "133\n",
        f"{idle}/state1/disable": "1\n",
        f"{power}/name": "package-0\n",
        f"{power}/constraint_0_power_limit_uw": "350000000\n",
        f"{power}/constraint_1_power_limit_uw": "420500000\n",
        f"{power}:0/name": "dram\n",
        "sys/firmware/acpi/platform_profile": "performance\n",
        "etc/tuned/active_profile": "throughput-performance\n",
    }
    facts = found(cpu, machine(files))
    assert facts["idle_states"] == [
        {"name": "POLL", "latency_microseconds": 0},
        {"name": "C6", "latency_microseconds": 133, "is_disabled": True},
    ]
    limits = {"long_term_watts": 350, "short_term_watts": 420.5}
    assert facts["power_limits"] == [{"name": "package-0", **limits}]
    assert facts["platform_profile"] == "performance"
    assert facts["tuned_profile"] == "throughput-performance"


@pytest.mark.parametrize("folder", ["tmp/nvidia-mps", "run/mps"])
def test_the_daemon_of_mps_has_its_pipe(machine: Machine, folder: str) -> None:
    files: dict[str, str | bytes] = {
        "sys/bus/pci/devices/0000:01:00.0/uevent": "PCI_CLASS=30200\nPCI_ID=10DE:2330\n",
        f"{folder}/control": "",
    }
    assert found(nvidia, machine(files, CUDA_MPS_PIPE_DIRECTORY=f"/{folder}"))["mps_daemon"] is True
    assert found(nvidia, machine(files))["mps_daemon"] is (folder == "tmp/nvidia-mps")


# ---- packages -------------------------------------------------------------------------------------------

DPKG = """\
Package: docker.io
Status: install ok installed
Version: 20.10.24+dfsg1-1+b3

Package: runc
Status: deinstall ok config-files
Version: 1.1.5

Package: dockerxio
Status: install ok installed
Version: 9
"""


def test_installed_packages_of_dpkg(machine: Machine) -> None:
    files: dict[str, str | bytes] = {"var/lib/dpkg/status": DPKG}
    files |= {f"var/lib/dpkg/info/{name}.list": "" for name in ("docker.io", "runc", "dockerxio")}
    assert found(host_probe, machine(files))["package_versions"] == {"docker.io": "20.10.24+dfsg1-1+b3"}


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="needs dpkg")
def test_versions_are_those_that_dpkg_prints() -> None:
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    rows = [line.split() for line in printed]
    installed = {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "ii"}
    ours = package_versions(Host())
    assert ours.items() <= installed.items()
    assert ("systemd" in ours) is ("systemd" in installed)


def rpm_database(path: Path, *headers: tuple[str, bytes]) -> str:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB)")
        database.execute("CREATE TABLE Name (key TEXT, hnum INTEGER, idx INTEGER)")
        for number, (name, header) in enumerate(headers):
            database.execute("INSERT INTO Packages VALUES (?, ?)", (number, header))
            database.execute("INSERT INTO Name VALUES (?, ?, 0)", (name, number))
    database.close()
    return str(path)


def rpm_header(version: bytes, release: bytes) -> bytes:
    data = version + b"\0" + release + b"\0"
    index = struct.pack(">8I", 1001, 6, 0, 1, 1002, 6, len(version) + 1, 1)
    return struct.pack(">II", 2, len(data)) + index + data


def test_packages_of_rpm(tmp_path: Path) -> None:
    header = rpm_header(b"4.9.4", b"6.el9")
    path = rpm_database(tmp_path / "rpmdb.sqlite", ("podman", header), ("bash", header))
    assert rpm_versions(path) == {"podman": "4.9.4-6.el9"}
    (tmp_path / "var/lib/rpm").mkdir(parents=True)
    shutil.copy(path, tmp_path / "var/lib/rpm")
    recording = Recording(Host(str(tmp_path)))
    assert package_versions(recording) == {"podman": "4.9.4-6.el9"}
    recording.write(str(tmp_path / "copy"))
    assert package_versions(Host(str(tmp_path / "copy"))) == {"podman": "4.9.4-6.el9"}


@pytest.mark.parametrize("header", [b"", rpm_header(b"1", b"2")[:20], b"\xff" * 64])
def test_a_broken_database_of_rpm_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "text").write_text("no database")
    for path in (str(tmp_path / "text"), rpm_database(tmp_path / "rpmdb.sqlite", ("podman", header))):
        with pytest.raises(ValueError, match="rpm"):
            rpm_versions(path)


def test_a_header_without_a_version_has_none(tmp_path: Path) -> None:
    path = rpm_database(tmp_path / "rpmdb.sqlite", ("podman", bytes(8)))
    assert rpm_versions(path) == {"podman": ""}
    (tmp_path / "var/lib/rpm").mkdir(parents=True)
    shutil.move(path, tmp_path / "var/lib/rpm")
    assert package_versions(Host(str(tmp_path))) == {}


@pytest.mark.skipif(not shutil.which("rpmbuild"), reason="needs rpmbuild")
def test_versions_are_those_that_rpm_prints(tmp_path: Path) -> None:
    fields = "Name: podman\nVersion: 4.9.4\nRelease: 6.el9\nSummary: x\nLicense: x\nBuildArch: noarch\n"
    (tmp_path / "x.spec").write_text(f"{fields}%description\nx\n%files\n")
    define = [
        "--define",
        f"_topdir {tmp_path}",
        "--define",
        "_db_backend sqlite",
        "--dbpath",
        f"{tmp_path}/db",
    ]
    subprocess.run(["rpmbuild", "-bb", *define[:2], tmp_path / "x.spec"], check=True, capture_output=True)
    (package,) = tmp_path.glob("RPMS/*/*.rpm")
    subprocess.run(["rpm", *define, "--initdb"], check=True, capture_output=True)
    install = ["rpm", *define, "--justdb", "--nodeps", "-i", str(package)]
    subprocess.run(install, check=True, capture_output=True)
    assert rpm_versions(f"{tmp_path}/db/rpmdb.sqlite") == {"podman": "4.9.4-6.el9"}


# ---- Slurm ------------------------------------------------------------------------------------------------


def test_the_lines_of_this_node_are_selected(machine: Machine) -> None:
    files: dict[str, str | bytes] = {
        "opt/slurm/etc/slurm.conf": (
            "AccountingStoragePass=hunter2\n"
            "include nodes.conf\n"
            "NodeName=gpu[01-16],login CPUs=64 RealMemory=500000 \\\n"
            '  Gres=gpu:a100:7(S:0-1),gpu:mig-1g.5gb:2,nvme Feature="a, b" # hunter2\n'
        ),
        "opt/slurm/etc/nodes.conf": "nodename=DEFAULT realmemory=1\nNodeName=gpu[17-20] CPUs=1\n",
        "opt/slurm/etc/gres.conf": (
            "AutoDetect=nvml\nName=gpu Type=a100 File=/dev/nvidia[0-1],/dev/nvidia7\n"
            "NodeName=gpu[17-20] Name=gpu File=/dev/x\n"
        ),
        "dev/nvidia0": "",
        "dev/nvidia7": "",
    }
    host = machine(files, SLURM_CONF="/opt/slurm/etc/slurm.conf", uname={"nodename": "gpu07.cluster"})
    facts = found(slurm, host)
    assert facts == {
        "configuration": "/opt/slurm/etc/slurm.conf",
        "cpus": 64,
        "real_memory_bytes": 500000 << 20,
        "gpus": 9,
        "gres": [
            {"name": "gpu", "type": "a100", "count": 7},
            {"name": "gpu", "type": "mig-1g.5gb", "count": 2},
            {"name": "nvme", "count": 1},
        ],
        "gres_files": [{"name": "gpu", "type": "a100", "count": 3, "missing": ["/dev/nvidia1"]}],
        "autodetect": "nvml",
    }


def test_a_recording_has_the_lines_of_this_node_and_nothing_else(machine: Machine, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "etc/slurm/slurm.conf": "SlurmctldHost=head7\nAccountingStoragePass=hunter2\nInclude nodes.conf\n",
        "etc/slurm/nodes.conf": "NodeName=big[1-9] CPUs=64 Gres=gpu:8 NodeAddr=10.9.0.7\nNodeName=small\n",
        "etc/slurm/gres.conf": "NodeName=big[1-9] Name=gpu File=/dev/nvidia[0-7]\n",
        "dev/nvidia0": "",
    }
    recording = Recording(machine(files, uname={"nodename": "big7"}))
    live = found(slurm, recording)
    assert (live["gpus"], live["cpus"], len(live["gres_files"][0]["missing"])) == (8, 64, 7)
    recording.write(str(tmp_path / "copy"), Anonymiser(Names("big7")))
    assert found(slurm, Host(str(tmp_path / "copy"))) == live
    text = "".join(path.read_text() for path in (tmp_path / "copy").rglob("*") if path.is_file())
    for name in ("hunter2", "head7", "big", "small", "10.9"):
        assert name not in text


def test_files_that_include_each_other_are_read_some_times(machine: Machine) -> None:
    text = "Include slurm.conf\nInclude slurm.conf\nNodeName=a File=/dev/x[0-999999999]\n"
    files: dict[str, str | bytes] = {"etc/slurm/slurm.conf": text, "etc/slurm/gres.conf": f"Name=gpu {text}"}
    facts = found(slurm, machine(files, uname={"nodename": "b"}))
    assert facts["configuration"] == "/etc/slurm/slurm.conf"


@pytest.mark.parametrize(
    "text",
    ["a" * (1 << 20), "NodeName=" + "," * (1 << 18), "NodeName=" + "[" * (1 << 18), "(" * (1 << 18),
     "NodeName=" + "x[" + "1,," * (1 << 18), 'a="b ' * (1 << 18), "Include x\n" * 30_000,
     "".join(f"NodeName=x{at}[1-9] CPUs=4\n" for at in range(20_000))],
    ids=["word", "commas", "brackets", "parentheses", "ranges", "quotes", "includes", "nodes"],
)  # fmt: skip
def test_a_hostile_configuration_costs_little_time(machine: Machine, text: str) -> None:
    gres = f"Name=gpu File={text}"
    files: dict[str, str | bytes] = {"etc/slurm/slurm.conf": text, "etc/slurm/gres.conf": gres}
    host = machine(files, uname={"nodename": "x7"})
    before = time.process_time()
    slurm.find(host)
    assert time.process_time() - before < 10


def test_of_many_devices_that_are_missing_some_are_looked_for(machine: Machine) -> None:
    lines = "Name=gpu File=/dev/x[0-99999999]\n" * 500
    files: dict[str, str | bytes] = {"etc/slurm/slurm.conf": "", "etc/slurm/gres.conf": lines}
    rows = found(slurm, machine(files))["gres_files"]
    assert [row["count"] for row in rows] == [256] * 64


@given(
    st.lists(st.sampled_from(["1", "01", "3-5", "08-11", "8-11", "098-101"]), min_size=1, max_size=3),
    st.sampled_from(["1", "01", "4", "9", "09", "10", "099", "100", "001", "x"]),
)
def test_names_are_in_a_list_as_cluster_shell_has_it(ranges: list[str], number: str) -> None:
    names = "login,node" + "[" + ",".join(ranges) + "]-ib"
    # One range at a time: of several ClusterShell takes over the padding.
    is_in = any(f"node{number}-ib" in NodeSet(f"node[{part}]-ib") for part in ranges)
    assert slurm.is_in(f"node{number}-ib", names) is is_in
    assert slurm.is_in("login", names)
    assert not slurm.is_in("node", names)


@given(st.text(alphabet="node[]-,019\\", max_size=30), st.text(max_size=10))
def test_any_list_and_name_have_an_answer(names: str, name: str) -> None:
    assert slurm.is_in(name, names) in (True, False)
