"""What is mounted where, as the kernel tells a process.

Source: proc_pid_mountinfo(5).

The auxiliary vector: what the kernel told a process at its start, by /proc/self/auxv.

Source: getauxval(3); the bits stand in each architecture's <asm/hwcap.h> or <asm/cputable.h>.

The boot parameters that change speed or devices: all of the kernel's command line that is told.

The others name disks, servers, addresses and keys.

Source: Linux Documentation/admin-guide/kernel-parameters.txt.

The kernel's settings on macOS and the BSDs, as `sysctl -a` prints them.
"""

import struct

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.host.quantities import whole_number
from mlbackends.model.patterns import pattern

_MOUNTS_LIMIT = 16384
_ESCAPED = pattern(r"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """One mount.

    root: the folder of the file system that is mounted, "/" for all of it. point: where.
    options: those of the file system, such as the controllers of a cgroup hierarchy.
    """

    root: str
    point: str
    kind: str
    options: tuple[str, ...] = ()


def mounts(host: Host) -> tuple[Mount, ...]:
    """Return the mounts in the order they were made; a later one hides an earlier at its point.

    With a process to look at (`host.pid`), they are still ours: its mount points may mean nothing
    outside its container.
    """
    cached: tuple[Mount, ...] | None = host.__dict__.get("_mounts")
    if cached is None:
        # Host takes /proc/self for the process that is looked at; thread-self is always ours.
        whose = "self" if host.pid is None else "thread-self"
        lines = host.read(f"/proc/{whose}/mountinfo").splitlines()[:_MOUNTS_LIMIT]
        cached = tuple(mount for mount in map(_mount, lines) if mount is not None)
        host.__dict__["_mounts"] = cached
    return cached


def mounted_at(host: Host, point: str) -> Mount | None:
    """Return what is mounted at exactly this point, None where nothing is."""
    for mount in reversed(mounts(host)):
        if mount.point == point:
            return mount
    return None


def _mount(line: str) -> Mount | None:
    # The optional fields before " - " vary in number.
    where, _, what = line.partition(" - ")
    try:
        _, _, _, root, point, _, *_ = where.split(" ")
        kind, _, options = what.split(" ", 2)
    except ValueError:
        return None
    if not point.startswith("/"):
        return None
    return Mount(_plain(root), _plain(point), kind, tuple(options.split(",")))


def _plain(path: str) -> str:
    """Return a path with the kernel's octal escapes undone, as for a space."""
    if "\\" not in path:
        return path
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8) & 0x7F), path)


PAGE_SIZE = 6
HWCAP = 16
HWCAP2 = 26

_LAYOUTS = ("<Q", ">Q", "<I", ">I")
_HIGHEST_KEY = 4096


def auxiliary_vector(host: Host) -> dict[int, int]:
    """Return the entries by number; {} where the file is missing or makes no sense.

    A recorded machine may have another byte order and word length than ours: the layout in which
    every key is small and the last one is 0 is the right one.
    """
    data = host.read_bytes("/proc/self/auxv", 8192)
    for layout in _LAYOUTS:
        pair = struct.Struct(f"{layout[0]}2{layout[1]}")
        whole = data[: len(data) // pair.size * pair.size]
        entries = list(pair.iter_unpack(whole))
        keys = [key for key, _ in entries]
        if 0 not in keys or entries[keys.index(0)][1] != 0:
            continue
        entries = entries[: keys.index(0)]
        if entries and all(0 < key < _HIGHEST_KEY for key, _ in entries):
            return dict(entries)
    return {}


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


def system_controls(host: Host) -> dict[str, str]:
    """Return every setting by its name; asked once a host, {} where there is no such command."""
    cached: dict[str, str] | None = host.__dict__.get("_system_controls")
    if cached is None:
        cached = {}
        for line in host.run("sysctl", "-a").splitlines():
            name, separator, value = line.partition(":")
            if separator and " " not in name and "\t" not in name:
                cached[name] = value.strip()
        host.__dict__["_system_controls"] = cached
    return cached


def control_number(controls: dict[str, str], *names: str) -> int | None:
    """Return the first of these settings that is a positive whole number, None if none is."""
    for name in names:
        number = whole_number(controls.get(name, ""), lowest=1)
        if number is not None:
            return number
    return None
