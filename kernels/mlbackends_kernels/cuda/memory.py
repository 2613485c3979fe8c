"""Memory of a device, allocated and given back in the order of a stream, and what is held of it.

It comes from the device's pool, and belongs to the graph on a stream that is being captured; on a device
without pools it waits for the device. Arrays of torch and CuPy beget arrays of theirs, from their pools
(see `device_array.empty_like`).

Source: CUDA Driver API, stream ordered memory allocator.
"""

import contextlib
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

from mlbackends.cuda.plan_cache import index_of
from mlbackends_kernels.cuda import streams
from mlbackends_kernels.cuda.devices import (
    call,
    core_device,
    current_device,
    device_count,
    driver,
    on_device,
)
from mlbackends_kernels.cuda.errors import CudaError, CudaOutOfMemory

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class Memory:
    """Bytes on a device, given back, after what was queued on its streams, when nothing refers to them.

    is_current: the device is the calling thread's current one.
    """

    __slots__ = ("_counts", "_others", "device", "pointer", "size", "stream")

    def __init__(self, size: int, device: int, stream: int, *, is_current: bool = False) -> None:
        self.size, self.device, self.stream = size, device, stream
        self.pointer, self._counts = 0, _counts_of(device)
        self._others: tuple[int, ...] = ()
        if not size:
            return
        if is_current:
            self.pointer = _allocated(size, device, stream)
        else:
            with on_device(device):
                self.pointer = _allocated(size, device, stream)
        self._counts.add(size)

    def used_on(self, stream: int) -> None:
        """Let the memory be given back only after what this stream has been asked until then."""
        if stream != self.stream and stream not in self._others:
            self._others = (*self._others, stream)

    def __del__(self) -> None:
        if not getattr(self, "pointer", 0):
            return
        self._counts.drop(self.size)
        try:
            with on_device(self.device):
                for other in self._others:
                    streams.follow(self.stream, other)
                if _pool(self.device):
                    driver().cuMemFreeAsync(self.pointer, self.stream)
                else:
                    driver().cuMemFree(self.pointer)
        except Exception:  # noqa: BLE001  there is nobody to tell
            return


def _allocated(size: int, index: int, stream: int) -> int:
    """Return the address of new memory; where there is none, the pool first gives back what it holds."""
    pool, library = _pool(index), driver()
    name = "cuMemAllocFromPoolAsync" if pool else "cuMemAlloc"
    arguments: tuple[Any, ...] = (size, pool, stream) if pool else (size,)
    status, pointer = getattr(library, name)(*arguments)
    if status == _OUT_OF_MEMORY and pool and not call("cuStreamIsCapturing", stream).value:
        call("cuMemPoolTrimTo", pool, 0)
        status, pointer = getattr(library, name)(*arguments)
    if not status:
        return int(pointer)
    if status != _OUT_OF_MEMORY:
        raise CudaError(name, int(status), status.name)
    _counts_of(index).refusals += 1
    raise CudaOutOfMemory(_refusal(size, index))


@cache
def _pool(index: int) -> Any:
    """Return the driver's handle of a device's pool, None of a device without pools."""
    return getattr(core_device(index).memory_resource, "handle", None)


def _refusal(size: int, index: int) -> str:
    held = _counts_of(index).current
    message = (
        f"cuda:{index} has no {_written(size)} left: {_written(held)} are in arrays of mlbackends"
    )
    with contextlib.suppress(Exception), on_device(index):
        free, total = call("cuMemGetInfo")
        message += f", {_written(free)} of {_written(total)} are free"
    return message


def _written(size: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


@dataclass
class _Counts:
    """Bytes and allocations of one device; each number only grows but the current ones."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    live: int = 0
    made: int = 0
    refusals: int = 0

    def add(self, size: int) -> None:
        with _counting:
            self.current += size
            self.allocated += size
            self.live += 1
            self.made += 1
            self.peak = max(self.peak, self.current)

    def drop(self, size: int) -> None:
        with _counting:
            self.current -= size
            self.live -= 1


_counting = threading.RLock()  # memory may be given back while it is held
_counts: dict[int, _Counts] = {}


def _counts_of(index: int) -> _Counts:
    return _counts.get(index) or _counts.setdefault(index, _Counts())


def reset_peak(index: int) -> None:
    """Let the peak of a device's memory begin again with what is held now."""
    counts = _counts_of(index)
    with _counting:
        counts.peak = counts.current


def memory_stats(device: object = None) -> dict[str, int]:
    """Return what arrays of this library take on a device, in bytes and in number, by torch's names.

    device: an int, a text such as "cuda:0" or an object as torch's; None for the current one.
    reserved_bytes are those of the device's pool, which others in this process may share; they are
    left out where nothing has been allocated yet. Arrays that torch or CuPy allocated are in theirs.
    Raises RuntimeError for a device that is not there.
    """
    index = current_device() if device is None else index_of(device)
    if not 0 <= index < (count := device_count()):
        raise RuntimeError(f"expected 0 <= device index < {count}, but got {index}")
    counts = _counts_of(index)
    with _counting:
        found = {
            "allocated_bytes.all.current": counts.current,
            "allocated_bytes.all.peak": counts.peak,
            "allocated_bytes.all.allocated": counts.allocated,
            "allocated_bytes.all.freed": counts.allocated - counts.current,
            "allocation.all.current": counts.live,
            "allocation.all.allocated": counts.made,
            "num_ooms": counts.refusals,
        }
    if counts.made:
        with contextlib.suppress(Exception):  # a device without pools
            pool = core_device(index).memory_resource.attributes
            found["reserved_bytes.all.current"] = int(pool.reserved_mem_current)
            found["reserved_bytes.all.peak"] = int(pool.reserved_mem_high)
    return found
