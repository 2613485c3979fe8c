"""Which hypervisor and which cloud this machine runs on, by what its firmware and kernel say.

No cloud's metadata service is asked: nothing here uses the network.

Source: Linux Documentation/ABI/testing/sysfs-firmware-dmi-entries and sysfs-hypervisor-xen; the
SMBIOS strings that hypervisors and clouds document, as systemd-detect-virt(1) uses them too.
"""

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.host.quantities import one_line

_DMI = "/sys/class/dmi/id"

_HYPERVISORS = (
    ("sys_vendor", "VMware", "vmware"),
    ("product_name", "VirtualBox", "virtualbox"),
    ("sys_vendor", "innotek GmbH", "virtualbox"),
    ("product_name", "KVM", "kvm"),
    ("product_name", "OpenStack", "kvm"),
    ("product_name", "Google Compute Engine", "kvm"),
    ("sys_vendor", "Xen", "xen"),
    ("sys_vendor", "Parallels", "parallels"),
    ("bios_vendor", "BHYVE", "bhyve"),
    ("product_name", "Apple Virtualization", "apple"),
    ("sys_vendor", "Bochs", "bochs"),
    ("sys_vendor", "QEMU", "qemu"),
)
"""A field of the firmware's table, how its value begins, and the hypervisor that writes that."""

_CLOUDS = (
    ("sys_vendor", "Amazon EC2", "ec2"),
    ("bios_version", "amazon", "ec2"),
    ("sys_vendor", "Google", "gce"),
    ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77", "azure"),
    ("chassis_asset_tag", "OracleCloud.com", "oracle"),
    ("sys_vendor", "Alibaba Cloud", "alibaba"),
    ("sys_vendor", "Tencent Cloud", "tencent"),
    ("sys_vendor", "Huawei Cloud", "huawei"),
    ("sys_vendor", "DigitalOcean", "digitalocean"),
    ("sys_vendor", "Hetzner", "hetzner"),
    ("sys_vendor", "Scaleway", "scaleway"),
    ("sys_vendor", "Vultr", "vultr"),
    ("sys_vendor", "Linode", "linode"),
    ("sys_vendor", "Akamai", "linode"),
    ("sys_vendor", "OpenStack", "openstack"),
    ("product_name", "OpenStack", "openstack"),
)
ASSET_TAGS = tuple(mark for field, mark, _ in _CLOUDS if field == "chassis_asset_tag")
"""The beginnings of those asset tags that name a cloud; any other one names a machine."""
_CLOCKS = (("kvm-clock", "kvm"), ("hyperv_clocksource", "hyperv"), ("xen", "xen"))
"""Clock sources that only a guest of that hypervisor has."""


class VirtualMachine(Struct, frozen=True):
    """What was seen; "" for what could not be told.

    hypervisor: "none" where the processor says that there is none, "unknown" where it says that
    there is one and nothing names it.
    """

    vendor: str
    product: str
    hypervisor: str
    evidence: str
    cloud: str


def virtual_machine(host: Host) -> VirtualMachine:
    """Return the firmware's names of this machine, its hypervisor and its cloud."""
    names = ("sys_vendor", "product_name", "bios_vendor", "bios_version", "chassis_asset_tag")
    has_table = host.is_dir(_DMI)
    told = {name: one_line(host.read(f"{_DMI}/{name}", 256)) if has_table else "" for name in names}
    product = told["product_name"]
    if not has_table:
        product = host.read("/proc/device-tree/model", 256).strip("\0 \n")
    hypervisor, evidence = _hypervisor(host, told)
    return VirtualMachine(
        vendor=told["sys_vendor"],
        product=product,
        hypervisor=hypervisor,
        evidence=evidence,
        cloud=_cloud(told),
    )


def _hypervisor(host: Host, told: dict[str, str]) -> tuple[str, str]:
    kind = host.read("/sys/hypervisor/type", 64)
    if kind == "xen":
        return "xen", "/sys/hypervisor/type"
    flagged = _hypervisor_flag(host)
    if flagged is False:
        return "none", "/proc/cpuinfo lists no hypervisor flag"
    if told["sys_vendor"] == "Microsoft Corporation" and told["product_name"] == "Virtual Machine":
        return "hyperv", f"{_DMI}/product_name"
    clocks = host.read(
        "/sys/devices/system/clocksource/clocksource0/available_clocksource", 256
    ).split()
    for begin, name in _CLOCKS:
        if any(clock.startswith(begin) for clock in clocks):
            return name, "the kernel's clock sources"
    for field, begin, name in _HYPERVISORS:
        if told[field].startswith(begin):
            return name, f"{_DMI}/{field}"
    if host.is_dir("/sys/bus/vmbus/devices"):
        return "hyperv", "/sys/bus/vmbus"
    return _by_firmware(host) or (("unknown", "the flag in /proc/cpuinfo") if flagged else ("", ""))


def _hypervisor_flag(host: Host) -> bool | None:
    """Return what an x86 processor says; None on others, which have no such flag."""
    # The first processor is enough, and asking for all takes milliseconds on a large machine.
    for line in host.read("/proc/cpuinfo", 8192).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return "hypervisor" in value.split()
    return None


def _by_firmware(host: Host) -> tuple[str, str] | None:
    """Return the hypervisor of Arm, POWER and Z machines."""
    compatible = host.read("/proc/device-tree/hypervisor/compatible", 256)
    for begin, name in (("linux,kvm", "kvm"), ("xen", "xen"), ("vmware", "vmware")):
        if compatible.startswith(begin):
            return name, "/proc/device-tree/hypervisor"
    if host.exists("/proc/device-tree/ibm,partition-name"):
        return "powervm", "/proc/device-tree/ibm,partition-name"
    for line in host.read("/proc/sysinfo", 16384).splitlines():
        name, _, value = line.partition(":")
        if name.startswith("VM") and name.endswith("Control Program"):
            return "kvm" if "KVM" in value else "zvm", "/proc/sysinfo"
    return None


def _cloud(told: dict[str, str]) -> str:
    for field, mark, name in _CLOUDS:
        if told[field].startswith(mark) or (field == "bios_version" and mark in told[field]):
            return name
    return ""
