"""The boot parameters that change speed or devices: all of the kernel's command line that is told.

The others name disks, servers, addresses and keys.

Source: Linux Documentation/admin-guide/kernel-parameters.txt.
"""

PARAMETERS = frozenset({
    "amd_iommu", "amd_pstate", "audit", "cgroup_disable", "cgroup_no_v1", "clearcpuid",
    "clocksource", "cpufreq.default_governor", "default_hugepagesz", "hugepages", "hugepagesz",
    "idle", "intel_idle.max_cstate", "intel_iommu", "intel_pstate", "iommu", "iommu.passthrough",
    "irqaffinity", "isolcpus", "l1tf", "maxcpus", "mds", "mem", "mitigations",
    "modprobe.blacklist", "module_blacklist", "nohz", "nohz_full", "nomodeset", "nopti", "nosmt",
    "nospectre_v2", "noxsave", "nr_cpus", "numa", "numa_balancing", "nvidia-drm.modeset", "pci",
    "pcie_acs_override", "pcie_aspm", "preempt", "processor.max_cstate", "pti", "rcu_nocbs",
    "rd.driver.blacklist", "retbleed", "skew_tick", "spec_store_bypass_disable", "spectre_v2",
    "swapaccount", "systemd.unified_cgroup_hierarchy", "transparent_hugepage", "tsc", "tsx",
    "tsx_async_abort",
})  # fmt: skip


def kernel_parameters(line: str) -> dict[str, str]:
    """Return the boot parameters that matter here; one that stands there twice with both values."""
    found: dict[str, str] = {}
    # What follows "--" is for init.
    for word in f" {line} ".split(" -- ")[0].split():
        name, _, value = word.partition("=")
        if name in PARAMETERS:
            found[name] = f"{found[name]} {value}" if name in found else value[:200]
    return found


def kept(line: str) -> str:
    """Return a command line without all the other parameters."""
    words = f" {line} ".split(" -- ")[0].split()
    return " ".join(word for word in words if word.partition("=")[0] in PARAMETERS)
