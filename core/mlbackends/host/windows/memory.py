"""A Windows machine's memory, and what a job object leaves of it and of the CPUs.

Source: GlobalMemoryStatusEx; SYSTEM_PAGEFILE_INFORMATION; "Large-Page Support"; winnt.h,
JOBOBJECT_EXTENDED_LIMIT_INFORMATION and JOBOBJECT_CPU_RATE_CONTROL_INFORMATION.
"""

from math import inf
from typing import Any

from mlbackends.host.host import Host
from mlbackends.host.quantities import format_cpu_list
from mlbackends.host.windows.processors import cpus_in

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
    """Return what the innermost job object limits: infinity for nothing, None where it cannot be determined.

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
        # An old Windows has no rate to ask for.
        "cpu_quota": quota if "cpu_flags" in job or not job else None,
        "memory_limit_bytes": job.get("job_memory") if flags & _JOB_MEMORY else inf,
        "process_memory_limit_bytes": job.get("process_memory") if flags & _PROCESS_MEMORY else inf,
        "process_limit": job.get("processes") if flags & _PROCESSES else inf,
    }
