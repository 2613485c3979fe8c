"""The CUDA runtime: devices, memory and copies.

Everything runs on the legacy default stream, with which every blocking stream waits its turn.

Source: CUDA Runtime API reference, memory and device management; CUDA Driver API, cuDeviceGetCount.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from mlbackends_kernels.cuda.errors import CudaUnavailable
from mlbackends_kernels.cuda.libraries import Opened, open_library

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
LEGACY_STREAM = 1
"""The legacy default stream, as CUDA, DLPack and the array interface number it."""

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_ON_DEVICE = (2, 3)  # cudaMemoryTypeDevice, cudaMemoryTypeManaged
_ATTRIBUTES_BYTES = 256  # cudaPointerAttributes has 24 or 88; the newest may be larger


def library() -> Opened:
    """Return the runtime. Raises CudaUnavailable where there is none."""
    return open_library("cuda_runtime", "cuda_runtime")


def device_count() -> int:
    """Return how many devices the driver shows to this process; 0 without a driver."""
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        if driver.cuInit(ctypes.c_uint(0)) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return 0
    except (OSError, AttributeError):  # no driver, or a file that is none
        return 0
    return max(count.value, 0)


def current_device() -> int:
    """Return the device that the calling thread uses; 0 where nothing has chosen one."""
    device = ctypes.c_int(0)
    library()("cudaGetDevice", ctypes.byref(device))
    return device.value


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """Make a device current, and at the end the one that was."""
    before = current_device()
    if before == device:
        yield
        return
    library()("cudaSetDevice", ctypes.c_int(device))
    try:
        yield
    finally:
        library()("cudaSetDevice", ctypes.c_int(before))


@cache
def capability(device: int) -> tuple[int, int]:
    """Return a device's compute capability, such as (9, 0)."""
    numbers = []
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        value = ctypes.c_int(0)
        arguments = (ctypes.byref(value), ctypes.c_int(attribute), ctypes.c_int(device))
        library()("cudaDeviceGetAttribute", *arguments)
        numbers.append(value.value)
    return numbers[0], numbers[1]


def device_of(pointer: int) -> int:
    """Return the device on which memory lies. Raises CudaUnavailable where it is the host's."""
    attributes = (ctypes.c_int * (_ATTRIBUTES_BYTES // 4))()
    library()("cudaPointerGetAttributes", ctypes.byref(attributes), ctypes.c_void_p(pointer))
    kind, device = attributes[0], attributes[1]
    if kind not in _ON_DEVICE:
        raise CudaUnavailable(f"the memory at {pointer:#x} is not a CUDA device's")
    return int(device)


class Memory:
    """Bytes on a device, given back when nothing refers to them any more."""

    def __init__(self, size: int, device: int) -> None:
        self.size, self.device = size, device
        self.pointer = 0
        self._runtime = library()
        if size:
            pointer = ctypes.c_void_p()
            with on_device(device):
                self._runtime("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
            self.pointer = pointer.value or 0

    def __del__(self) -> None:
        # cudaFree waits for what still runs. Its status is of no use to anyone here.
        if getattr(self, "pointer", 0):
            self._runtime.status("cudaFree", ctypes.c_void_p(self.pointer))


def fill_with_zeros(pointer: int, size: int) -> None:
    """Set bytes of a device's memory to 0."""
    if size:
        library()("cudaMemset", ctypes.c_void_p(pointer), ctypes.c_int(0), ctypes.c_size_t(size))


def copy(target: int, source: int, size: int, direction: int = DEVICE_TO_DEVICE) -> None:
    """Copy bytes between addresses."""
    if size:
        pointers = (ctypes.c_void_p(target), ctypes.c_void_p(source))
        library()("cudaMemcpy", *pointers, ctypes.c_size_t(size), ctypes.c_int(direction))


def copy_rows(
    target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int
) -> None:
    """Copy `height` rows of `width` bytes that lie a pitch apart, on a device."""
    library()(
        "cudaMemcpy2D",
        *(ctypes.c_void_p(target), ctypes.c_size_t(target_pitch)),
        *(ctypes.c_void_p(source), ctypes.c_size_t(source_pitch)),
        *(ctypes.c_size_t(width), ctypes.c_size_t(height)),
        ctypes.c_int(DEVICE_TO_DEVICE),
    )


def synchronize(stream: int = LEGACY_STREAM) -> None:
    """Wait until a stream has done all that was asked of it."""
    library()("cudaStreamSynchronize", ctypes.c_void_p(stream))
