"""What can go wrong on the way to a device."""

from mlbackends.model.errors import MlBackendsError


class CudaUnavailable(MlBackendsError, RuntimeError):
    """A device, its driver or one of NVIDIA's libraries is not there."""


class CudaError(MlBackendsError, RuntimeError):
    """A call of NVIDIA's software failed. status: what it returned."""

    exit_code = 1

    def __init__(self, function: str, status: int, name: str) -> None:
        super().__init__(f"{function} returned {status} ({name})")
        self.status = status
