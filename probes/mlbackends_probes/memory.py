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

GROUP = "machine"

SUMMARY = (
    "{total_bytes} in all",
    "{available_bytes} available",
    "{swap_total_bytes} swap",
    "transparent huge pages: {transparent_huge_pages}",
)
USUAL = {"swap_total_bytes": 0}

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
        import psutil

        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        facts |= {
            "total_bytes": memory.total,
            "available_bytes": memory.available,
            "swap_total_bytes": swap.total,
            "swap_free_bytes": swap.free,
        }
    page_bytes = auxiliary_vector(host).get(PAGE_SIZE) or host.system("page_size")
    if isinstance(page_bytes, int) and 0 < page_bytes <= 1 << 30:
        facts["page_bytes"] = page_bytes
    warnings = []
    limit, devices = facts.get("locked_memory_limit_bytes"), host.listdir("/sys/class/infiniband")
    if isinstance(limit, int) and limit < _ENOUGH_FOR_RDMA and devices:
        message = f"a process may lock {limit} bytes of memory, and RDMA ({devices[0]}) locks what it sends"
        hint = (
            "raise it: ulimit -l unlimited, docker run --ulimit memlock=-1, LimitMEMLOCK=infinity"
        )
        warnings.append(Reason("limit-below-hardware", message, hint))
    if corrupted := facts.get("corrupted_bytes"):
        message = f"the kernel has taken {corrupted} bytes of faulty memory out of use"
        hint = "look into the kernel's log for machine checks, and replace the module"
        warnings.append(Reason("degraded", message, hint))
    return Finding(presence=Presence.FOUND, facts=facts, warnings=tuple(warnings))


def _linux(host: Host) -> dict[str, FactValue]:
    numbers = meminfo(host.read("/proc/meminfo", 65536))
    facts: dict[str, FactValue] = {
        fact: numbers[name]
        for fact, name in _MEMINFO.items()
        if name in numbers and (numbers[name] or fact not in _NEVER_ZERO)
    }
    names = ("huge_pages", "huge_pages_in_use", "nodes", "nodes_free", "swaps")
    tables = (*huge_pages(host), *nodes(host), swaps(host))
    facts |= {name: table for name, table in zip(names, tables, strict=True) if table}
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
    for fact, names in (
        ("total_bytes", ("hw.memsize", "hw.physmem")),
        ("page_bytes", ("hw.pagesize",)),
    ):
        if (number := control_number(controls, *names)) is not None:
            facts[fact] = number
    # vm.swapusage: total = 2048.00M  used = 1024.00M  free = 1024.00M  (encrypted)
    words = controls.get("vm.swapusage", "").split()
    for fact, name in (("swap_total_bytes", "total"), ("swap_free_bytes", "free")):
        if name in words[:-2]:
            size = size_in_bytes(words[words.index(name) + 2])
            if size is not None:
                facts[fact] = size
    return facts
