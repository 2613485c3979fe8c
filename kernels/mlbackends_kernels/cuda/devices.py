"""The devices of the driver: how many there are, which one is current, what each can.

Source: CUDA Driver API, context management.
"""

from functools import cache
from typing import Any

from mlbackends_kernels.cuda.errors import INSTALL, CudaError, CudaUnavailable, our_errors

_DEVICE_MEMORY = 2


@cache
def driver() -> Any:
    """Return the binding of the driver, ready. Raises CudaUnavailable where one of both is missing."""
    try:
        from cuda.bindings import driver as binding

        (status,) = binding.cuInit(0)
    except ImportError as error:
        raise CudaUnavailable(f"CUDA is called through cuda-python: {error}", INSTALL) from None
    except Exception as error:  # noqa: BLE001  a driver that is not there raises one of several types
        raise CudaUnavailable(f"no driver of CUDA can be opened: {error}") from None
    if status:
        raise CudaUnavailable(f"cuInit returned {int(status)} ({status.name})")
    return binding


def call(name: str, *arguments: object) -> Any:
    """Call a function of the driver by its name and return what it returns beside its status.

    Raises CudaError where the status is not 0.
    """
    status, *values = getattr(driver(), name)(*arguments)
    if status:
        raise CudaError(name, int(status), status.name)
    return values[0] if len(values) == 1 else values


@cache
def core_device(index: int) -> Any:
    """Return cuda.core's device. Raises CudaUnavailable where it is not there."""
    from cuda.core import Device

    driver()
    try:
        with our_errors("cuDeviceGet"):
            return Device(index)
    except ValueError as error:
        raise CudaUnavailable(f"there is no cuda:{index}: {error}") from None


def device_count() -> int:
    """Return how many devices the driver shows to this process; 0 without a driver or its binding."""
    try:
        return int(call("cuDeviceGetCount"))
    except (CudaError, CudaUnavailable):
        return 0


def current_device() -> int:
    """Return the device that the calling thread uses; 0 where nothing has chosen one."""
    status, index = driver().cuCtxGetDevice()
    return 0 if status else int(index)


class on_device:  # noqa: N801  it is called as a function is
    """Make a device current in a block, and at its end what was."""

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


def device_of(pointer: int) -> int:
    """Return the device on which memory lies. Raises CudaUnavailable where it is the host's."""
    kinds = driver().CUpointer_attribute
    kind = call("cuPointerGetAttribute", kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer)
    is_managed = call("cuPointerGetAttribute", kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer)
    if int(kind) != _DEVICE_MEMORY and not is_managed:
        raise CudaUnavailable(f"the memory at {pointer:#x} is not a CUDA device's")
    return int(call("cuPointerGetAttribute", kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer))


@cache
def capability(index: int) -> tuple[int, int]:
    """Return a device's compute capability, such as (9, 0)."""
    major, minor = core_device(index).compute_capability
    return int(major), int(minor)
