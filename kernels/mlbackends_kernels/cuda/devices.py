"""The driver and its devices: the number of devices, the current device, capabilities.

Source: CUDA Driver API, context management.
"""

from functools import cache
from typing import Any

from mlbackends_kernels.cuda.errors import INSTALL, CudaError, CudaUnavailable, our_errors


@cache
def driver() -> Any:
    """Return the initialised binding of the driver. Raises CudaUnavailable without driver or binding."""
    try:
        from cuda.bindings import driver as binding

        (status,) = binding.cuInit(0)
    except ImportError as error:
        raise CudaUnavailable(f"CUDA is called through cuda-python: {error}", INSTALL) from None
    except Exception as error:  # noqa: BLE001  a missing driver raises one of several types
        raise CudaUnavailable(f"the CUDA driver cannot be loaded: {error}") from None
    if status:
        raise CudaUnavailable(f"cuInit returned {int(status)} ({status.name})")
    return binding


def call(name: str, *arguments: object) -> Any:
    """Call a function of the driver by name, and return its results without the status.

    Raises CudaError where the status is not 0.
    """
    status, *values = getattr(driver(), name)(*arguments)
    if status:
        raise CudaError(name, int(status), status.name)
    return values[0] if len(values) == 1 else values


@cache
def core_device(index: int) -> Any:
    """Return cuda.core's device. Raises CudaUnavailable if there is no such device."""
    from cuda.core import Device

    driver()
    try:
        with our_errors("cuDeviceGet"):
            return Device(index)
    except ValueError as error:
        raise CudaUnavailable(f"there is no cuda:{index}: {error}") from None


def device_count() -> int:
    """Return the number of devices of this process; 0 without a driver or its binding."""
    try:
        return int(call("cuDeviceGetCount"))
    except (CudaError, CudaUnavailable):
        return 0


def current_device() -> int:
    """Return the device of the calling thread; 0 if none has been chosen."""
    status, index = driver().cuCtxGetDevice()
    return 0 if status else int(index)


class on_device:  # noqa: N801  it is called like a function
    """Make a device current in a block, and restore the previous one at its end."""

    __slots__ = ("_before", "_index")

    def __init__(self, index: int) -> None:
        self._index = index
        self._before: Any = None

    def __enter__(self) -> None:
        status, now = driver().cuCtxGetDevice()
        if status or int(now) != self._index:
            before = call("cuCtxGetCurrent")
            with our_errors("cuCtxSetCurrent"):
                core_device(self._index).set_current()
            self._before = before

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            call("cuCtxSetCurrent", self._before)


@cache
def capability(index: int) -> tuple[int, int]:
    """Return a device's compute capability, such as (9, 0)."""
    major, minor = core_device(index).compute_capability
    return int(major), int(minor)
