"""The driver and its devices: how many there are, the current one, and errors of NVIDIA's software.

Source: CUDA Driver API, context management.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from mlbackends.base.errors import MlBackendsError
from mlbackends.base.installed import install_command

#: Returns the command that installs what CUDA needs.
install = partial(install_command, "cuda", "nvidia-cuda-nvrtc")
#: What the bindings raise where a library or one of its functions is missing, by name.
_MISSING = (
    "DynamicLibNotFoundError", "DynamicLibNotAvailableError", "FunctionNotFoundError",
    "NotSupportedError",
)  # fmt: skip


class CudaUnavailable(MlBackendsError, RuntimeError):
    """A device, its driver, one of NVIDIA's libraries or a Python binding is missing."""


class CudaError(MlBackendsError, RuntimeError):
    """A call of NVIDIA's software failed. status: its number or name."""

    exit_code = 1

    def __init__(self, function: str, status: int | str, name: str) -> None:
        super().__init__(f"{function} returned {name if status == name else f'{status} ({name})'}")
        self.status = status


class CudaOutOfMemory(CudaError, MemoryError):
    """A device does not have the memory that was requested. Earlier allocations are unaffected."""


@contextmanager
def our_errors(function: str) -> Iterator[None]:
    """Raise errors of the bindings as ours. function: what is called, for the message."""
    try:
        yield
    except (CudaError, CudaUnavailable):
        raise
    except ImportError as error:
        raise CudaUnavailable(f"{function}: {error}", install()) from None
    except Exception as error:
        kind, text = type(error).__name__, str(error)
        if kind in ("CUDAError", "NVRTCError"):
            name = text.partition(":")[0]
            failed = CudaOutOfMemory if name == "CUDA_ERROR_OUT_OF_MEMORY" else CudaError
            message = name if kind == "CUDAError" else text  # with NVRTC's log
            raise failed(function, message, message) from None
        if kind in _MISSING or "dlopen" in text:
            raise CudaUnavailable(f"{function}: {text or kind}", install()) from None
        raise


@cache
def driver() -> Any:
    """Return the initialised binding of the driver. Raises CudaUnavailable without driver or binding."""
    try:
        from cuda.bindings import driver as binding

        (status,) = binding.cuInit(0)
    except ImportError as error:
        raise CudaUnavailable(f"CUDA is called through cuda-python: {error}", install()) from None
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
