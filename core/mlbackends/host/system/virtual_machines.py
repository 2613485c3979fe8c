"""Which hypervisor and which cloud this machine runs on, by what its firmware and kernel say.

No cloud's metadata service is queried: nothing here uses the network. virtual_machines.json has the fields
of the firmware's table, how a value begins, and the hypervisor or cloud that writes it; and clock sources
that only a guest of a hypervisor has.

Source: Linux Documentation/ABI/testing/sysfs-firmware-dmi-entries and sysfs-hypervisor-xen; the
SMBIOS strings that hypervisors and clouds document, as systemd-detect-virt(1) uses them too.
"""

from mlbackends.host.host import Host
from mlbackends.host.quantities import one_line
from mlbackends.model.tables import table

_DMI = "/sys/class/dmi/id"
_FIELDS = ("sys_vendor", "product_name", "bios_vendor", "bios_version", "chassis_asset_tag")
_CLOCK = "/sys/devices/system/clocksource/clocksource0/available_clocksource"


def virtual_machine(host: Host) -> dict[str, str]:
    """Return the facts of the firmware's names of this machine, its hypervisor and its cloud.

    "" for what is not known. virtualisation: "none" where the processor says that there is none,
    "unknown" where it says that there is one and nothing names it.
    """
    has_table = host.is_dir(_DMI)
    firmware = dict.fromkeys(_FIELDS, "")
    product = host.read("/proc/device-tree/model", 256).strip("\0 \n") if not has_table else ""
    if has_table:
        firmware = {name: one_line(host.read(f"{_DMI}/{name}", 256)) for name in _FIELDS}
    hypervisor, evidence = _hypervisor(host, firmware)
    cloud = ""
    for field, mark, name in table("host/system/virtual_machines")["clouds"]:
        value = firmware[field]
        if value.startswith(mark) or (field == "bios_version" and mark in value):
            cloud = name
            break
    return {
        "vendor": firmware["sys_vendor"],
        "product": firmware["product_name"] or product,
        "virtualisation": hypervisor,
        "virtualisation_evidence": evidence,
        "cloud": cloud,
    }


def asset_tags() -> tuple[str, ...]:
    """Return the beginnings of asset tags that name a cloud; any other one names a machine."""
    clouds = table("host/system/virtual_machines")["clouds"]
    return tuple(mark for field, mark, _ in clouds if field == "chassis_asset_tag")


def _hypervisor(host: Host, firmware: dict[str, str]) -> tuple[str, str]:
    """Return the hypervisor, and what names it."""
    if host.read("/sys/hypervisor/type", 64) == "xen":
        return "xen", "/sys/hypervisor/type"
    # What an x86 processor says; others have no such flag. The first processor is enough, and reading all
    # takes milliseconds on a large machine.
    has_flag: bool | None = None
    for line in host.read("/proc/cpuinfo", 8192).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            has_flag = "hypervisor" in value.split()
            break
    if has_flag is False:
        return "none", "/proc/cpuinfo lists no hypervisor flag"
    product = (firmware["sys_vendor"], firmware["product_name"])
    if product == ("Microsoft Corporation", "Virtual Machine"):
        return "hyperv", f"{_DMI}/product_name"
    clocks = host.read(_CLOCK, 256).split()
    for beginning, name in table("host/system/virtual_machines")["clock_sources"]:
        if any(clock.startswith(beginning) for clock in clocks):
            return name, "the kernel's clock sources"
    for field, beginning, name in table("host/system/virtual_machines")["hypervisors"]:
        if firmware[field].startswith(beginning):
            return name, f"{_DMI}/{field}"
    if host.is_dir("/sys/bus/vmbus/devices"):
        return "hyperv", "/sys/bus/vmbus"
    # Arm, POWER and Z machines.
    compatible = host.read("/proc/device-tree/hypervisor/compatible", 256)
    for beginning, name in (("linux,kvm", "kvm"), ("xen", "xen"), ("vmware", "vmware")):
        if compatible.startswith(beginning):
            return name, "/proc/device-tree/hypervisor"
    if host.exists("/proc/device-tree/ibm,partition-name"):
        return "powervm", "/proc/device-tree/ibm,partition-name"
    for line in host.read("/proc/sysinfo", 16384).splitlines():
        name, _, value = line.partition(":")
        if name.startswith("VM") and name.endswith("Control Program"):
            return "kvm" if "KVM" in value else "zvm", "/proc/sysinfo"
    return ("unknown", "the flag in /proc/cpuinfo") if has_flag else ("", "")
