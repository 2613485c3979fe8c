"""Memory: how much there is, on which NUMA node, in which pages, and how much a process may lock.

Finds:    /proc/meminfo, /sys/kernel/mm, /proc/swaps, /proc/self/limits; macOS: `sysctl -a`;
          other systems: psutil.
Caveats:  this is the machine's memory; the limit of a container is with the host.
Source:   Linux, proc(5) and Documentation/admin-guide/mm.
"""

from mlbackends.host.host import Host
from mlbackends.host.quantities import size_in_bytes
from mlbackends.host.system.kernel import (
    PAGE_SIZE,
    auxiliary_vector,
    control_number,
    system_controls,
)
from mlbackends.host.system.memory import (
    huge_pages,
    locked_memory_limit,
    meminfo,
    nodes,
    settings,
    swaps,
)
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Fact, FactValue, Finding, Presence

GROUP = "machine"

_TABLE = list[dict[str, FactValue]]

SUMMARY = (
    "{total_bytes} in all",
    "{available_bytes} available",
    "{swap_total_bytes} swap",
    "transparent huge pages: {transparent_huge_pages}",
)
USUAL = {"swap_total_bytes": 0}
FACTS = (
    Fact(
        "total_bytes",
        int,
        "The memory that the kernel has; a little less than what is plugged in.",
        "metric",
    ),
    Fact("available_bytes", int, "What programs can still get without swapping.", "volatile"),
    Fact("free_bytes", int, "What is not used at all, not even for caches.", "volatile"),
    Fact("swap_total_bytes", int, "All swap space.", "metric"),
    Fact("swap_free_bytes", int, "The swap space that is not in use.", "volatile"),
    Fact(
        "swaps", _TABLE, "Each swap area: path, kind (zram, partition, file), size_bytes, priority."
    ),
    Fact("page_bytes", int, "The size of a memory page."),
    Fact("default_huge_page_bytes", int, "The size of huge page that a program gets unasked."),
    Fact(
        "huge_pages", _TABLE, "Each size of huge page: page_bytes, count in the pool, overcommit."
    ),
    Fact(
        "huge_pages_in_use",
        _TABLE,
        "Of each size: page_bytes, free, reserved, surplus.",
        "volatile",
    ),
    Fact(
        "transparent_huge_pages",
        str,
        "When the kernel uses huge pages by itself: always, madvise, never.",
    ),
    Fact(
        "transparent_huge_pages_defrag",
        str,
        "When it makes room for them: always, defer, madvise, never.",
    ),
    Fact(
        "transparent_huge_pages_shared",
        str,
        "The same for shared memory, which tensors between processes use.",
    ),
    Fact("transparent_huge_page_bytes", int, "The size of such a page."),
    Fact(
        "overcommit", str, "Whether more may be promised than is there: heuristic, always, never."
    ),
    Fact(
        "overcommit_ratio",
        int,
        "With overcommit never: the percentage of memory that may be promised.",
    ),
    Fact("swappiness", int, "How readily the kernel swaps, 0 to 200."),
    Fact("max_map_count", int, "How many mappings a process may have."),
    Fact(
        "numa_balancing", bool, "The kernel moves pages to the node that uses them, at some cost."
    ),
    Fact("kernel_samepage_merging", bool, "The kernel merges equal pages."),
    Fact("zswap", bool, "Pages are compressed in memory before they are swapped."),
    Fact("zswap_compressor", str, "With what, if they are."),
    Fact("nodes", _TABLE, "Each NUMA node's memory: node, total_bytes.", "metric"),
    Fact("nodes_free", _TABLE, "Each NUMA node's free memory: node, free_bytes.", "volatile"),
    Fact(
        "locked_memory_limit_bytes",
        int,
        "How much a process may lock (ulimit -l); left out if unlimited.",
    ),
    Fact("locked_memory_unlimited", bool, "A process may lock as much as it likes."),
    Fact("corrupted_bytes", int, "Memory that the kernel took out of use because it is faulty."),
)

_MEMINFO = {
    "total_bytes": "MemTotal",
    "available_bytes": "MemAvailable",
    "free_bytes": "MemFree",
    "swap_total_bytes": "SwapTotal",
    "swap_free_bytes": "SwapFree",
    "default_huge_page_bytes": "Hugepagesize",
    "corrupted_bytes": "HardwareCorrupted",
}
_NEVER_ZERO = ("total_bytes", "default_huge_page_bytes")
_ENOUGH_FOR_RDMA = 1 << 30


def find(host: Host) -> Finding:
    """Look at the memory; a fact that nothing tells is left out."""
    if host.platform == "darwin":
        facts = _macos(host)
    elif host.platform == "linux":
        facts = _linux(host)
    else:
        facts = {}
    if host.is_live and "total_bytes" not in facts:
        facts |= _psutil()
    page_bytes = auxiliary_vector(host).get(PAGE_SIZE) or host.system("page_size")
    if isinstance(page_bytes, int) and 0 < page_bytes <= 1 << 30:
        facts["page_bytes"] = page_bytes
    warnings = tuple(one for one in (_cannot_register(host, facts), _faulty(facts)) if one)
    return Finding(presence=Presence.FOUND, facts=facts, warnings=warnings)


def _linux(host: Host) -> dict[str, FactValue]:
    numbers = meminfo(host.read("/proc/meminfo", 65536))
    facts: dict[str, FactValue] = {
        fact: numbers[name]
        for fact, name in _MEMINFO.items()
        if name in numbers and (numbers[name] or fact not in _NEVER_ZERO)
    }
    pools, uses = huge_pages(host)
    totals, free = nodes(host)
    tables: dict[str, list[dict[str, FactValue]]] = {
        "huge_pages": pools,
        "huge_pages_in_use": uses,
        "nodes": totals,
        "nodes_free": free,
        "swaps": swaps(host),
    }
    facts |= {name: table for name, table in tables.items() if table}
    facts |= settings(host)
    limit, is_unlimited = locked_memory_limit(host)
    if limit is not None:
        facts["locked_memory_limit_bytes"] = limit
    if is_unlimited is not None:
        facts["locked_memory_unlimited"] = is_unlimited
    return facts


def _macos(host: Host) -> dict[str, FactValue]:
    controls = system_controls(host)
    facts: dict[str, FactValue] = {}
    total = control_number(controls, "hw.memsize", "hw.physmem")
    if total is not None:
        facts["total_bytes"] = total
    # vm.swapusage: total = 2048.00M  used = 1024.00M  free = 1024.00M  (encrypted)
    words = controls.get("vm.swapusage", "").split()
    for fact, name in (("swap_total_bytes", "total"), ("swap_free_bytes", "free")):
        if name in words[:-2]:
            size = size_in_bytes(words[words.index(name) + 2])
            if size is not None:
                facts[fact] = size
    page = control_number(controls, "hw.pagesize")
    if page is not None:
        facts["page_bytes"] = page
    return facts


def _psutil() -> dict[str, FactValue]:
    import psutil

    memory = psutil.virtual_memory()
    swap = psutil.swap_memory()
    return {
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "swap_total_bytes": swap.total,
        "swap_free_bytes": swap.free,
    }


def _cannot_register(host: Host, facts: dict[str, FactValue]) -> Reason | None:
    """Tell whether the limit on locked memory is too small for the RDMA devices that are there."""
    limit = facts.get("locked_memory_limit_bytes")
    if not isinstance(limit, int) or limit >= _ENOUGH_FOR_RDMA:
        return None
    devices = host.listdir("/sys/class/infiniband")
    if not devices:
        return None
    return Reason(
        "limit-below-hardware",
        f"a process may lock {limit} bytes of memory, and RDMA ({devices[0]}) locks what it sends",
        "raise it: ulimit -l unlimited, docker run --ulimit memlock=-1, LimitMEMLOCK=infinity",
    )


def _faulty(facts: dict[str, FactValue]) -> Reason | None:
    corrupted = facts.get("corrupted_bytes")
    if not corrupted:
        return None
    return Reason(
        "degraded",
        f"the kernel has taken {corrupted} bytes of faulty memory out of use",
        "look into the kernel's log for machine checks, and replace the module",
    )
