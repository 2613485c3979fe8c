"""Memory: how much there is, on which NUMA node, in which pages, and how much a process may lock.

Finds:    /proc/meminfo, /sys/kernel/mm, /proc/swaps, /proc/self/limits; macOS: `sysctl -a`;
          Windows: GlobalMemoryStatusEx, its page files and privileges; other systems: psutil.
Caveats:  this is the machine's memory; the limit of a container is with the host. Where a GPU's memory is a
          NUMA node (Grace Hopper, POWER9), the kernel adds it to the machine's; here it is taken off.
Source:   Linux, proc(5) and Documentation/admin-guide/mm.
"""

from typing import Any

from mlbackends.base.quantities import size_in_bytes, whole_number
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.system import kernel, memory
from mlbackends.host.system.numa import gpu_memory
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"


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
    """Inspect the memory; a fact that is not known is left out."""
    facts: dict[str, Any] = {}
    if host.platform == "darwin":
        controls = kernel.system_controls(host)
        # vm.swapusage: total = 2048.00M  used = 1024.00M  free = 1024.00M  (encrypted)
        words = controls.get("vm.swapusage", "").split()
        sizes = {name: size for name, _, size in zip(words, words[1:], words[2:], strict=False)}
        facts = {
            "total_bytes": kernel.control_number(controls, "hw.memsize", "hw.physmem"),
            "page_bytes": kernel.control_number(controls, "hw.pagesize"),
            "swap_total_bytes": size_in_bytes(sizes.get("total", "")),
            "swap_free_bytes": size_in_bytes(sizes.get("free", "")),
        }
    elif host.platform == "linux":
        numbers = memory.numbers_without_gpus(host)
        names = ("huge_pages", "huge_pages_in_use", "nodes", "nodes_free", "swaps")
        tables = (*memory.huge_pages(host), *memory.nodes(host), memory.swaps(host))
        lines = host.read("/proc/self/limits", 8192).partition("\nMax locked memory ")[2].splitlines()
        soft = lines[0].split()[0] if lines and lines[0].strip() else ""
        limit = whole_number(soft)
        is_unlimited = True if soft == "unlimited" else None if limit is None else False
        facts = {
            "gpu_bytes": gpu_memory(host, "MemTotal") or None,
            **{
                fact: numbers[name]
                for fact, name in _MEMINFO.items()
                if name in numbers and (numbers[name] or fact not in _NEVER_ZERO)
            },
            **dict(zip(names, tables, strict=True)),
            **memory.settings(host),
            "locked_memory_limit_bytes": limit,
            "locked_memory_unlimited": is_unlimited,
        }
    elif host.platform == "win32":
        from mlbackends.host.windows.system import memory_facts

        facts = memory_facts(host)
    if host.is_live and facts.get("total_bytes") is None:
        import psutil

        ram, swap = psutil.virtual_memory(), psutil.swap_memory()
        facts |= {
            "total_bytes": ram.total,
            "available_bytes": ram.available,
            "swap_total_bytes": swap.total,
            "swap_free_bytes": swap.free,
        }
    page_bytes = kernel.auxiliary_vector(host).get(kernel.PAGE_SIZE) or host.system("page_size")
    if isinstance(page_bytes, int) and 0 < page_bytes <= 1 << 30:
        facts["page_bytes"] = page_bytes
    warnings = []
    lockable = facts.get("locked_memory_limit_bytes")
    devices = host.listdir("/sys/class/infiniband")
    if isinstance(lockable, int) and lockable < _ENOUGH_FOR_RDMA and devices:
        message = (
            f"a process may lock {lockable} bytes of memory, and RDMA ({devices[0]}) locks what it sends"
        )
        hint = "raise it: ulimit -l unlimited, docker run --ulimit memlock=-1, LimitMEMLOCK=infinity"
        warnings.append(Reason("limit-below-hardware", message, hint))
    if corrupted := facts.get("corrupted_bytes"):
        message = f"the kernel has taken {corrupted} bytes of faulty memory out of use"
        hint = "search the kernel's log for machine checks, and replace the module"
        warnings.append(Reason("degraded", message, hint))
    return Finding(presence=Presence.FOUND, facts=nonempty(facts), warnings=tuple(warnings))
