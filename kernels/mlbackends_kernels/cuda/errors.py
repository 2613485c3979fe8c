"""Errors of NVIDIA's software, as ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from mlbackends.base.errors import MlBackendsError

INSTALL = "pip install 'mlbackends[cuda]' nvidia-cuda-nvrtc"
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
        raise CudaUnavailable(f"{function}: {error}", INSTALL) from None
    except Exception as error:
        kind, text = type(error).__name__, str(error)
        if kind in ("CUDAError", "NVRTCError"):
            name = text.partition(":")[0]
            failed = CudaOutOfMemory if name == "CUDA_ERROR_OUT_OF_MEMORY" else CudaError
            message = name if kind == "CUDAError" else text  # with NVRTC's log
            raise failed(function, message, message) from None
        if kind in _MISSING or "dlopen" in text:
            raise CudaUnavailable(f"{function}: {text or kind}", INSTALL) from None
        raise
