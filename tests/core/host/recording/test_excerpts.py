"""Of a file that may name somebody that is kept which the probes read, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.tables import table
from mlbackends.host.recording.excerpts import excerpt, of_command, without_secrets
from mlbackends.host.system.kernel import kernel_parameters

COMMAND_LINE = (
    "BOOT_IMAGE=/vmlinuz root=UUID=ab ip=10.1.1.1::10.1.1.254:255.255.255.0:node9 mitigations=off"
    " nfsroot=10.1.1.2:/export/node9 BOOTIF=01-02-fc-00-11-22-33 isolcpus=2-5"
    " systemd.machine_id=0123456789abcdef0123456789abcdef rd.luks.key=/key:UUID=ab"
    " rd.iscsi.password=hunter2 inst.ks=http://10.9.9.9/ks hugepages=4 hugepages=8"
    " ifname=eth0:fe80::1 -- bob\n"
)


def kept(path: str, text: str) -> str:
    return excerpt(path, text.encode(), lambda url: url.replace("corp", "HIDDEN")).decode()


def test_of_the_command_line_the_parameters_are_kept_that_are_told() -> None:
    told = kept("/proc/cmdline", COMMAND_LINE)
    assert told == "mitigations=off isolcpus=2-5 hugepages=4 hugepages=8\n"
    assert kernel_parameters(told) == kernel_parameters(COMMAND_LINE)


@given(
    st.lists(st.sampled_from([*table("host/system/kernel_parameters"), "secret", "--"]) | st.text(max_size=5))
)
def test_every_command_line_tells_what_it_told(words: list[str]) -> None:
    line = " ".join(words)
    assert kernel_parameters(kept("/proc/cmdline", line)) == kernel_parameters(line)


def test_no_key_is_kept_for_one_who_gives_names_away() -> None:
    told = without_secrets("/proc/cmdline", COMMAND_LINE.encode()).decode()
    assert "hunter2" not in told
    assert "rd.luks.key=***" in told
    assert "systemd.machine_id=0123456789abcdef0123456789abcdef" in told


def test_mounts_of_the_system_are_kept_without_servers_people_and_disks() -> None:
    lines = (
        "22 1 0:21 / / rw,relatime - overlay overlay rw,lowerdir=/x,upperdir="
        "/srv/bob/docker/overlay2/" + "ab" * 32 + "/diff,workdir=/y\n"
        "23 22 0:22 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=65536k\n"
        "24 22 0:23 / /home/bob rw - nfs4 fileserver7:/people/bob rw,addr=10.1.1.1\n"
        "25 22 0:24 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "27 22 9:0 / /scratch rw,noatime - ext4 /dev/mapper/vg-bob ro,errors=remount-ro,secret=x\n"
        "28 22 0:50 / /srv/maps rw - autofs /etc/auto.bob rw,fd=6,pgrp=77\n"
        "29 22 0:51 / /run/user/1000/doc rw - fuse.portal portal rw,user_id=1000\n"
        "26 22 8:1 /var/lib/kubelet/pods/x/etc-hosts /etc/hosts rw - ext4 /dev/mapper/vg-bob rw\n"
        "a broken line\n"
    )
    assert kept("/proc/self/mountinfo", lines) == (
        "22 1 0:21 / / rw,relatime - overlay none rw,upperdir=/x/x/docker/overlay2/" + "ab" * 32 + "/diff\n"
        "23 22 0:22 / /dev/shm rw,nosuid - tmpfs none rw\n"
        # The user's name is replaced later, as in every path.
        "24 22 0:23 / /home/bob rw - nfs4 none rw\n"
        "25 22 0:24 /docker/abc /sys/fs/cgroup/memory ro - cgroup none rw,memory\n"
        "27 22 9:0 / /scratch rw,noatime - ext4 none ro,errors=remount-ro\n"
        "28 22 0:50 / /srv/maps rw - autofs none rw\n"
    )


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("/etc/passwd", "bob:x:1000:1000:Bob B.:/home/bob:/bin/sh\n", ""),
        ("/etc/group", "render:x:109:bob,eve\nbroken\n", "render:x:109:\n"),
        ("/proc/12/environ", "USER=bob\0", ""),
        ("/proc/self/status", "Name:\tbob\nCpus_allowed_list:\t0-3\n", "Cpus_allowed_list:\t0-3\n"),
        ("/proc/sys/kernel/hostname", "vm\n", "host\n"),
        ("/proc/cpuinfo", "Model : Pi\nSerial\t\t: 10000000abcd\n", "Model : Pi\nSerial\t\t: 0\n"),
        ("/proc/sysinfo", "Sequence Code: 0001234\nVM00 Name: BOB\nVM00 Control Program: KVM/Linux\n",
         "VM00 Control Program: KVM/Linux\n"),
        ("/sys/class/dmi/id/chassis_asset_tag", "ACME-00042\n", ""),
        ("/sys/class/dmi/id/chassis_asset_tag", "OracleCloud.com\n", "OracleCloud.com\n"),
        ("/var/lib/dpkg/status",
         "Package: a\nMaintainer: Bob <b@corp>\nArchitecture: all\nVersion: 1\n\nPackage: b\n",
         "Package: a\nArchitecture: all\nVersion: 1\n\nPackage: b\n"),
        ("/v/x-1.dist-info/METADATA",
         "Name: x\nAuthor-email: b@corp\nRequires-Dist: y @ https://git.corp/y\n\nName: text\n",
         "Name: x\nRequires-Dist: y @ https://git.HIDDEN/y\n"),
        ("/v/x-1.dist-info/direct_url.json",
         '{"url": "https://git.corp/x", "vcs_info": {"requested_revision": "bobs-branch"}}',
         '{"url":"https://git.HIDDEN/x"}'),
        ("/v/x-1.dist-info/direct_url.json", '{"dir_info": {"editable": true}, "url": "file:///w/x"}',
         '{"url":"file:///w/x","dir_info":{"editable":true}}'),
        ("/v/x-1.dist-info/direct_url.json", "garbage", "{"),
        ("/v/x-1.dist-info/direct_url.json", "", ""),
        ("/v/pyvenv.cfg", "home = /usr/bin\nuv = 0.5\nprompt = bobs\ncommand = python -m venv /w/bob\n",
         "home = /usr/bin\nuv = 0.5\n"),
        ("/c/conda-meta/x-1-0.json",
         '{"name": "x", "url": "https://c/t/hunter2/x", "files": ["lib/libx.so"]}',
         '{"name":"x","version":"","build":"","files":["lib/libx.so"]}'),
        ("/proc/meminfo", "MemTotal: 1 kB\n", "MemTotal: 1 kB\n"),
    ],
)  # fmt: skip
def test_what_is_read_is_kept(path: str, before: str, after: str) -> None:
    assert kept(path, before) == after


def test_the_serial_number_of_a_pci_device_is_blanked_and_its_other_capabilities_stay() -> None:
    data = bytearray(4096)
    data[0x100:0x104] = (0x0003 | 1 << 16 | 0x140 << 20).to_bytes(4, "little")
    data[0x104:0x10C] = b"\x01\x02\x03\x04\x05\x06\x07\x08"
    data[0x140:0x144] = (0x000D | 1 << 16).to_bytes(4, "little")
    data[0x146] = 4

    told = excerpt("/sys/bus/pci/devices/0000:00:01.0/config", bytes(data), str)

    data[0x104:0x10C] = bytes(8)
    assert told == bytes(data)


def test_of_the_system_controls_those_of_the_machine_are_kept() -> None:
    output = "kern.hostname: air.local\nhw.memsize: 8\nkern.boottime: 1\nnet.x: 10.1.1.1\nvm.x: 1\n"
    assert of_command("sysctl -a", output) == "hw.memsize: 8\nkern.boottime: 1\nvm.x: 1\n"
    assert of_command("ioreg", output) == output


@given(st.binary(max_size=300), st.sampled_from(["/proc/cmdline", "/proc/self/mountinfo",
    "/etc/group", "/var/lib/dpkg/status", "/v/a.dist-info/METADATA", "/c/conda-meta/a.json",
    "/v/a.dist-info/direct_url.json", "/v/pyvenv.cfg", "/sys/x/config", "/proc/cpuinfo"]))  # fmt: skip
def test_no_content_is_too_strange(data: bytes, path: str) -> None:
    assert isinstance(excerpt(path, data, str), bytes)
    assert isinstance(without_secrets(path, data), bytes)
