"""The CUDA devices of this process, as the driver counts them. Loads the driver, and nothing else.

Source: CUDA Driver API, device management and context management.
"""

import ctypes
import sys
from functools import cache
from typing import Any

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute


@cache
def _driver() -> Any:
    """Return the driver's library, initialised; None where it cannot be loaded or initialised."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return None if driver.cuInit(0) else driver
    except (OSError, AttributeError):
        return None


def device_count() -> int:
    """Return the number of devices that this process may use; 0 without a driver."""
    driver, count = _driver(), ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def current_device() -> int:
    """Return the index of the calling thread's device; 0 where no device has been chosen."""
    driver, index = _driver(), ctypes.c_int()
    if driver is None or driver.cuCtxGetDevice(ctypes.byref(index)):
        return 0
    return index.value


def capability(index: int) -> tuple[int, int] | None:
    """Return a device's compute capability, such as (9, 0); None where it is not known."""
    driver, numbers = _driver(), []
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        number = ctypes.c_int()
        if driver is None or driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, index):
            return None
        numbers.append(number.value)
    return numbers[0], numbers[1]
