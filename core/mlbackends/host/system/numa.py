"""NUMA nodes: their CPUs and memory, and the kind of memory of a node without CPUs.

Source: Linux, Documentation/ABI/stable/sysfs-devices-node, admin-guide/mm/numaperf.rst and
ABI/testing/sysfs-kernel-mm-memory-tiers; for memory of GPUs, NVIDIA's /proc/driver/nvidia/gpus/*/numa_status,
as hwloc reads it.
"""

import re

from mlbackends.base.quantities import (
    format_cpu_list,
    meminfo,
    parse_cpu_list,
    parse_cpu_mask,
    whole_number,
)
from mlbackends.host.host import Host, once_per_host
from mlbackends.model.records import FactValue, nonempty

NODE = "/sys/devices/system/node"
_GPUS = "/proc/driver/nvidia/gpus"
_DAX = "/sys/bus/dax/devices"
_TIERS = "/sys/devices/virtual/memory_tiering"

#: What kind of memory a device of direct access is, by a part of its path.
#:
#: special-purpose: firmware reserves it, as HBM or CXL memory (EFI_MEMORY_SP). It is HBM if its bandwidth or
#: the kernel's tier is better than that of the CPUs' own memory.
_DAX_KINDS = {"/ndbus": "persistent", "/hmem": "special-purpose", "/dax_region": "cxl"}
#: HBM has at least this many times the bandwidth of the CPUs' own memory, as in hwloc.
_HBM_RATIO = 2

Nodes = list[dict[str, FactValue]]


@once_per_host
def numa_nodes(host: Host) -> Nodes:
    """Return each node's CPUs, memory and distances to the nodes in order; [] if there are none.

    kind: "gpu", "hbm", "cxl", "persistent" or "special-purpose", if that is known of a node without CPUs;
    near_cpus: the CPUs nearest to it. tier: the kernel's memory tier, lower is faster.
    memory_side_cache_bytes: the size of the cache in front of its memory. read_bandwidth_bytes_per_second: of
    the nearest CPUs, according to the firmware.
    """
    if host.platform == "win32":
        from mlbackends.host.windows import cpu as windows

        return windows.numa_nodes(host)
    memory = node_memory(host)
    cpus = {
        number: parse_cpu_list(host.read(f"{NODE}/node{number}/cpulist"))
        or parse_cpu_mask(host.read(f"{NODE}/node{number}/cpumap"))  # before 2.6.26
        for number in memory
    }
    devices: dict[int, tuple[str, str]] = {}
    tiers: dict[int, int] = {}
    bandwidths: dict[int, int] = {}
    if len(memory) > 1:  # most machines have one node, which has none of these
        devices = _devices(host)
        for name in host.listdir(_TIERS):
            if match := re.fullmatch(r"memory_tier(\d{1,6})", name):
                nodelist = parse_cpu_list(host.read(f"{_TIERS}/{name}/nodelist"))
                tiers |= dict.fromkeys(nodelist, int(match[1]))
        file = "access0/initiators/read_bandwidth"  # in MB/s
        rates = {number: host.read_int(f"{NODE}/node{number}/{file}") or 0 for number in memory}
        bandwidths = {node: rate * 10**6 for node, rate in rates.items() if 0 < rate < 1 << 32}
    slowest = min((rate for number, rate in bandwidths.items() if rate and cpus[number]), default=0)
    of_cpus = (tier for number, tier in tiers.items() if cpus.get(number) and number not in devices)
    usual = min(of_cpus, default=0)
    nodes: Nodes = []
    for number, sizes in memory.items():
        words = host.read(f"{NODE}/node{number}/distance", 65536).split()
        distances = [whole_number(word, highest=255) for word in words]
        kind, near = devices.get(number, ("", ""))
        rate = bandwidths.get(number)
        folder = f"{NODE}/node{number}/memory_side_cache"
        sizes_of_caches = (host.read_int(f"{folder}/{name}/size") for name in host.listdir(folder))
        side_caches = [size for size in sizes_of_caches if size and 0 < size < 1 << 50]
        is_fast = bool(slowest) and (rate or 0) >= _HBM_RATIO * slowest
        if kind == "special-purpose" and (is_fast or tiers.get(number, usual) < usual):
            kind = "hbm"
        if not cpus[number]:
            kind = kind or ("hbm" if is_fast else "")
            near = near or _near_cpus(host, number, dict(zip(memory, distances, strict=False)), cpus)
        facts: dict[str, FactValue | None] = {
            "memory_bytes": sizes.get("MemTotal"),
            "distances": distances if None not in distances else None,
            "kind": kind,
            "near_cpus": near,
            "tier": tiers.get(number),
            "memory_side_cache_bytes": max(side_caches, default=None),
            "read_bandwidth_bytes_per_second": rate,
        }
        nodes.append({"node": number, "cpus": format_cpu_list(cpus[number]), **nonempty(facts)})
    return nodes


@once_per_host
def node_memory(host: Host) -> dict[int, dict[str, int]]:
    """Return the numbers of each NUMA node's meminfo by the node's number, in their order."""
    names = (name.partition("node")[2] for name in host.listdir(NODE) if name.startswith("node"))
    numbers = {}
    for number in sorted(int(name) for name in names if name.isdecimal() and len(name) < 6):
        text = host.read(f"{NODE}/node{number}/meminfo", 16384)
        numbers[number] = meminfo(text.replace(f"Node {number} ", ""))
    return numbers


def gpu_memory(host: Host, name: str) -> int:
    """Return the sum of a number of meminfo over the nodes that are GPUs' memory; 0 without any."""
    memory = node_memory(host)
    gpus = (node["node"] for node in numa_nodes(host) if node.get("kind") == "gpu")
    return sum(memory[number].get(name, 0) for number in gpus if isinstance(number, int))


def _devices(host: Host) -> dict[int, tuple[str, str]]:
    """Return the kind of each node that is a device's memory, and the CPUs near that device."""
    kinds: dict[int, tuple[str, str]] = {}
    for name in host.listdir(_DAX):
        node = host.read_int(f"{_DAX}/{name}/target_node")
        path = host.realpath(f"{_DAX}/{name}")
        kind = next((kind for part, kind in _DAX_KINDS.items() if part in path), "")
        if node is not None and kind:
            kinds[node] = kind, ""
    for address in host.listdir(_GPUS):
        match = re.search(r"\bNode:\s*(\d{1,5})\b", host.read(f"{_GPUS}/{address}/numa_status", 4096))
        if match:
            near = parse_cpu_list(host.read(f"/sys/bus/pci/devices/{address}/local_cpulist"))
            kinds[int(match[1])] = "gpu", format_cpu_list(near)
    return kinds


def _near_cpus(
    host: Host, number: int, distances: dict[int, int | None], cpus: dict[int, tuple[int, ...]]
) -> str:
    """Return the CPUs that reach a node best by the kernel's list, else by the firmware's distances."""
    # access1 is of CPUs alone (Linux 5.11); access0 may name a device.
    for access in ("access1", "access0"):
        names = host.listdir(f"{NODE}/node{number}/{access}/initiators")
        near = {cpu for node, group in cpus.items() if f"node{node}" in names for cpu in group}
        if near:
            return format_cpu_list(near)
    with_cpus = {node: far for node, far in distances.items() if cpus[node] and far}
    nearest = min(with_cpus.values(), default=0)
    return format_cpu_list({cpu for node, far in with_cpus.items() if far == nearest for cpu in cpus[node]})
