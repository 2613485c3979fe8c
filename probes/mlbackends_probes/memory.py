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
from mlbackends.model.records import FactValue, Finding, Presence
from mlbackends.model.registry import read_facts

GROUP = "machine"

SUMMARY = (
    "{total_bytes} in all",
    "{available_bytes} available",
    "{swap_total_bytes} swap",
    "transparent huge pages: {transparent_huge_pages}",
)
USUAL = {"swap_total_bytes": 0}
FACTS = read_facts(__file__)

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
