"""The kernel's memory management: huge pages, swap, overcommit, limits.

Source: Linux, Documentation/admin-guide/mm/hugetlbpage.rst, transhuge.rst, sysctl/vm.rst; proc(5).
"""

import re

from mlbackends.base.quantities import meminfo, one_line, size_in_bytes, whole_number, word
from mlbackends.host.host import Host
from mlbackends.host.system.numa import gpu_memory, node_memory, numa_nodes
from mlbackends.model.records import FactValue, nonempty

MM = "/sys/kernel/mm"

Rows = list[dict[str, FactValue]]

_OVERCOMMIT = {0: "heuristic", 1: "always", 2: "never"}
_POOL = {"count": "nr_hugepages", "overcommit": "nr_overcommit_hugepages"}
_USE = {"free": "free_hugepages", "reserved": "resv_hugepages", "surplus": "surplus_hugepages"}


def total_memory(host: Host) -> int | None:
    """Return the system's memory in bytes, without that of GPUs; None if it is not known."""
    if host.platform == "win32":
        return (host.system("memory_status") or {}).get("total")
    # It is in the first line; the rest need not be read.
    return numbers_without_gpus(host, 1024).get("MemTotal") or None


def numbers_without_gpus(host: Host, limit: int = 65536) -> dict[str, int]:
    """Return the numbers of /proc/meminfo, without the memory of GPUs that the kernel counts.

    limit: how many bytes of the file are read.
    """
    numbers = meminfo(host.read("/proc/meminfo", limit))
    for name, counted in (
        ("MemTotal", "MemTotal"),
        ("MemAvailable", "MemFree"),
        ("MemFree", "MemFree"),
    ):
        if name in numbers:
            numbers[name] = max(0, numbers[name] - gpu_memory(host, counted))
    return numbers


def huge_pages(host: Host) -> tuple[Rows, Rows]:
    """Return each size of huge page with its pool, and the current use of each pool."""
    sizes = {
        size: name
        for name in host.listdir(f"{MM}/hugepages")
        if name.startswith("hugepages-") and (size := size_in_bytes(name[10:]))
    }
    pools: Rows = []
    uses: Rows = []
    for size, name in sorted(sizes.items()):
        for rows, files in ((pools, _POOL), (uses, _USE)):
            row: dict[str, FactValue] = {"page_bytes": size}
            for fact, file in files.items():
                count = whole_number(host.read(f"{MM}/hugepages/{name}/{file}", 64))
                row |= {} if count is None else {fact: count}
            rows.append(row)
    return pools, uses


def chosen(text: str) -> str:
    """Return the word in brackets of a choice ("always [madvise] never"); "" if there is none."""
    return word(text.partition("[")[2].partition("]")[0])


def settings(host: Host) -> dict[str, FactValue]:
    """Return the kernel's memory settings; those that it does not have are left out."""
    vm, thp, zswap = "/proc/sys/vm", f"{MM}/transparent_hugepage", "/sys/module/zswap/parameters"
    overcommit = whole_number(host.read(f"{vm}/overcommit_memory", 64), 0, 2)
    facts: dict[str, FactValue | None] = {
        "transparent_huge_pages": chosen(host.read(f"{thp}/enabled", 256)),
        "transparent_huge_pages_defrag": chosen(host.read(f"{thp}/defrag", 256)),
        "transparent_huge_pages_shared": chosen(host.read(f"{thp}/shmem_enabled", 256)),
        "transparent_huge_page_bytes": whole_number(host.read(f"{thp}/hpage_pmd_size", 64), 1),
        "overcommit": _OVERCOMMIT.get(-1 if overcommit is None else overcommit),
        "swappiness": whole_number(host.read(f"{vm}/swappiness", 64), 0, 200),
        "max_map_count": whole_number(host.read(f"{vm}/max_map_count", 64), 1),
        "numa_balancing": _switch(host.read("/proc/sys/kernel/numa_balancing", 64)),
        "kernel_samepage_merging": _switch(host.read(f"{MM}/ksm/run", 64)),
        "zswap": {"Y": True, "N": False}.get(host.read(f"{zswap}/enabled", 64)),
    }
    if facts["overcommit"] == "never":
        facts["overcommit_ratio"] = whole_number(host.read(f"{vm}/overcommit_ratio", 64), 0, 100_000)
    if facts["zswap"]:
        facts["zswap_compressor"] = word(host.read(f"{zswap}/compressor", 64))
    return nonempty(facts)


def _switch(text: str) -> bool | None:
    number = whole_number(text, 0, 7)
    return None if number is None else number > 0


def swaps(host: Host) -> Rows:
    """Return each swap area: path, kind (zram, partition, file), size and priority."""
    areas: Rows = []
    for line in host.read("/proc/swaps", 65536).splitlines()[1:]:
        match = re.fullmatch(r"(.+?)\s+(\w+)\s+(\d+)\s+\d+\s+(-?\d+)\s*", line)
        size = size_in_bytes(f"{match[3]} kB") if match else None
        if match is None or size is None:
            continue
        path = match[1]
        kind = "zram" if path.startswith("/dev/zram") else word(match[2])
        area: dict[str, FactValue] = {"path": one_line(path), "kind": kind, "size_bytes": size}
        priority = whole_number(match[4], -(1 << 31), 1 << 31)
        if priority is not None:
            area["priority"] = priority
        areas.append(area)
    return areas


def nodes(host: Host) -> tuple[Rows, Rows]:
    """Return each NUMA node's memory and its kind where that is known, and how much of it is free now."""
    memory = node_memory(host).items()
    totals: Rows = [
        {
            "node": row["node"],
            "total_bytes": row["memory_bytes"],
            **({"kind": row["kind"]} if "kind" in row else {}),
        }
        for row in numa_nodes(host)
        if "memory_bytes" in row
    ]
    free: Rows = [
        {"node": node, "free_bytes": numbers["MemFree"]} for node, numbers in memory if "MemFree" in numbers
    ]
    return totals, free
