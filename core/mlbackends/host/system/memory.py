"""What the kernel does with memory: huge pages, swap, overcommit, limits.

Source: Linux, Documentation/admin-guide/mm/hugetlbpage.rst, transhuge.rst, sysctl/vm.rst; proc(5).
"""

import re

from mlbackends.host.host import Host
from mlbackends.host.quantities import one_line, size_in_bytes, whole_number, word
from mlbackends.model.records import FactValue

MM = "/sys/kernel/mm"

_OVERCOMMIT = {0: "heuristic", 1: "always", 2: "never"}
_UNLIMITED = "unlimited"


def meminfo(text: str) -> dict[str, int]:
    """Return the numbers of a meminfo file by name: sizes in bytes, counts as they are."""
    numbers = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        number = size_in_bytes(value)
        if separator and number is not None:
            numbers[name.strip()] = number
    return numbers


def total_memory(host: Host) -> int | None:
    """Return how much memory Linux has, in bytes; None where it does not tell."""
    # It is in the first line; what follows need not be read for it.
    return meminfo(host.read("/proc/meminfo", 1024)).get("MemTotal") or None


def huge_pages(host: Host) -> tuple[list[dict[str, FactValue]], list[dict[str, FactValue]]]:
    """Return each size of huge page with its pool, and with what of the pool is in use now."""
    pools: list[dict[str, FactValue]] = []
    uses: list[dict[str, FactValue]] = []
    for name in host.listdir(f"{MM}/hugepages"):
        size = size_in_bytes(name.removeprefix("hugepages-"))
        if not size or not name.startswith("hugepages-"):
            continue
        folder = f"{MM}/hugepages/{name}"
        pools.append({"page_bytes": size, **_counts(host, folder, _POOL)})
        uses.append({"page_bytes": size, **_counts(host, folder, _USE)})
    return sorted(pools, key=_page_bytes), sorted(uses, key=_page_bytes)


_POOL = {"count": "nr_hugepages", "overcommit": "nr_overcommit_hugepages"}
_USE = {"free": "free_hugepages", "reserved": "resv_hugepages", "surplus": "surplus_hugepages"}


def _counts(host: Host, folder: str, names: dict[str, str]) -> dict[str, FactValue]:
    counts = {fact: whole_number(host.read(f"{folder}/{file}", 64)) for fact, file in names.items()}
    return {fact: count for fact, count in counts.items() if count is not None}


def _page_bytes(pool: dict[str, FactValue]) -> int:
    size = pool["page_bytes"]
    assert isinstance(size, int)
    return size


def chosen(text: str) -> str:
    """Return the word in brackets of a choice ("always [madvise] never"); "" if there is none."""
    match = re.search(r"\[([\w+-]{1,40})\]", text)
    return match[1] if match else ""


def settings(host: Host) -> dict[str, FactValue]:
    """Return the kernel's settings that steer memory; what it does not have is left out."""
    vm = "/proc/sys/vm"
    thp = f"{MM}/transparent_hugepage"
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
        "zswap": {"Y": True, "N": False}.get(host.read("/sys/module/zswap/parameters/enabled", 64)),
    }
    if facts["overcommit"] == "never":
        facts["overcommit_ratio"] = whole_number(
            host.read(f"{vm}/overcommit_ratio", 64), 0, 100_000
        )
    if facts["zswap"]:
        facts["zswap_compressor"] = word(host.read("/sys/module/zswap/parameters/compressor", 64))
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _switch(text: str) -> bool | None:
    number = whole_number(text, 0, 7)
    return None if number is None else number > 0


def swaps(host: Host) -> list[dict[str, FactValue]]:
    """Return each swap area: path, kind (zram, partition, file), size and priority."""
    areas: list[dict[str, FactValue]] = []
    for line in host.read("/proc/swaps", 65536).splitlines()[1:]:
        match = re.fullmatch(r"(.+?)\s+(\w+)\s+(\d+)\s+\d+\s+(-?\d+)\s*", line)
        if match is None:
            continue
        path, kind, size, priority = match.groups()
        size_bytes = size_in_bytes(f"{size} kB")
        if size_bytes is None:
            continue
        kind = "zram" if path.startswith("/dev/zram") else word(kind)
        area: dict[str, FactValue] = {
            "path": one_line(path),
            "kind": kind,
            "size_bytes": size_bytes,
        }
        number = whole_number(priority, -(1 << 31), 1 << 31)
        if number is not None:
            area["priority"] = number
        areas.append(area)
    return areas


def locked_memory_limit(host: Host) -> tuple[int | None, bool | None]:
    """Return how many bytes the process may lock, and whether that is unlimited; None: not told."""
    told = re.search(
        r"^Max locked memory\s+(\S+)", host.read("/proc/self/limits", 8192), re.MULTILINE
    )
    if told is None:
        return None, None
    if told[1] == _UNLIMITED:
        return None, True
    limit = whole_number(told[1])
    return limit, None if limit is None else False


def nodes(host: Host) -> tuple[list[dict[str, FactValue]], list[dict[str, FactValue]]]:
    """Return each NUMA node's memory, and how much of it is free now."""
    totals: list[dict[str, FactValue]] = []
    free: list[dict[str, FactValue]] = []
    folder = "/sys/devices/system/node"
    found = [one for name in host.listdir(folder) if (one := re.fullmatch(r"node(\d{1,5})", name))]
    for match in sorted(found, key=lambda match: int(match[1])):
        text = host.read(f"{folder}/{match[0]}/meminfo", 16384)
        numbers = meminfo(re.sub(r"(?m)^Node \d+ ", "", text))
        node = int(match[1])
        if "MemTotal" in numbers:
            totals.append({"node": node, "total_bytes": numbers["MemTotal"]})
        if "MemFree" in numbers:
            free.append({"node": node, "free_bytes": numbers["MemFree"]})
    return totals, free
