"""How many threads attention on the CPU uses: as many as the process may, and as the work is worth.

The least counts of: the CPUs of the affinity mask, the whole CPUs of a quota (control group, job object),
OMP_NUM_THREADS, the number given to `set_num_threads`, and torch's own number where torch is loaded.
"""

import os
import sys
from functools import cache
from math import inf
from typing import Any

#: Below so much a thread, waking another one costs more than it brings.
_OPERATIONS_EACH = 8_000_000
_BYTES_EACH = 1 << 20

_requested: int | None = None


def set_num_threads(count: int) -> None:
    """Use at most so many threads for attention on the CPU, in the whole process.

    Raises RuntimeError for less than one, and as torch does for what is no int.
    """
    global _requested  # noqa: PLW0603  a switch of the whole process, as in torch
    value: object = count
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"set_num_threads expects an int, but got {type(count).__name__}"
        raise RuntimeError(message)  # noqa: TRY004  torch's type
    if count < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, but got {count}")
    _requested = count


def get_num_threads() -> int:
    """Return how many threads a large problem of attention on the CPU gets now."""
    limits = [_affinity(), _quota()]
    variable = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if variable.isascii() and variable.isdigit():
        limits.append(int(variable[:9]))
    if _requested is not None:
        limits.append(_requested)
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "get_num_threads"):
        limits.append(torch.get_num_threads())
    return max(1, min(limits))


def worth(operations: float, moved_bytes: float) -> int:
    """Return how many threads work of a size is worth."""
    most = int(max(operations / _OPERATIONS_EACH, moved_bytes / _BYTES_EACH))
    return 1 if most < 2 else min(most, get_num_threads())


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return _affinity_at_first()


@cache
def _affinity_at_first() -> int:
    """Return the CPUs of a process whose mask takes long to read, as under Windows."""
    from mlbackends.host.host import Host

    return len(Host("/").affinity() or ()) or os.cpu_count() or 1


@cache
def _quota() -> int:
    """Return the whole CPUs of the quota; part of one more would only be waited for."""
    from mlbackends.host.host import Host

    host, quota = Host("/"), inf
    if host.platform == "win32":
        from mlbackends.host.windows.system import job_limits

        quota = job_limits(host, os.cpu_count() or 1).get("cpu_quota") or inf
    else:
        from mlbackends.host.system.cgroups import cpu_quota

        found = cpu_quota(host)
        quota = found.value if found else inf
    return sys.maxsize if quota == inf else max(1, int(quota))
