"""Which Windows this is, what it runs in, and its settings that matter to programs that compute.

Source: RtlGetVersion; Windows release information; Hypervisor Top Level Functional Specification, 2.4;
"TDR registry keys"; "Maximum Path Length Limitation"; Microsoft Visual C++ Redistributable, "Redistribute".
"""

from typing import Any

from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.quantities import one_line
from mlbackends.host.redaction import CONTAINER_USERS
from mlbackends.host.windows.cpu import signature_text

_NT = "HKLM\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion"
_CONTROL = "HKLM\\SYSTEM\\CurrentControlSet\\Control"
_LXSS = "HKCU\\Software\\Microsoft\\Windows\\CurrentVersion\\Lxss"
_BIOS = "HKLM\\HARDWARE\\DESCRIPTION\\System\\BIOS"
_RUNTIMES = "HKLM\\SOFTWARE\\Microsoft\\VisualStudio\\14.0\\VC\\Runtimes"
#: CpuManagement, a privilege that Hyper-V gives to the system that manages the others alone.
_OF_ROOT_PARTITION = 1 << 12


def system_facts(host: Host) -> dict[str, Any]:
    """Return release, edition and build, what it runs in, its settings, WSL and the drives."""
    version = host.system("windows_version") or {}
    current = host.registry(_NT, *_VERSIONS, "EditionID", "UBR")
    build = version.get("build", 0)
    rows = table("host/windows/names")[
        "clients" if version.get("product_type", 1) == 1 else "servers"
    ]
    signs = _container_signs(host)
    runtime = host.registry(f"{_RUNTIMES}\\{_runtime(host)}", "Version", "Installed")
    facts = {
        "os_id": "windows",
        "os_name": next((name for first, name in rows if build >= first), "Windows"),
        "os_version": next((str(current[each]) for each in _VERSIONS if current.get(each)), ""),
        "os_edition": current.get("EditionID", ""),
        "kernel_release": "",  # what Python calls so is the name again
        "windows_build": build or None,
        "os_build": f"{build}.{current['UBR']}" if "UBR" in current else str(build or ""),
        "wine_version": host.system("wine_version"),
        "native_machine": host.system("native_machine"),
        "vc_runtime_version": str(runtime.get("Version", "")).removeprefix("v"),
        "uptime_seconds": host.system("uptime"),
        "container": "windows" if signs else "none",
        "container_evidence": [f"windows: {sign}" for sign in signs] or None,
        **_settings(host),
        "wsl_distributions": _distributions(host) or None,
        **_drives(host),
    }
    return {name: one_line(each) if isinstance(each, str) else each for name, each in facts.items()}


_VERSIONS = ("DisplayVersion", "ReleaseId", "CSDVersion")


def _runtime(host: Host) -> str:
    machine = host.machine.upper()
    return {"AMD64": "X64", "X86_64": "X64", "ARM64": "ARM64"}.get(machine, "X86")


def _container_signs(host: Host) -> list[str]:
    """Return what shows that this is a container of Windows, with its own registry."""
    signs = []
    if kind := host.registry(_CONTROL, "ContainerType").get("ContainerType"):
        signs.append(f"the registry's ContainerType is {kind}")
    if host.registry("HKLM\\SYSTEM\\CurrentControlSet\\Services\\cexecsvc", "Start"):
        signs.append("the service cexecsvc")
    if host.env("USERNAME") in CONTAINER_USERS:
        signs.append(f"the user {host.env('USERNAME')}")
    return signs


def _settings(host: Host) -> dict[str, Any]:
    """Return the settings that were made; of what the registry does not hold Windows has its own default."""
    facts = {}
    for fact, (key, name, values) in table("host/windows/names")["settings"].items():
        value = host.registry(key, name).get(name)
        if isinstance(value, int):
            facts[fact] = values.get(str(value)) if values else value
    return facts


def _distributions(host: Host) -> list[dict[str, Any]]:
    """Return name and version of each distribution of WSL that this user has; none is started."""
    rows = (
        host.registry(f"{_LXSS}\\{name}", "DistributionName", "Version")
        for name in host.registry_keys(_LXSS)
    )
    return [
        {"name": one_line(str(row["DistributionName"])), "version": row.get("Version", 1)}
        for row in rows
        if "DistributionName" in row
    ]


def _drives(host: Host) -> dict[str, Any]:
    sizes = [(drive, host.disk(drive)) for drive in host.system("drives") or ()]
    known = [(drive, size) for drive, size in sizes if size]
    return {
        "drives": [{"path": drive, "total_bytes": size[0]} for drive, size in known] or None,
        "drives_free": [{"path": drive, "free_bytes": size[1]} for drive, size in known] or None,
    }


def firmware(host: Host) -> dict[str, str]:
    """Return what the firmware's table says, by Linux's names of its fields; "" for what it does not."""
    names = {
        "sys_vendor": "SystemManufacturer",
        "product_name": "SystemProductName",
        "bios_vendor": "BIOSVendor",
        "bios_version": "BIOSVersion",
    }
    values = host.registry(_BIOS, *names.values())
    found = {field: one_line(str(values.get(name, ""))) for field, name in names.items()}
    return {**found, "chassis_asset_tag": ""}


def hypervisor(host: Host) -> tuple[str, str]:
    """Return the hypervisor, and what names it; "none" in the system that manages Hyper-V's others."""
    leaves = host.system("cpuid")
    if not leaves:
        return "", ""
    if "40000000" not in leaves:
        return "none", "CPUID has no hypervisor flag"
    name = signature_text(*leaves["40000000"][1:])
    found = table("host/windows/names")["hypervisors"].get(name.strip(), "unknown")
    if found == "hyperv" and leaves.get("40000003", [0, 0])[1] & _OF_ROOT_PARTITION:
        return "none", "CPUID: Hyper-V's root partition"
    return found, f"CPUID: {name}" if name else "the flag of CPUID"
