"""What this process runs in: a container, Windows's subsystem, a batch job, a virtual machine, a cloud.

For containers these are signs, not proof: an image may have been copied into a virtual machine with its
marker files, and a container may hide all of them. So each sign is reported with the kind that it suggests.
No cloud's metadata service is queried: nothing here uses the network.

Source: systemd, CONTAINER_INTERFACE.md; podman-run(1); Apptainer and WSL documentation; Slurm, sbatch(1)
"OUTPUT ENVIRONMENT VARIABLES" (memory is in megabytes); LSF reference, "Environment variables set for job
execution"; PBS, qsub(1B); Grid Engine, submit(1); Linux Documentation/ABI/testing/sysfs-firmware-dmi-entries
and sysfs-hypervisor-xen; the SMBIOS strings of hypervisors and clouds, as in systemd-detect-virt(1).
"""

from mlbackends.base.quantities import one_line, whole_number
from mlbackends.base.tables import table
from mlbackends.host.cpu.cpuinfo import first, parse_blocks
from mlbackends.host.host import Host
from mlbackends.host.pci import pci_devices
from mlbackends.host.system.kernel import mounted_at
from mlbackends.model.records import FactValue

#: Files in which a container manager, or systemd for it, leaves its name.
_MANAGERS = ("/run/systemd/container", "/run/host/container-manager")
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io"
_MEGABYTES_LIMIT = 1 << 40
_DMI = "/sys/class/dmi/id"
_FIELDS = ("sys_vendor", "product_name", "bios_vendor", "bios_version", "chassis_asset_tag")
_CLOCK = "/sys/devices/system/clocksource/clocksource0/available_clocksource"


def container_signs(host: Host) -> list[tuple[str, str]]:
    """Return the kinds of container for which there is evidence, each with its evidence; best first."""
    signs = table("host/system/containers")
    evidence = [(kind, path) for kind, path in signs["files"] if host.exists(path)]
    evidence += [(kind, variable) for kind, variable in signs["variables"] if host.env(variable)]
    named = [(path, host.read(path, 256)) for path in _MANAGERS]
    for place, name in (*named, ("the variable container", host.env("container"))):
        if kind := signs["managers"].get(name.strip().lower()):
            evidence.append((kind, place))
    paths = host.read("/proc/self/cgroup", 65536)
    in_paths = [sign for sign in signs["cgroup_paths"] if sign[1] in paths]
    evidence += [(kind, f"/proc/self/cgroup, {part}") for kind, part in in_paths]
    root = mounted_at(host, "/")
    options = root.options if root is not None and root.kind == "overlay" else ()
    upper = next((option for option in options if option.startswith("upperdir=")), "")
    in_upper = [kind for kind, part in signs["overlay_paths"] if part in upper]
    return evidence + [(kind, "the overlay mounted at /") for kind in in_upper]


def wsl_version(host: Host) -> int | None:
    """Return 1 or 2 inside the Windows Subsystem for Linux, None outside."""
    release = host.read("/proc/sys/kernel/osrelease", 256) or host.uname().get("release", "")
    if "microsoft" in release.lower():
        # WSL 1 does not have its own kernel, and its release is always 4.4.0-<build>-Microsoft.
        return 1 if release.startswith("4.4.0-") and release.endswith("-Microsoft") else 2
    # A kernel of the user's own need not carry the name; Hyper-V guests have /dev/dxg as well.
    if host.env("WSL_DISTRO_NAME") or host.exists("/proc/sys/fs/binfmt_misc/WSLInterop"):
        return 2 if host.exists("/dev/dxg") or host.is_dir("/usr/lib/wsl/lib") else None
    return None


def granted(host: Host) -> dict[str, FactValue]:
    """Return the facts `kubernetes` and `scheduler...`: what a batch system granted to this process.

    schedulers.json lists for each system the variables that must be set, of which the first holds the job's
    name, and for each fact the variables that may hold it; the first that is a number counts.
    """
    facts: dict[str, FactValue] = {}
    if host.env("KUBERNETES_SERVICE_HOST") or host.exists(_SERVICE_ACCOUNT):
        facts["kubernetes"] = True
    for name, scheduler in table("host/system/schedulers").items():
        if not all(map(host.env, scheduler["signs"])):
            continue
        facts["scheduler"] = name
        facts["scheduler_job"] = host.env(scheduler["signs"][0])[:200]
        for fact, variables in scheduler["numbers"].items():
            numbers = (whole_number(host.env(variable), lowest=1) for variable in variables)
            if number := next(filter(None, numbers), None):
                facts[fact] = number
        for fact, variable in scheduler["megabytes"].items():
            size = whole_number(host.env(variable), lowest=1, highest=_MEGABYTES_LIMIT)
            if size is not None:
                facts[fact] = size << 20
        break
    return facts


def virtual_machine(host: Host) -> dict[str, str]:
    """Return the facts about the vendor, product, hypervisor and cloud of this machine.

    virtual_machines.json lists fields of the firmware's table, how a value begins, and the hypervisor or
    cloud that writes it (metal_too: also on bare machines); clock sources and PCI devices that only a guest
    has; and device trees, of which OPAL's (ibm,powernv) is that of a bare machine. "" for what is not known.
    virtualisation: "none" if no hypervisor is named and the CPU reports none, "unknown" if the CPU reports
    one and nothing names it.
    """
    has_table = host.is_dir(_DMI)
    firmware = dict.fromkeys(_FIELDS, "")
    product = host.read("/proc/device-tree/model", 256).strip("\0 \n") if not has_table else ""
    if has_table:
        firmware = {name: one_line(host.read(f"{_DMI}/{name}", 256)) for name in _FIELDS}
    if host.platform == "win32":
        from mlbackends.host.windows import system as windows

        firmware = windows.firmware(host)
        hypervisor, evidence = windows.hypervisor(host)
    else:
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


def _hypervisor(host: Host, firmware: dict[str, str]) -> tuple[str, str]:
    """Return the hypervisor and its evidence.

    The firmware and the devices outrank the CPU: a guest may be configured to hide the flag.
    """
    if host.read("/sys/hypervisor/type", 64) == "xen":
        return "xen", "/sys/hypervisor/type"
    # Only x86 CPUs have the flag. The first CPU is enough; reading all takes milliseconds on a large machine.
    blocks = parse_blocks(host.read("/proc/cpuinfo", 8192))
    if first(blocks, "vendor_id") == "User Mode Linux":
        return "uml", "/proc/cpuinfo"
    flags = first(blocks, "flags")
    has_flag = "hypervisor" in flags.split() if flags else None
    names = table("host/system/virtual_machines")
    product = (firmware["sys_vendor"], firmware["product_name"])
    if product == ("Microsoft Corporation", "Virtual Machine"):
        return "hyperv", f"{_DMI}/product_name"
    clocks = host.read(_CLOCK, 256).split() if has_flag is not False else []
    for beginning, name in names["clock_sources"]:
        if any(clock.startswith(beginning) for clock in clocks):
            return name, "the kernel's clock sources"
    if ".metal" in firmware["product_name"] and firmware["sys_vendor"].startswith("Amazon"):
        return "none", f"{_DMI}/product_name"  # "m7g.metal-48xl"; others have the Nitro hypervisor
    for field, beginning, name in names["hypervisors"]:
        is_metal = has_flag is False and beginning in names["metal_too"]
        if firmware[field].startswith(beginning) and not is_metal:
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
    lines = host.read("/proc/sysinfo").splitlines()
    pairs = dict(line.split(":", 1) for line in lines if ":" in line)
    for name, value in pairs.items():
        if name.startswith("VM") and name.endswith("Control Program"):
            return "kvm" if "KVM" in value else "zvm", "/proc/sysinfo"
    if any(name.startswith("LPAR ") for name in pairs):
        return "pr/sm", "/proc/sysinfo"
    devices = [
        (device.address, device.vendor, device.device, device.subsystem) for device in pci_devices(host)
    ]
    if not devices:  # "0010    80eebeef ...": bus, slot and function, vendor and device
        lines = host.read("/proc/bus/pci/devices").splitlines()
        devices = [(line[:4], line[5:9], line[9:13], "") for line in lines]
    for address, vendor, number, subsystem in devices:
        by_id = (name for mark, name in names["pci"] if f"{vendor}:{number}".startswith(mark))
        if name := next(by_id, names["pci_subsystems"].get(subsystem, "")):
            return name, f"the PCI device {address}, {vendor}:{number}"
    machines = host.read("/proc/device-tree/compatible", 256).split("\0")
    for beginning, name in names["device_trees"]:
        if any(model.startswith(beginning) for model in machines):
            return name, "/proc/device-tree/compatible"
    if has_flag is False:
        return "none", "/proc/cpuinfo lists no hypervisor flag"
    return ("unknown", "the flag in /proc/cpuinfo") if has_flag else ("", "")
