"""Host: the operating system, and what it runs in.

Finds:    the distribution, kernel and C library, the container, WSL and hypervisor around them,
          /dev/shm, the boot parameters that matter here, the firmware, drivers and packages that the nodes of
          a cluster differ in, and GPUs and accelerators on the PCI bus.
Caveats:  the signs of a container are not proof: an image that was made into a virtual machine keeps its
          marker files. `container_evidence` lists the signs.
Source:   os-release(5); proc(5); Linux kernel-parameters.txt; podman-run(1); SMBIOS strings of the
          hypervisors and clouds; Docker, "--shm-size".
"""

import re
import shlex
import time
from typing import Any

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import decimal, one_line, word
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.pci import PciDevice, pci_devices
from mlbackends.host.system.kernel import kernel_parameters, mounted_at, mounts, system_controls
from mlbackends.host.system.rows import only_row
from mlbackends.host.system.surroundings import container_signs, virtual_machine, wsl_version
from mlbackends.libraries.c_runtime import c_library, cxx_library
from mlbackends.libraries.package_versions import package_versions
from mlbackends.model.records import FactValue, Finding, Presence, nonempty

GROUP = "machine"
SUMMARY = (
    "{os_name} {os_version}",
    "build {windows_build}",
    "{kernel_name} {kernel_release}",
    "{libc} {libc_version}",
    "container: {container}",
    "WSL {wsl_version}",
    "virtualisation: {virtualisation}",
    "{shared_memory_bytes} in /dev/shm",
    "up {uptime_seconds}",
)
USUAL = {"container": "none", "virtualisation": "none"}

#: Accelerators without an accelerator's class, by vendor.
_OTHER_ACCELERATORS = {
    "1ae0": frozenset({"0027", "0056", "005e", "0062", "0063", "006f"}),  # TPUs
    "1d0f": frozenset({"7064", "7065", "7066", "7067", "7164", "7264", "7364"}),  # Neuron
}

_UNAME = {
    "kernel_name": "sysname",
    "kernel_release": "release",
    "kernel_version": "version",
    "machine": "machine",
    "host_name": "nodename",
}
#: SMBIOS 3.7, 7.4.1: portable, laptop, notebook, sub notebook, tablet, convertible, detachable.
_LAPTOPS = (8, 9, 10, 14, 30, 31, 32)
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_VC_RUNTIME = ("vcruntime140", "vcruntime140_1", "msvcp140")
_PLIST_ENTRY = pattern(r"<key>(\w+)</key>\s*<string>([^<]{1,100})</string>")
_BOOT_ID = frozenset("0123456789abcdefABCDEF-")
_BOOT_TIME = pattern(r"sec = (\d{1,12})")


def find(host: Host) -> Finding:
    """Read the system's description of itself and of what it runs in."""
    names = host.uname()
    facts: dict[str, Any] = {"platform": host.platform}
    facts |= {name: names.get(field, "") for name, field in _UNAME.items()}
    if host.platform == "darwin":
        facts |= _macos(host)
    elif host.platform == "win32":
        from mlbackends.host.windows.system import system_facts
        from mlbackends.libraries.windows import file_version, system_folder

        devices = pci_devices(host)
        facts |= {
            **dict(zip(("libc", "libc_version"), c_library(host), strict=True)),
            **system_facts(host),
            "vc_runtime_files": [
                {"path": path, "version": version}
                for path in (f"{system_folder(host)}/{name}.dll" for name in _VC_RUNTIME)
                if (version := file_version(host, path))
            ]
            or None,
            "directml_version": file_version(host, f"{system_folder(host)}/DirectML.dll"),
            "d3d12_version": file_version(host, f"{system_folder(host)}/D3D12.dll"),
            **virtual_machine(host),
            "pci_accelerators": [row for device in devices if (row := _accelerator(device))] or None,
        }
    elif host.platform == "linux":
        # The second place is for where the first is missing.
        text = host.read("/etc/os-release", 65536) or host.read("/usr/lib/os-release", 65536)
        release: dict[str, str] = {}
        for line in text.splitlines():
            name, separator, value = line.strip().partition("=")
            if separator and not name.startswith("#"):
                release[name] = _unquoted(value) or release.get(name, "")
        for name, field in (("os_id", "ID"), ("os_name", "NAME"), ("os_version", "VERSION_ID")):
            facts[name] = release.get(field, "")
        facts["libc"], facts["libc_version"] = c_library(host)
        facts["libstdcxx_path"], facts["libstdcxx_version"] = cxx_library(host)
        # InfiniBand, Ethernet; Unknown for EFA.
        ports = host.glob("/sys/class/infiniband/*/ports/*/link_layer")
        layers = {word(host.read(port, 64)) for port in ports}
        boot = host.read("/proc/sys/kernel/random/boot_id", 128)
        uptime = decimal(host.read("/proc/uptime", 128).partition(" ")[0])
        devices = pci_devices(host)
        facts |= {
            "boot_id": boot if _BOOT_ID.issuperset(boot) and 8 <= len(boot) <= 40 else "",
            "uptime_seconds": uptime,
            **_around(host),
            **_shared_memory(host),
            "kernel_parameters": kernel_parameters(host.read("/proc/cmdline", 65536)),
            **_modules(host),
            **only_row(host, "bios", "bmc"),
            "package_versions": package_versions(host),
            # What computes among the PCI devices, where there is PCI.
            "pci_accelerators": [row for device in devices if (row := _accelerator(device))]
            if devices
            else None,
            "rdma_devices": host.listdir("/sys/class/infiniband") or None,
            "rdma_link_layers": sorted(layers - {""}) or None,
        }
    reported = {name: value for name, value in facts.items() if value not in ("", {}, None)}
    return Finding(presence=Presence.FOUND, facts=reported)


def _unquoted(value: str) -> str:
    """Return a value as the shell would read it; "" if it would not take it for one word.

    What a shell would replace ($name, `command`) is not allowed in os-release, and counts as such.
    """
    try:
        word, *rest = shlex.split(value) or [""]
    except ValueError:  # a quote that is not closed
        return ""
    if re.search(r"(?<!\\)[$`]", value) or (rest and not rest[0].startswith("#")):
        return ""
    return one_line(re.sub(r"\\([$`])", r"\1", word), 200)


def _around(host: Host) -> dict[str, Any]:
    """Return what the system runs in (container, WSL, hypervisor, cloud) and what confines it."""
    signs = container_signs(host)
    state = host.read("/sys/fs/selinux/enforce", 16)
    has_apparmor = host.read("/sys/module/apparmor/parameters/enabled", 16) == "Y"
    profile = host.read("/proc/self/attr/apparmor/current", 256) if has_apparmor else ""
    chassis = host.read_int("/sys/class/dmi/id/chassis_type")
    mains = [host.read_int(path) for path in host.glob("/sys/class/power_supply/*/online")]
    return {
        "container": signs[0][0] if signs else "none",
        "container_evidence": [f"{kind}: {sign}" for kind, sign in signs] or None,
        "wsl_version": wsl_version(host),
        **virtual_machine(host),
        "selinux": {"0": "permissive", "1": "enforcing"}.get(state, ""),
        "apparmor_profile": profile,
        "is_laptop": chassis in _LAPTOPS if chassis else None,
        "on_battery": mains == [0] * len(mains) if mains else None,
        # Four bytes of attributes, then the value.
        "secure_boot": {b"\1": True, b"\0": False}.get(host.read_bytes(_SECURE_BOOT, 8)[4:]),
    }


def _shared_memory(host: Host) -> dict[str, FactValue]:
    """Return the size of /dev/shm if it is a separate file system."""
    at = host.realpath("/dev/shm")  # noqa: S108  it is measured, nothing is written
    if mounts(host) and mounted_at(host, at) is None:
        return {}
    size = host.disk("/dev/shm")  # noqa: S108
    # A tmpfs without a limit has size 0.
    if size is None or not 0 <= size[1] <= size[0] or not size[0]:
        return {}
    return {"shared_memory_bytes": size[0], "shared_memory_free_bytes": size[1]}


def _modules(host: Host) -> dict[str, Any]:
    """Return which loaded modules are not the kernel's own, and the versions of these and of known drivers.

    A module without a version has the hash of its source. In brackets at the end of a line of /proc/modules
    are letters; O is for out of tree. Source: Linux Documentation/admin-guide/tainted-kernels.rst.
    """
    listed, versions = table("host/system/drivers"), {}
    lines = host.read("/proc/modules", 1 << 20).splitlines()[:2048]
    loaded = {line.partition(" ")[0]: "O" in line.rpartition(" ")[2].partition("(")[2] for line in lines}
    foreign = {name for name, is_foreign in loaded.items() if is_foreign and word(name)}
    foreign -= {*listed["loaded_at_first_use"]}
    for name in sorted(foreign.union(listed["drivers"]).intersection(loaded))[:256]:
        read = (host.read(f"/sys/module/{name}/{field}", 256) for field in ("version", "srcversion"))
        versions[name] = one_line(next(filter(None, read), ""), 64)
    return {"module_versions": nonempty(versions), "out_of_tree_modules": sorted(foreign)[:256] or None}


def _accelerator(device: PciDevice) -> dict[str, FactValue]:
    """Return the row of a device that computes, {} for another."""
    computes = device.is_display or device.is_accelerator or device.class_code.startswith("0b40")
    if not computes and device.device not in _OTHER_ACCELERATORS.get(device.vendor, ()):
        return {}
    row = {
        "address": device.address,
        "vendor": device.vendor,
        "vendor_name": table("host/pci_names")["vendors"].get(device.vendor, ""),
        "device": device.device,
        "class": device.class_code,
        "driver": device.driver,
        "numa_node": device.numa_node,
    }
    return nonempty(row)


def _macos(host: Host) -> dict[str, Any]:
    """Return the facts in the version file and the kernel's settings.

    Python's platform.mac_ver() returns 10.16 on some systems, so it is not used.
    """
    text = host.read("/System/Library/CoreServices/SystemVersion.plist", 65536)
    entries, controls = dict(_PLIST_ENTRY.findall(text)), system_controls(host)
    guest = controls.get("kern.hv_vmm_present", "")
    started = _BOOT_TIME.search(controls.get("kern.boottime", ""))
    uptime = time.time() - int(started[1]) if started and host.is_live else None
    return {
        "os_id": "macos" if entries else "",
        "os_name": entries.get("ProductName", ""),
        "os_version": entries.get("ProductVersion", ""),
        "os_build": entries.get("ProductBuildVersion", ""),
        "vendor": "Apple" if entries else "",
        "product": controls.get("hw.model", ""),
        "boot_id": controls.get("kern.bootsessionuuid", ""),
        "virtualisation": {"0": "none", "1": "unknown"}.get(guest, ""),
        "virtualisation_evidence": "kern.hv_vmm_present" if guest else "",
        "rosetta": {"0": False, "1": True}.get(controls.get("sysctl.proc_translated", "")),
        "uptime_seconds": None if uptime is None else round(max(0.0, uptime), 1),
    }
