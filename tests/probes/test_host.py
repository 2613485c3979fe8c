"""The host probe on composed machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends_probes import host as probe

if TYPE_CHECKING:
    from tests.conftest import Machine

MIB = 1 << 20
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def facts_of(machine: Machine, *files: dict[str, str], **more: Any) -> dict[str, Any]:
    return probe.find(machine(*files, **more)).facts


def test_os_release_is_read_as_the_shell_would(machine: Machine) -> None:
    text = '# a comment\nNAME="Red \\"Hat\\""\nID=\'rhel\'\nVERSION_ID=9.4\nBROKEN\n'
    facts = facts_of(machine, {"etc/os-release": text})
    assert (facts["os_id"], facts["os_name"], facts["os_version"]) == ("rhel", 'Red "Hat"', "9.4")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("'Arch \"Linux\"'", 'Arch "Linux"'),
        ('"a \\$ b \\\\ c \\d"', "a $ b \\ c \\d"),
        ("Debian\\ GNU/Linux", "Debian GNU/Linux"),
        ("Arch # rolling", "Arch"),
        ("\"one\"'two'three#4", "onetwothree#4"),
        ('""', None),
        ('"Fedora Linux', None),
        ('Fedora"', None),
        ("'Fedora\"", None),
        ("Fedora Linux", None),
        ("$HOME", None),
        ('"`id`"', None),
        ("Fedora\\", None),
        ("\0", None),
    ],
)
def test_a_value_that_is_no_word_of_the_shell_is_no_name(
    machine: Machine, value: str, name: str | None
) -> None:
    facts = facts_of(machine, {"etc/os-release": f"ID=it\nNAME={value}\n"})
    assert facts["os_id"] == "it"
    assert facts.get("os_name") == name


def test_os_release_has_a_second_place(machine: Machine) -> None:
    assert facts_of(machine, {"usr/lib/os-release": "ID=arch\n"})["os_id"] == "arch"


def test_boot_id_and_uptime_are_read(machine: Machine) -> None:
    boot = "57234faa-c287-4668-b6bd-1746759ca7fd"
    facts = facts_of(
        machine,
        {"proc/sys/kernel/random/boot_id": f"{boot}\n", "proc/uptime": "350735.47 234388.90\n"},
    )
    assert (facts["boot_id"], facts["uptime_seconds"]) == (boot, 350735.47)


def test_glibc_tells_its_version_by_its_banner(machine: Machine) -> None:
    # Some releases define no new symbols: the versions of the symbols alone would say 2.36.
    text = "\x7fELF...GNU C Library (Fedora) stable release version 2.37.\nGLIBC_2.36\0"
    facts = facts_of(machine, {"lib64/libc.so.6": text})
    assert (facts["libc"], facts["libc_version"]) == ("glibc", "2.37")


def test_a_libc_that_is_no_elf_file_has_no_version(machine: Machine) -> None:
    facts = facts_of(machine, {"lib/x86_64-linux-gnu/libc.so.6": "garbage"})
    assert facts["libc"] == "glibc"
    assert "libc_version" not in facts


def test_what_the_machine_recorded_of_its_libc_goes_first(machine: Machine) -> None:
    facts = facts_of(machine, {"lib64/libc.so.6": ""}, system={"libc": "glibc 2.28"})
    assert facts["libc_version"] == "2.28"


@pytest.mark.parametrize(
    ("files", "environment", "kind", "sign"),
    [
        ({".dockerenv": ""}, {}, "docker", "docker: /.dockerenv"),
        ({"run/.containerenv": ""}, {}, "podman", "podman: /run/.containerenv"),
        ({".singularity.d/x": ""}, {}, "apptainer", "apptainer: /.singularity.d"),
        ({}, {"APPTAINER_CONTAINER": "a.sif"}, "apptainer", "apptainer: APPTAINER_CONTAINER"),
        ({}, {"KUBERNETES_SERVICE_HOST": "1"}, "kubernetes", "kubernetes: KUBERNETES_SERVICE_HOST"),
        ({}, {"container": "lxc"}, "lxc", "lxc: the variable container"),
        ({"run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn",
         "systemd-nspawn: /run/systemd/container"),
        ({"proc/self/cgroup": "0::/kubepods.slice/cri-containerd-ab.scope\n"}, {}, "kubernetes",
         "kubernetes: /proc/self/cgroup, /kubepods"),
        ({"proc/self/mountinfo": "1 0 0:1 / / rw - overlay overlay "
         "rw,lowerdir=/a,upperdir=/var/lib/docker/overlay2/x/diff"}, {}, "docker",
         "docker: the overlay mounted at /"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_container_is_named_with_what_showed_it(
    machine: Machine, files: dict[str, str], environment: dict[str, str], kind: str, sign: str
) -> None:
    facts = facts_of(machine, files, environment=environment)
    assert facts["container"] == kind
    assert sign in facts["container_evidence"]


def test_all_signs_of_a_container_are_listed(machine: Machine) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "container": "nonsense"}
    facts = facts_of(machine, {".dockerenv": ""}, environment=environment)
    assert facts["container_evidence"] == [
        "docker: /.dockerenv",
        "kubernetes: KUBERNETES_SERVICE_HOST",
    ]


def test_without_a_sign_there_is_no_container(machine: Machine) -> None:
    facts = facts_of(machine, {"proc/self/cgroup": "0::/user.slice/session-3.scope\n"})
    assert facts["container"] == "none"
    assert "container_evidence" not in facts


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ({"proc/sys/kernel/osrelease": "4.4.0-19041-Microsoft\n"}, {}, 1),
        ({"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"}, {}, 2),
        ({"proc/sys/kernel/osrelease": "6.6.0-mine\n", "dev/dxg": ""}, {"WSL_DISTRO_NAME": "U"}, 2),
        ({"proc/sys/kernel/osrelease": "6.6.0-mine\n", "dev/dxg": ""}, {}, None),
        ({"proc/sys/kernel/osrelease": "6.8.0-1015-azure\n"}, {}, None),
    ],
)
def test_wsl_is_told_from_its_kernel_and_its_signs(
    machine: Machine, files: dict[str, str], environment: dict[str, str], expected: int | None
) -> None:
    assert facts_of(machine, files, environment=environment).get("wsl_version") == expected


GUEST = "processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n"
METAL = "processor\t: 0\nflags\t\t: fpu lahf_lm\n"


@pytest.mark.parametrize(
    ("dmi", "cpuinfo", "hypervisor", "cloud"),
    [
        ({"sys_vendor": "QEMU", "product_name": "Standard PC"}, GUEST, "qemu", ""),
        ({"sys_vendor": "VMware, Inc."}, GUEST, "vmware", ""),
        ({"sys_vendor": "innotek GmbH", "product_name": "VirtualBox"}, GUEST, "virtualbox", ""),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, GUEST, "hyperv", ""),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine",
         "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, GUEST, "hyperv", "azure"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Surface"}, METAL, "none", ""),
        ({"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge"}, GUEST, "kvm", "ec2"),
        ({"sys_vendor": "Amazon EC2", "product_name": "m5.metal"}, METAL, "none", "ec2"),
        ({"sys_vendor": "Xen", "bios_version": "4.11.amazon"}, GUEST, "xen", "ec2"),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, GUEST, "kvm", "gce"),
        ({"sys_vendor": "Dell Inc.", "product_name": "PowerEdge"}, METAL, "none", ""),
        ({"sys_vendor": "innotek GmbH", "product_name": "VirtualBox"}, METAL, "virtualbox", ""),
        ({"sys_vendor": "QEMU", "product_name": "Standard PC"}, METAL, "qemu", ""),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, METAL, "none", "gce"),
    ],
)  # fmt: skip
def test_hypervisor_and_cloud_are_told_by_the_firmware(
    machine: Machine, dmi: dict[str, str], cpuinfo: str, hypervisor: str, cloud: str
) -> None:
    files = {f"sys/class/dmi/id/{name}": f"{value}\n" for name, value in dmi.items()}
    facts = facts_of(machine, {"proc/cpuinfo": cpuinfo} | files)
    assert facts["virtualisation"] == hypervisor
    assert facts.get("cloud", "") == cloud
    assert facts["vendor"] == dmi["sys_vendor"]


@pytest.mark.parametrize(
    ("files", "hypervisor"),
    [
        ({"proc/cpuinfo": GUEST,
         "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock"}, "kvm"),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm"),
        ({"proc/device-tree/ibm,partition-name": "lpar1\0"}, "powervm"),
        ({"proc/sysinfo": "VM00 Control Program: z/VM    7.3.0\n"}, "zvm"),
        ({"proc/sysinfo": "VM00 Control Program: KVM/Linux\n"}, "kvm"),
        ({"proc/sysinfo": "Manufacturer: IBM\nLPAR Number: 5\nLPAR Name: TEST\n"}, "pr/sm"),
        ({"proc/sysinfo": "LPAR Number: 5\nVM00 Control Program: z/VM    7.3.0\n"}, "zvm"),
        ({"proc/cpuinfo": "vendor_id\t: User Mode Linux\n"}, "uml"),
        ({}, ""),
    ],
)  # fmt: skip
def test_hypervisors_without_a_firmware_table_are_told_by_the_kernel(
    machine: Machine, files: dict[str, str], hypervisor: str
) -> None:
    assert facts_of(machine, files).get("virtualisation", "") == hypervisor


@pytest.mark.parametrize(
    ("event", "hypervisor"),
    [
        ("PCI_ID=80EE:BEEF", "virtualbox"),
        ("PCI_ID=15AD:0405", "vmware"),
        ("PCI_ID=8086:29C0\nPCI_SUBSYS_ID=1AF4:1100", "qemu"),
        ("PCI_ID=10DE:2204\nPCI_SUBSYS_ID=1043:87D2", "none"),
        ("PCI_ID=1AF4:1041\nPCI_SUBSYS_ID=1AF4:1100\n", "qemu"),
        ("PCI_ID=1AF4:1041\nPCI_SUBSYS_ID=1AF4:0001\n", "none"),  # as smart network cards have
    ],
)
def test_a_guest_that_hides_the_flag_is_seen_by_its_devices(
    machine: Machine, event: str, hypervisor: str
) -> None:
    files = {"proc/cpuinfo": METAL, "sys/bus/pci/devices/0000:00:02.0/uevent": event}
    assert facts_of(machine, files)["virtualisation"] == hypervisor


def test_pci_devices_in_proc_do_where_sys_has_none(machine: Machine) -> None:
    text = "0000\t80861237\t0\n0010\t80eebeef\tb\n"
    files = {"proc/cpuinfo": METAL, "proc/bus/pci/devices": text}
    assert facts_of(machine, files)["virtualisation"] == "virtualbox"


def test_the_size_of_the_shared_memory_is_read(machine: Machine) -> None:
    files = {"proc/meminfo": "MemTotal: 268435456 kB\n"}
    found = probe.find(machine(files, disks={"/dev/shm": [64 * MIB, 60 * MIB]}))
    assert found.facts["shared_memory_bytes"] == 64 * MIB
    assert found.facts["shared_memory_free_bytes"] == 60 * MIB


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        ({"sys/class/dmi/id/chassis_type": "10\n"}, {"is_laptop": True}),
        ({"sys/class/dmi/id/chassis_type": "3\n"}, {"is_laptop": False}),
        ({"sys/class/power_supply/AC/online": "0\n"}, {"on_battery": True}),
        ({"sys/class/power_supply/AC/online": "1\n"}, {"on_battery": False}),
        (
            {"sys/class/power_supply/AC/online": "0\n", "sys/class/power_supply/USB/online": "1\n"},
            {"on_battery": False},
        ),
        ({SECURE_BOOT: "\6\0\0\0\1"}, {"secure_boot": True}),
        ({SECURE_BOOT: "\6\0\0\0\0"}, {"secure_boot": False}),
        ({SECURE_BOOT: "\6"}, {}),
        ({}, {}),
    ],
)
def test_battery_chassis_and_secure_boot(
    machine: Machine, files: dict[str, str], facts: dict[str, bool]
) -> None:
    found = facts_of(machine, files)

    names = ("is_laptop", "on_battery", "secure_boot")
    assert {name: found[name] for name in names if name in found} == facts


def test_half_of_a_small_machines_memory_is_no_warning(machine: Machine) -> None:
    files = {"proc/meminfo": "MemTotal: 1048576 kB\n"}
    assert not probe.find(machine(files, disks={"/dev/shm": [512 * MIB, 512 * MIB]})).warnings


def test_a_plain_folder_at_dev_shm_has_no_size_of_its_own(machine: Machine) -> None:
    files = {"proc/self/mountinfo": "1 0 0:1 / / rw - ext4 /dev/vda rw\n"}
    facts = facts_of(machine, files, disks={"/dev/shm": [64 * MIB, 1]})
    assert "shared_memory_bytes" not in facts


def test_boot_parameters_that_matter_are_kept_and_init_has_the_rest(machine: Machine) -> None:
    line = (
        "BOOT_IMAGE=/vmlinuz root=UUID=1-2 isolcpus=2-7 nohz_full=2-7 quiet hugepagesz=1G "
        "hugepages=16 hugepagesz=2M hugepages=64 nosmt iommu=pt -- mitigations=off\n"
    )
    assert facts_of(machine, {"proc/cmdline": line})["kernel_parameters"] == {
        "isolcpus": "2-7",
        "nohz_full": "2-7",
        "hugepagesz": "1G 2M",
        "hugepages": "16 64",
        "nosmt": "",
        "iommu": "pt",
    }


def pci(address: str, class_code: str, identity: str, driver: str = "") -> dict[str, str]:
    text = f"PCI_CLASS={class_code}\nPCI_ID={identity}\nPCI_SLOT_NAME={address}\n"
    folder = f"sys/bus/pci/devices/{address}"
    files = {f"{folder}/uevent": f"DRIVER={driver}\n{text}" if driver else text}
    return files | {f"{folder}/numa_node": "1\n"}


def test_devices_that_do_rdma_are_listed(machine: Machine) -> None:
    node = "sys/class/infiniband/{}/node_guid"
    files = {node.format("mlx5_1"): "\n", node.format("mlx5_0"): "\n"}

    assert facts_of(machine, files)["rdma_devices"] == ["mlx5_0", "mlx5_1"]
    assert "rdma_devices" not in facts_of(machine)


def test_confinement_is_told_where_it_is_on(machine: Machine) -> None:
    files = {
        "sys/fs/selinux/enforce": "1",
        "sys/module/apparmor/parameters/enabled": "Y\n",
        "proc/self/attr/apparmor/current": "docker-default (enforce)\n",
    }
    facts = facts_of(machine, files)
    assert (facts["selinux"], facts["apparmor_profile"]) == (
        "enforcing",
        "docker-default (enforce)",
    )


def test_a_windows_of_which_nothing_was_recorded_has_its_name_alone(machine: Machine) -> None:
    facts = facts_of(machine, platform="win32", uname={"sysname": "Windows", "release": "11"})
    names = {"platform": "win32", "kernel_name": "Windows", "os_name": "Windows"}
    assert facts == {**names, "os_id": "windows", "container": "none"}


def test_an_empty_machine_has_a_platform_and_no_sign_of_a_container(machine: Machine) -> None:
    assert facts_of(machine) == {"platform": "linux", "container": "none"}
