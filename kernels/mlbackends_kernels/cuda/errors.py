"""What can go wrong on the way to a device."""

from collections.abc import Iterator
from contextlib import contextmanager

from mlbackends.base.errors import MlBackendsError

INSTALL = "pip install 'mlbackends[cuda]'"


class CudaUnavailable(MlBackendsError, RuntimeError):
    """A device, its driver, one of NVIDIA's libraries or the binding of one is not there."""


class CudaError(MlBackendsError, RuntimeError):
    """A call of NVIDIA's software failed. status: what it returned, as a number or by its name."""

    exit_code = 1

    def __init__(self, function: str, status: int | str, name: str) -> None:
        super().__init__(f"{function} returned {name if status == name else f'{status} ({name})'}")
        self.status = status


class CudaOutOfMemory(CudaError, MemoryError):
    """A device has not as much memory as was asked for. What was allocated before is as it was."""

    def __init__(self, message: str) -> None:
        RuntimeError.__init__(self, message)
        self.status = 2


@contextmanager
def our_errors(what: str) -> Iterator[None]:
    """Raise what the bindings raise as ours. what: the function that is called, for the message."""
    try:
        yield
    except (CudaError, CudaUnavailable):
        raise
    except ImportError as error:
        raise CudaUnavailable(f"{what}: {error}", INSTALL) from None
    except Exception as error:
        kind, text = type(error).__name__, str(error)
        status = getattr(error, "status", None)
        if status is not None:  # nvmath's, one type for each library
            raise CudaError(what, int(status), text.partition(" ")[0].rstrip(":")) from None
        if kind in ("CUDAError", "NVRTCError"):
            name = text.partition(":")[0]
            raise CudaError(what, name, name) from None
        if kind in _MISSING or "dlopen" in text:
            hint = "a system's CUDA or pip install 'nvmath-python[cu13]' has NVIDIA's libraries"
            raise CudaUnavailable(f"{what}: {text or kind}", hint) from None
        raise


#: What the bindings raise where a library or one of its functions is not there, by name.
_MISSING = (
    "DynamicLibNotFoundError", "DynamicLibNotAvailableError", "FunctionNotFoundError",
    "NotSupportedError",
)  # fmt: skip
