"""Measure calls that queue work on a CUDA device, by the driver's events.

It imports only the standard library, since other interpreters run it too, and calls the driver by ctypes. The
device's context must be current, and the work must be queued on the legacy default stream.

Source: CUDA Driver API, event management, cuMemsetD8Async; cuDeviceGetAttribute for the size of the cache.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from typing import Any, Callable  # noqa: UP035  Python 3.8 has no other

#: CU_STREAM_LEGACY.
_STREAM = ctypes.c_void_p(1)
#: CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE.
_L2_CACHE_SIZE = 38
_USUAL_CACHE = 64 << 20
#: The most calls that are queued at once, about the capacity of the driver's queue.
_MOST = 1000


class OnDevice:
    """Measures by events around each call, after overwriting the L2 cache.

    Overwriting takes the device some ten microseconds, in which the host queues the call. memory: an object
    with `reset()`, `held()` and `peak()`, in bytes on the device, and `by`, the name of the counter; None
    where memory cannot be measured. Raises OSError without a driver.
    """

    def __init__(self, memory: Any = None) -> None:
        self._memory = memory
        self._driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        self._events: list[ctypes.c_void_p] = []
        index, cache = ctypes.c_int(), ctypes.c_int()
        self._call("cuCtxGetDevice", ctypes.byref(index))
        self._call("cuDeviceGetAttribute", ctypes.byref(cache), _L2_CACHE_SIZE, index)
        self._size = 2 * (cache.value or _USUAL_CACHE)
        self._scratch = ctypes.c_void_p()
        self._call("cuMemAlloc_v2", ctypes.byref(self._scratch), ctypes.c_size_t(self._size))
        self.timed_by = f"CUDA events around each call, after writing {self._size >> 20} MiB to flush L2"

    def __del__(self) -> None:
        if getattr(self, "_scratch", None):
            self._driver.cuMemFree_v2(self._scratch)

    def memory_before(self) -> int:
        """Return the memory that is in use on the device, and reset its peak."""
        if self._memory is None:
            return 0
        self._call("cuCtxSynchronize")
        self._memory.reset()
        held: int = self._memory.held()
        return held

    def memory_after(self, before: int, output_bytes: int) -> dict[str, Any]:
        """Return the peak extra memory since then, without the output; {} where it is unknown."""
        self._call("cuCtxSynchronize")
        if self._memory is None:
            return {}
        extra = max(0, self._memory.peak() - before - output_bytes)
        return {"extra_bytes": extra, "measured_by": self._memory.by}

    def time(self, call: Callable[[], Any], duration: float, most: int) -> dict[str, Any]:
        """Return the seconds of calls on the device, after a warm-up call.

        host_seconds: the median time that the host takes to queue a call.
        """
        clock = time.perf_counter
        call()
        self._call("cuCtxSynchronize")
        start = clock()
        self._empty_cache()
        call()
        self._call("cuCtxSynchronize")
        count = max(1, min(most, _MOST, int(duration / max(clock() - start, 1e-6))))
        while len(self._events) < 2 * count:
            self._events.append(ctypes.c_void_p())
            self._call("cuEventCreate", ctypes.byref(self._events[-1]), 0)
        host = []
        pairs = list(zip(self._events[:count], self._events[count:]))  # noqa: B905  Python 3.8
        for first, last in pairs:
            self._empty_cache()
            self._call("cuEventRecord", first, _STREAM)
            start = clock()
            call()
            host.append(clock() - start)
            self._call("cuEventRecord", last, _STREAM)
        self._call("cuCtxSynchronize")
        seconds = []
        between = ctypes.c_float()  # milliseconds
        for pair in pairs:
            self._call("cuEventElapsedTime", ctypes.byref(between), *pair)
            seconds.append(between.value / 1e3)
        times = {"seconds": seconds, "host_seconds": statistics.median(host)}
        return {**times, "timed_by": self.timed_by}

    def _empty_cache(self) -> None:
        self._call("cuMemsetD8Async", self._scratch, 0, ctypes.c_size_t(self._size), _STREAM)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(status, ctypes.byref(text))
            raise RuntimeError(f"{name} returned {status} ({(text.value or b'').decode()})")
