"""The threads that attention on the CPU uses: their number, and whose they are.

The number is limited by the size of the problem, the CPUs of the affinity mask, the whole CPUs of a quota
(control group or job object), OMP_NUM_THREADS, `set_num_threads`, and torch's own number where torch is
loaded. The library starts its own threads, but uses torch's for torch's tensors.
"""

import contextlib
import ctypes
import os
import sys
from functools import cache
from math import inf
from typing import Any

from mlbackends.sdpa.describe import is_torch

#: The least work of a thread: with less, waking another thread takes longer than it saves.
_OPERATIONS_EACH = 8_000_000
_BYTES_EACH = 1 << 20

#: A process that was forked from another and has not started a program. Source: Linux, include/linux/sched.h.
_PF_FORKNOEXEC = 0x40

_requested: int | None = None


def set_num_threads(count: int) -> None:
    """Limit the number of threads of attention on the CPU, in the whole process.

    Raises RuntimeError for numbers below one and, as torch does, for anything but an int.
    """
    global _requested  # noqa: PLW0603  process-wide, as in torch
    value: object = count
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"set_num_threads expects an int, but got {type(count).__name__}"
        raise RuntimeError(message)  # noqa: TRY004  torch's type
    if count < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, but got {count}")
    _requested = count


def get_num_threads() -> int:
    """Return the number of threads that a large attention problem on the CPU gets now."""
    has_mask = hasattr(os, "sched_getaffinity")
    limits = [len(os.sched_getaffinity(0)) if has_mask else _affinity_at_first(), _quota()]
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
    """Return the number of threads for this amount of work."""
    most = int(max(operations / _OPERATIONS_EACH, moved_bytes / _BYTES_EACH))
    return 1 if most < 2 else min(most, get_num_threads())


def parallel_of(tensor: Any) -> int | None:
    """Return the address of the function that runs code in torch's threads, for one of its tensors.

    torch's threads spin for milliseconds after each operation, on the CPUs that threads of ours would need.
    None for other tensors, where torch's OpenMP runtime lacks GOMP_parallel, and in a forked process, where
    the threads that its parent had are missing.
    """
    return _gomp_parallel(os.getpid()) if is_torch(tensor) else None


@cache
def _gomp_parallel(process: int) -> int | None:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            flags = int(file.read().rpartition(")")[2].split()[6])
    except OSError:
        return None
    if flags & _PF_FORKNOEXEC:
        return None
    torch: Any = sys.modules["torch"]
    torchs = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    for library in (None, torchs):  # what is loaded for all libraries precedes torch's own dependencies
        with contextlib.suppress(OSError, AttributeError):
            return ctypes.cast(ctypes.CDLL(library).GOMP_parallel, ctypes.c_void_p).value
    return None


@cache
def _affinity_at_first() -> int:
    """Return the CPUs of the process. Reading the mask is slow, so it is read once."""
    from mlbackends.host.host import Host

    return len(Host("/").affinity() or ()) or os.cpu_count() or 1


@cache
def _quota() -> int:
    """Return the whole CPUs of the quota; a thread on a fraction of a CPU would delay the others."""
    from mlbackends.host.host import Host
    from mlbackends.host.system.cgroups import cpu_quota
    from mlbackends.host.windows.system import job_limits

    host, quota = Host("/"), inf
    if host.platform == "win32":
        quota = job_limits(host, os.cpu_count() or 1).get("cpu_quota") or inf
    else:
        limit = cpu_quota(host)
        quota = limit.value if limit else inf
    return sys.maxsize if quota == inf else max(1, int(quota))
