"""CUDA device 0 through the driver alone, on which a probe's `use` computes in the child.

The driver's interface allocates memory that every CUDA library accepts, so no copy of libcudart is needed,
whichever CUDA the library is for. Source: the CUDA driver API, on initialisation, primary contexts and
memory.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from mlbackends.base.reasons import NotUsable
from mlbackends.libraries.c_calls import Calls, ctypes

if TYPE_CHECKING:
    from collections.abc import Sequence

_NO_DEVICE = 100
_STUB_LIBRARY = 34
_MISMATCHES = (803, 804)  # system driver mismatch, no forward compatibility on this device


def first_device(cuda_major: int = 0) -> CudaDevice:
    """Return device 0 with its primary context current.

    cuda_major: the CUDA version that the library is for; an older driver is reported as too old, where the
    library itself would return some error. Raises NotUsable if no device can be reached.
    """
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError as error:
        missing = "No such file" in str(error)
        why = f"the driver's {name} is not found" if missing else f"the driver does not open: {error}"
        message = f"it computes on a CUDA device only, and {why}"
        raise NotUsable("no-driver", message, "install NVIDIA's driver") from None
    call = Calls(driver, namer="cuGetErrorName")
    if status := call.status("cuInit", ctypes.c_uint(0)):
        raise _unreachable(f"cuInit returned {status} ({call.name_of(status)})", status)
    (version,) = call.numbers("cuDriverGetVersion", 1)
    if version // 1000 < cuda_major:
        offered = f"{version // 1000}.{version % 1000 // 10}"
        message = f"it is for CUDA {cuda_major}, and the driver offers CUDA {offered}"
        raise NotUsable("driver-too-old", message, "install a newer driver")
    if call.numbers("cuDeviceGetCount", 1)[0] < 1:
        raise _unreachable("cuDeviceGetCount counted 0 devices", _NO_DEVICE)
    device, context = ctypes.c_int(0), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    return CudaDevice(call)


class CudaDevice:
    """Device 0. Its memory is not freed: the process ends soon."""

    def __init__(self, call: Calls) -> None:
        self._call = call

    def memory(self, size: int) -> ctypes.c_void_p:
        """Return new memory on the device, in bytes, filled with zeros."""
        pointer = ctypes.c_uint64(0)
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        self._call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return ctypes.c_void_p(pointer.value)

    def floats(self, *values: float) -> ctypes.c_void_p:
        """Return new memory on the device that holds these numbers in single precision."""
        return self._copied((ctypes.c_float * len(values))(*values))

    def integers(self, *values: int) -> ctypes.c_void_p:
        """Return new memory on the device that holds these numbers in 32 bits."""
        return self._copied((ctypes.c_int32 * len(values))(*values))

    def _copied(self, array: ctypes.Array[ctypes.c_float] | ctypes.Array[ctypes.c_int32]) -> ctypes.c_void_p:
        pointer = self.memory(ctypes.sizeof(array))
        size = ctypes.c_size_t(ctypes.sizeof(array))
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer.value or 0), array, size)
        return pointer

    def read_floats(self, pointer: ctypes.c_void_p, count: int) -> list[float]:
        """Wait for the device, and return numbers in single precision from its memory."""
        array = (ctypes.c_float * count)()
        self._call("cuCtxSynchronize")
        size = ctypes.c_size_t(ctypes.sizeof(array))
        self._call("cuMemcpyDtoH_v2", array, ctypes.c_uint64(pointer.value or 0), size)
        return list(array)


def expect(title: str, result: Sequence[float], expected: Sequence[float]) -> None:
    """Raise NotUsable if a computation did not give the expected numbers."""
    if len(result) != len(expected) or any(
        not abs(number - required) <= 1e-4 * max(1.0, abs(required))  # a NaN is never right
        for number, required in zip(result, expected, strict=True)
    ):
        message = f"{title} gave {[round(number, 6) for number in result]}; it must be {list(expected)}"
        raise NotUsable("wrong-result", message)


def _unreachable(message: str, status: int) -> NotUsable:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if status == _NO_DEVICE and visible is not None:
        message += f"; CUDA_VISIBLE_DEVICES is {visible!r}"
    codes = {_NO_DEVICE: "no-device", _STUB_LIBRARY: "stub-library"}
    codes |= dict.fromkeys(_MISMATCHES, "driver-mismatch")
    return NotUsable(codes.get(status, "call-failed"), message)
