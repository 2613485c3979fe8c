"""Which Windows this is, what it runs in, its settings, its memory, and the limits of a job object.

Source: RtlGetVersion; GlobalMemoryStatusEx; SYSTEM_PAGEFILE_INFORMATION; "Large-Page Support"; winnt.h,
JOBOBJECT_EXTENDED_LIMIT_INFORMATION and JOBOBJECT_CPU_RATE_CONTROL_INFORMATION; Windows release information;
Hypervisor Top Level Functional Specification, 2.4; "TDR registry keys"; "Maximum Path Length Limitation";
Microsoft Visual C++ Redistributable, "Redistribute".
"""

from math import inf
from typing import Any

from mlbackends.base.quantities import format_cpu_list, one_line
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.windows.cpu import signature_text
from mlbackends.host.windows.processors import cpus_in

#: The accounts of a container of Windows, which name nobody.
CONTAINER_USERS = ("ContainerAdministrator", "ContainerUser")

_NT = "HKLM\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion"
_CONTROL = "HKLM\\SYSTEM\\CurrentControlSet\\Control"
_LXSS = "HKCU\\Software\\Microsoft\\Windows\\CurrentVersion\\Lxss"
_BIOS = "HKLM\\HARDWARE\\DESCRIPTION\\System\\BIOS"
_RUNTIMES = "HKLM\\SOFTWARE\\Microsoft\\VisualStudio\\14.0\\VC\\Runtimes"
#: CpuManagement, a privilege that Hyper-V gives to the system that manages the others alone.
_OF_ROOT_PARTITION = 1 << 12


def system_facts(host: Host) -> dict[str, Any]:
    """Return release, edition and build, what it runs in, its settings and WSL."""
    version = host.system("windows_version") or {}
    current = host.registry(_NT, *_VERSIONS, "EditionID", "UBR")
    build, wine = version.get("build", 0), host.system("wine_version")
    rows = table("host/windows/names")["clients" if version.get("product_type", 1) == 1 else "servers"]
    # The evidence that this is a container of Windows, with its own registry.
    signs = []
    if kind := host.registry(_CONTROL, "ContainerType").get("ContainerType"):
        signs.append(f"the registry's ContainerType is {kind}")
    if host.registry("HKLM\\SYSTEM\\CurrentControlSet\\Services\\cexecsvc", "Start"):
        signs.append("the service cexecsvc")
    if host.env("USERNAME") in CONTAINER_USERS:
        signs.append(f"the user {host.env('USERNAME')}")
    kinds = {"AMD64": "X64", "X86_64": "X64", "ARM64": "ARM64"}
    key = f"{_RUNTIMES}\\{kinds.get(host.machine.upper(), 'X86')}"
    runtime = host.registry(key, "Version", "Installed")
    # Those of WSL that this user has; none is started.
    distributions = (
        host.registry(f"{_LXSS}\\{name}", "DistributionName", "Version") for name in host.registry_keys(_LXSS)
    )
    facts = {
        "os_id": "windows",
        "os_name": "Wine" if wine else next((row[1] for row in rows if build >= row[0]), "Windows"),
        "os_version": wine or next((str(current[value]) for value in _VERSIONS if current.get(value)), ""),
        "os_edition": current.get("EditionID", ""),
        "kernel_release": "",  # what Python calls so is the name again
        "windows_build": build or None,
        "os_build": f"{build}.{current['UBR']}" if "UBR" in current else str(build or ""),
        "wine_version": wine,
        "native_machine": host.system("native_machine"),
        "vc_runtime_version": str(runtime.get("Version", "")).removeprefix("v"),
        "uptime_seconds": host.system("uptime"),
        "container": "windows" if signs else "none",
        "container_evidence": [f"windows: {sign}" for sign in signs] or None,
        # The settings that were made; for others Windows uses its own default.
        **{
            fact: values.get(str(value)) if values else value
            for fact, (key, name, values) in table("host/windows/names")["settings"].items()
            if isinstance(value := host.registry(key, name).get(name), int)
        },
        "wsl_distributions": [
            {"name": one_line(str(row["DistributionName"])), "version": row.get("Version", 1)}
            for row in distributions
            if "DistributionName" in row
        ]
        or None,
    }
    return {name: one_line(value) if isinstance(value, str) else value for name, value in facts.items()}


_VERSIONS = ("DisplayVersion", "ReleaseId", "CSDVersion")


def firmware(host: Host) -> dict[str, str]:
    """Return the firmware's table by Linux's names of its fields; "" for missing ones."""
    names = {
        "sys_vendor": "SystemManufacturer",
        "product_name": "SystemProductName",
        "bios_vendor": "BIOSVendor",
        "bios_version": "BIOSVersion",
    }
    values = host.registry(_BIOS, *names.values())
    fields = {field: one_line(str(values.get(name, ""))) for field, name in names.items()}
    return {**fields, "chassis_asset_tag": ""}


def hypervisor(host: Host) -> tuple[str, str]:
    """Return the hypervisor and its evidence; "none" in the system that manages Hyper-V's guests."""
    leaves = host.system("cpuid")
    if not leaves:
        return "", ""
    if "40000000" not in leaves:
        return "none", "CPUID has no hypervisor flag"
    name = signature_text(*leaves["40000000"][1:])
    kind = table("host/windows/names")["hypervisors"].get(name.strip(), "unknown")
    if kind == "hyperv" and leaves.get("40000003", [0, 0])[1] & _OF_ROOT_PARTITION:
        return "none", "CPUID: Hyper-V's root partition"
    return kind, f"CPUID: {name}" if name else "the flag of CPUID"


# ---- memory, and the limits of a job object ----------------------------------------------------------

_PROCESSES, _AFFINITY, _PROCESS_MEMORY, _JOB_MEMORY = 0x8, 0x10, 0x100, 0x200
_CPU_ON, _CPU_WEIGHT, _CPU_HARD, _CPU_RANGE = 0x1, 0x2, 0x4, 0x10
_WHOLE_RATE = 10_000


def memory_facts(host: Host) -> dict[str, Any]:
    """Return memory, commit limit, page files, large pages and the free memory of each NUMA node."""
    status = host.system("memory_status") or {}
    page, free = host.system("page_size") or 4096, host.system("node_memory") or ()
    files = host.system("page_files")
    limit, left = status.get("commit_limit"), status.get("commit_left", 0)
    facts: dict[str, Any] = {
        "total_bytes": status.get("total"),
        "installed_bytes": status.get("installed"),
        "available_bytes": status.get("available"),
        "commit_limit_bytes": limit,
        "committed_bytes": max(0, limit - left) if limit else None,
        "large_page_bytes": status.get("large_page") or None,
        "large_pages_allowed": host.system("may_lock_memory"),
        "nodes_free": [{"node": node, "free_bytes": size} for node, size in enumerate(free)],
    }
    if files is not None:
        sizes = [(int(file["pages"]) * page, int(file["used"]) * page) for file in files]
        facts |= {
            "swap_total_bytes": sum(size for size, _ in sizes),
            "swap_free_bytes": sum(size - used for size, used in sizes),
            "swaps": [
                {"path": file["path"], "kind": "file", "size_bytes": size}
                for file, (size, _) in zip(files, sizes, strict=True)
            ],
        }
    return facts


def job_limits(host: Host, online: int) -> dict[str, Any]:
    """Return what the innermost job object limits: infinity for nothing, None if it cannot be determined.

    online: the CPUs of which the job's rate is a share.
    """
    job = host.system("job")
    if job is None:
        return {}
    flags, cpu, rate = (job.get(name, 0) for name in ("flags", "cpu_flags", "cpu_rate"))
    quota: float = inf
    if cpu & _CPU_ON and cpu & (_CPU_HARD | _CPU_RANGE):
        share = rate >> 16 if cpu & _CPU_RANGE else rate
        quota = round(online * share / _WHOLE_RATE, 2) if share < _WHOLE_RATE else inf
    is_weighted = cpu & _CPU_ON and cpu & _CPU_WEIGHT
    groups = job.get("groups") or [[0, job.get("affinity", 0)]]
    cpus = [number for group, mask in groups for number in cpus_in(mask, group)]
    is_bound = bool(flags & _AFFINITY) and bool(job.get("affinity"))
    return {
        "cgroup_version": "none",
        "job_object": bool(job),
        "job_affinity": format_cpu_list(cpus) if is_bound or len(groups) > 1 else "",
        "job_cpu_weight": rate if is_weighted else None,
        # An old Windows has no rate.
        "cpu_quota": quota if "cpu_flags" in job or not job else None,
        "memory_limit_bytes": job.get("job_memory") if flags & _JOB_MEMORY else inf,
        "process_memory_limit_bytes": job.get("process_memory") if flags & _PROCESS_MEMORY else inf,
        "process_limit": job.get("processes") if flags & _PROCESSES else inf,
    }
