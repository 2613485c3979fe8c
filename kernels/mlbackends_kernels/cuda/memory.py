"""Memory of a device, allocated and given back in the order of a stream, and what is held of it.

It comes from the device's pool, and belongs to the graph on a stream that is being captured; on a device
without pools it waits for the device. Arrays of torch and CuPy beget arrays of theirs, from their pools
(see `device_array.empty_like`).

Source: CUDA Driver API, stream ordered memory allocator.
"""

import contextlib
import threading
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
_CAPTURE_IMPLICIT = 906  # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT


class Memory:
    """Bytes on a device, given back, after what was queued on its streams, when nothing refers to them.

    is_current: the device is the calling thread's current one.
    """

    __slots__ = ("_others", "_pool", "device", "pointer", "size", "stream")

    def __init__(self, size: int, device: int, stream: int, is_current: bool = False) -> None:
        self.pointer, self.size, self.device, self.stream = 0, size, device, stream
        self._others: tuple[int, ...] = ()
        if not size:
            return
        self._pool = pool = _pools.get(device) or _pool_of(device)
        if is_current:
            self.pointer = pool.allocated(size, stream)
        else:
            with on_device(device):
                self.pointer = pool.allocated(size, stream)

    def used_on(self, stream: int) -> None:
        """Let the memory be given back only after what this stream has been asked until then."""
        if stream != self.stream and stream not in self._others:
            self._others = (*self._others, stream)

    def __del__(self) -> None:
        try:
            if pointer := self.pointer:
                self._pool.give_back(pointer, self.size, self.stream, self._others)
        except Exception:  # noqa: BLE001  there is nobody to tell
            return


class _Pool:
    """A device's pool, and how much of it arrays of ours take and have taken.

    Without pools, memory comes from the device itself.
    """

    def __init__(self, index: int) -> None:
        self.index, library = index, driver()
        self.handle = getattr(core_device(index).memory_resource, "handle", None)
        self._current_device, self._capturing = library.cuCtxGetDevice, library.cuStreamIsCapturing
        self._allocate: Any = library.cuMemAllocFromPoolAsync
        self._free: Any = library.cuMemFreeAsync
        if self.handle is None:
            self._allocate = lambda size, *_: library.cuMemAlloc(size)
            self._free = lambda pointer, _: library.cuMemFree(pointer)
        self._of_graphs: set[int] = set()
        self._left: list[tuple[int, int, tuple[int, ...]]] = []
        self.taken = self.given_back = self.peak = 0
        self.times_taken = self.times_given_back = self.refusals = 0

    @property
    def held(self) -> int:
        """The bytes that arrays of ours take now."""
        return self.taken - self.given_back

    def allocated(self, size: int, stream: int) -> int:
        """Return the address of new memory of the current device, this one."""
        for _ in range(len(self._left)):
            try:
                self._release(*self._left.pop(0))
            except IndexError:  # another thread was first
                break
        status, pointer = self._allocate(size, self.handle, stream)
        if status:
            pointer = self._after_refusal(status, size, stream)
        if stream != streams.LEGACY and self._is_captured(stream):
            self._of_graphs.add(int(pointer))
        with _counting:
            self.taken += size
            self.times_taken += 1
            held = self.taken - self.given_back
            if held > self.peak:  # noqa: PLR1730  a call of max costs more
                self.peak = held
        return int(pointer)

    def _after_refusal(self, status: Any, size: int, stream: int) -> Any:
        """Return what is there once the pool has given back what it holds."""
        may_trim = self.handle is not None and status == _OUT_OF_MEMORY
        if may_trim and not call("cuStreamIsCapturing", stream).value:
            call("cuMemPoolTrimTo", self.handle, 0)
            status, pointer = self._allocate(size, self.handle, stream)
            if not status:
                return pointer
        if status != _OUT_OF_MEMORY:
            raise CudaError("the allocation of memory", int(status), status.name)
        self.refusals += 1
        raise CudaOutOfMemory(_refusal(size, self))

    def give_back(self, pointer: int, size: int, stream: int, others: tuple[int, ...]) -> None:
        """Free memory once a stream, and others that used it, are so far."""
        with _counting:
            self.given_back += size
            self.times_given_back += 1
        self._release(pointer, stream, others)

    def _release(self, pointer: int, stream: int, others: tuple[int, ...]) -> None:
        """Free memory, or leave it for later: on a captured stream only a graph's own may be freed."""
        if pointer in self._of_graphs:
            self._of_graphs.discard(pointer)
        elif self._is_captured(stream):
            self._left.append((pointer, stream, others))
            return
        status, now = self._current_device()
        if not (others or status) and int(now) == self.index:
            self._free(pointer, stream)
            return
        with on_device(self.index):
            for other in others:
                streams.follow(stream, other)
            self._free(pointer, stream)

    def _is_captured(self, stream: int) -> bool:
        status, state = self._capturing(stream)
        # During a capture the legacy stream answers so; a thread without a context has no answer.
        return status == _CAPTURE_IMPLICIT if status else bool(state)


_counting = threading.RLock()  # memory may be given back while it is held
_pools: dict[int, _Pool] = {}


def _pool_of(index: int) -> _Pool:
    with _counting:
        return _pools.get(index) or _pools.setdefault(index, _Pool(index))


def _refusal(size: int, pool: _Pool) -> str:
    message = f"cuda:{pool.index} has no {_written(size)} left:"
    message += f" {_written(pool.held)} are in arrays of mlbackends"
    with contextlib.suppress(Exception), on_device(pool.index):
        free, total = call("cuMemGetInfo")
        message += f", {_written(free)} of {_written(total)} are free"
    return message


def _written(size: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def reset_peak(index: int) -> None:
    """Let the peak of a device's memory begin again with what is held now."""
    with _counting:
        if pool := _pools.get(index):
            pool.peak = pool.held


def memory_stats(device: object = None) -> dict[str, int]:
    """Return what arrays of this library take on a device, in bytes and in number, by torch's names.

    device: an int, a text such as "cuda:0" or an object as torch's; None or "cuda" for the current one.
    reserved_bytes are those of the device's pool, which others in this process may share; they are
    left out where nothing has been allocated yet. Arrays that torch or CuPy allocated are in theirs.
    Raises RuntimeError for a device that is not there, and CudaUnavailable, which is one, without a driver.
    """
    is_current = device is None or str(device) == "cuda"
    index = current_device() if is_current else index_of(device)
    driver()  # without one it says why
    count = device_count()
    if not 0 <= index < count:
        raise RuntimeError(f"expected 0 <= device index < {count}, but got {index}")
    facts = (
        "allocated_bytes.all.current", "allocated_bytes.all.peak", "allocated_bytes.all.allocated",
        "allocated_bytes.all.freed", "allocation.all.current", "allocation.all.allocated", "num_ooms",
    )  # fmt: skip
    pool = _pools.get(index)
    if pool is None:
        return dict.fromkeys(facts, 0)
    with _counting:
        live = pool.times_taken - pool.times_given_back
        bytes_ = pool.held, pool.peak, pool.taken, pool.given_back
        found = dict(zip(facts, (*bytes_, live, pool.times_taken, pool.refusals), strict=True))
    if pool.times_taken and pool.handle is not None:
        with contextlib.suppress(Exception):
            of_pool = core_device(index).memory_resource.attributes
            found["reserved_bytes.all.current"] = int(of_pool.reserved_mem_current)
            found["reserved_bytes.all.peak"] = int(of_pool.reserved_mem_high)
    return found
