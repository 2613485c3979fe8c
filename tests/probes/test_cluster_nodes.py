"""What nodes of clusters differ in: the probes network, mounts, clock, services and slurm.

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
from typing import TYPE_CHECKING, Any

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.host.redaction import Names, redacted
from mlbackends.host.system.kernel import kernel_parameters, other_parameters
from mlbackends.host.system.package_versions import dpkg_versions, rpm_versions
from mlbackends.model.records import Library, Presence
from mlbackends.survey import survey
from mlbackends_probes import clock, mounts, network, services, slurm

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary, Machine

RDMA, NET = "sys/class/infiniband", "sys/class/net"
ALL = {"clock": clock, "mounts": mounts, "network": network, "services": services, "slurm": slurm}


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
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm \n",
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
    assert found(clock, machine(RECORDED)) == {
        "clock_source": "tsc",
        "clock_sources": ["acpi_pm", "hpet", "tsc"],
    }


def test_a_card_has_the_firmware_of_its_rdma_device_and_its_driver(machine: Machine) -> None:
    device = "sys/devices/pci0000:20/0000:20:01.1/0000:21:00.0"
    files: dict[str, str | bytes] = {
        f"{device}/uevent": "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:101B\n",
        f"{device}/current_link_width": "8\n",
        f"{device}/max_link_width": "16\n",
        f"{device}/infiniband/mlx5_0/fw_ver": "",
        f"{device}/driver": "->../../../../bus/pci/drivers/mlx5_core",
        "sys/bus/pci/drivers/mlx5_core/bind": "",
        "sys/bus/pci/devices/0000:21:00.0": f"->../../../{device.removeprefix('sys/')}",
        "sys/module/mlx5_core/version": "24.10-1.1.4\n",
        f"{NET}/ib0/device": f"->../../../{device.removeprefix('sys/')}",
        f"{NET}/ib0/speed": "4294967295\n",
        f"{RDMA}/mlx5_0/fw_ver": "20.31.1014\n",
    }
    (card,) = found(network, machine(files))["interfaces"]
    assert card == {
        "name": "ib0",
        "driver": "mlx5_core",
        "driver_version": "24.10-1.1.4",
        "firmware": "20.31.1014",
        "pci_id": "15b3:101b",
        "pcie_width": 8,
        "max_pcie_width": 16,
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
    assert len(facts["interfaces"]) == len(facts["rdma_ports"]) == 1
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
        "/", "/dev/shm", "/home", "/scratch fast", "/share", "/mnt/ann", "/lustre", "/ceph", "/dav",
    }  # fmt: skip
    assert rows["/home"] == {
        "at": "/home",
        "type": "nfs4",
        "source": "filer1.corp:/export/home",
        "options": "hard,noatime,rw,vers=4.2",
    }
    assert "source" not in rows["/"]
    assert "read_only_after_error" not in rows["/"]
    assert rows["/scratch fast"]["read_only_after_error"]
    assert rows["/share"]["source"] == "//nas/share"
    assert rows["/mnt/ann"]["source"] == "login.corp:/data"
    assert rows["/mnt/ann"]["options"] == "allow_other,rw"
    assert rows["/dav"]["source"] == "https://dav.corp/d"
    assert facts["network_count"] == 6
    text = json.dumps(facts)
    for secret in ("hunter2", "AQBS", "username", "CORP", "bob", "admin", "clientaddr"):
        assert secret not in text


def test_a_redacted_report_names_no_server(machine: Machine) -> None:
    report = survey(["mounts"], machine({"proc/self/mountinfo": MOUNTINFO}), Presence.FOUND)
    rows: Any = redacted(report, Names("node1", "ann", "/home/ann")).probes["mounts"].facts["mounted"]
    sources = {row["at"]: row["source"] for row in rows if "source" in row}
    text = json.dumps(rows)
    for name in ("filer1", "login", "corp", "nas/", "10.9"):
        assert name not in text
    assert sources["/home"].endswith(":/export/home")
    assert sources["/lustre"].endswith(":/work")
    assert "/mnt/USER" in sources


def test_of_thousands_of_mounts_those_of_servers_are_listed_first(machine: Machine) -> None:
    disks = "".join(f"{n} 1 8:1 / /pods/{n:05} rw - ext4 /dev/sda1 rw\n" for n in range(5000))
    served = "".join(f"{n} 1 0:9 / /z/{n} rw - nfs s:/{n} rw,{'x' * 500}\n" for n in range(40))
    facts = found(mounts, machine({"proc/self/mountinfo": disks + served}))
    assert len(facts["mounted"]) == 256
    assert facts["network_count"] == 40 == sum(row["type"] == "nfs" for row in facts["mounted"])
    assert facts["left_out"] == 5040 - 256


@pytest.mark.skipif(not shutil.which("findmnt"), reason="needs findmnt")
def test_mounts_are_those_that_findmnt_prints() -> None:
    command = ["findmnt", "--json", "--list", "--output", "TARGET,FSTYPE,OPTIONS"]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["filesystems"]
    by_place = {row["target"]: row for row in printed}
    for row in found(mounts, Host()).get("mounted", ()):
        assert row["type"] == by_place[row["at"]]["fstype"]
        assert set(row.get("options", "rw").split(",")) <= set(by_place[row["at"]]["options"].split(","))


# ---- the kernel's command line ----------------------------------------------------------------------------


def test_of_other_parameters_only_names_are_kept() -> None:
    line = (
        'BOOT_IMAGE=/vmlinuz ro quiet init_pw="correct horse battery" mitigations=off swordfish'
        ' dyndbg="file a.c +p; b" rd.luks.key=/k:UUID=1 -- password=x\n'
    )
    assert kernel_parameters(line) == {"mitigations": "off"}
    assert other_parameters(line) == ["BOOT_IMAGE", "dyndbg", "init_pw", "rd.luks.key"]


# ---- the clock --------------------------------------------------------------------------------------------


def test_the_service_that_sets_the_clock(machine: Machine) -> None:
    host = machine({"sys/fs/cgroup/system.slice/chrony.service/cgroup.procs": "1\n"})
    assert found(clock, host) == {"daemons": ["chronyd"]}


def test_a_daemon_without_systemd_is_known_by_what_it_leaves(machine: Machine) -> None:
    assert found(clock, machine({"run/ntpd.pid": "7\n"})) == {"daemons": ["ntpd"]}


@pytest.mark.parametrize(("status", "is_synchronised"), [(0x40, False), (0x2001, True), (0x0, True)])
def test_the_bit_of_the_kernel_decides(fake_library: FakeLibrary, status: int, is_synchronised: bool) -> None:
    source = """
    struct timex { unsigned modes; long offset, frequency, maximum_error, estimated_error; int status; };
    int adjtimex(struct timex *state) {
        if (state->modes) return -1;
        state->maximum_error = 1500; state->status = STATUS; return 0;
    }
    """
    path = str(fake_library("clock", "libclock.so", source=source, defines=(f"STATUS={status}",)))
    facts = clock.load(ctypes.CDLL(path), Library("c", path)).facts
    assert facts == {"is_synchronised": is_synchronised, "maximum_error_seconds": 0.0015}


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_the_live_state_is_that_of_ntp_adjtime() -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "ntp_adjtime") or ctypes.sizeof(ctypes.c_long) != 8:
        pytest.skip("needs glibc on 64 bits")
    state = (ctypes.c_long * 64)()
    answer = libc.ntp_adjtime(state)
    facts = survey(["clock"], Host(), Presence.LOADABLE).probes["clock"].facts
    # TIME_ERROR, or a refusal; the status is behind modes, offset, frequency and two errors.
    unsynchronised = bool(state[5] & 0x40)
    assert facts.get("is_synchronised") == (None if answer < 0 else not unsynchronised)
    assert answer == 5 or answer < 0 or not unsynchronised


# ---- services and packages --------------------------------------------------------------------------------


def test_services_that_matter_are_listed(machine: Machine) -> None:
    names = ("docker", "slurmd", "user@1000", "getty@tty1", "ann-secret")
    files: dict[str, str | bytes] = {
        f"sys/fs/cgroup/systemd/system.slice/{name}.service/tasks": "1\n" for name in names
    }
    files |= {
        "etc/docker/daemon.json": '{"default-runtime": "nvidia", "storage-driver": ["x"], "hosts": ["h"]}',
        "etc/containerd/config.toml": (
            '  default_runtime_name = "nvidia"\n  SystemdCgroup = true\n  password = "p"\n'
        ),
        "etc/tuned/active_profile": "throughput-performance\n",
    }
    assert found(services, machine(files)) == {
        "running": ["docker", "slurmd"],
        "container_settings": {
            "docker.default-runtime": "nvidia",
            "containerd.default_runtime_name": "nvidia",
            "containerd.SystemdCgroup": "true",
            "tuned.profile": "throughput-performance",
        },
    }


@pytest.mark.parametrize("text", ["[", "[1]", "{" * 90000, "\0"])
def test_a_broken_configuration_of_docker_is_no_error(machine: Machine, text: str) -> None:
    assert found(services, machine({"etc/docker/daemon.json": text})) == {}


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
    facts = found(services, machine({"var/lib/dpkg/status": DPKG}))
    assert facts["package_versions"] == {"docker.io": "20.10.24+dfsg1-1+b3"}


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="needs dpkg")
def test_versions_are_those_that_dpkg_prints() -> None:
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n"]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    rows = [line.split() for line in printed]
    installed = {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "ii"}
    ours = dpkg_versions("/var/lib/dpkg/status")
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


def test_packages_of_rpm(tmp_path: Path, machine: Machine) -> None:
    header = rpm_header(b"4.9.4", b"6.el9")
    path = rpm_database(tmp_path / "rpmdb.sqlite", ("podman", header), ("bash", header))
    assert rpm_versions(path) == {"podman": "4.9.4-6.el9"}
    extracts = {"/var/lib/rpm/rpmdb.sqlite": {"rpm_versions": {"podman": "4.9.4-6.el9", "bash": "5"}}}
    assert found(services, machine({}, extracts=extracts)) == {"package_versions": {"podman": "4.9.4-6.el9"}}


@pytest.mark.parametrize("header", [b"", rpm_header(b"1", b"2")[:20], b"\xff" * 64])
def test_a_broken_database_of_rpm_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "text").write_text("no database")
    for path in (str(tmp_path / "text"), rpm_database(tmp_path / "rpmdb.sqlite", ("podman", header))):
        with pytest.raises(ValueError, match="rpm"):
            rpm_versions(path)


def test_a_header_without_a_version_has_none(tmp_path: Path) -> None:
    assert rpm_versions(rpm_database(tmp_path / "rpmdb.sqlite", ("podman", bytes(8)))) == {}


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
        "opt/slurm/etc/nodes.conf": "nodename=DEFAULT threadspercore=2\nNodeName=gpu[17-20] CPUs=1\n",
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
        "node": {"CPUs": "64", "ThreadsPerCore": "2", "RealMemory": "500000", "Feature": "a, b"},
        "gres_configured": [
            {"name": "gpu", "type": "a100", "count": 7},
            {"name": "gpu", "type": "mig-1g.5gb", "count": 2},
            {"name": "nvme", "count": 1},
        ],
        "gres_files": [{"name": "gpu", "type": "a100", "count": 3, "missing": ["/dev/nvidia1"]}],
        "autodetect": "nvml",
    }


def test_files_that_include_each_other_are_read_some_times(machine: Machine) -> None:
    text = "Include slurm.conf\nInclude slurm.conf\nNodeName=a File=/dev/x[0-999999999]\n"
    files: dict[str, str | bytes] = {"etc/slurm/slurm.conf": text, "etc/slurm/gres.conf": f"Name=gpu {text}"}
    facts = found(slurm, machine(files, uname={"nodename": "b"}))
    assert facts["configuration"] == "/etc/slurm/slurm.conf"


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
