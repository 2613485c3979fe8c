"""numpy, which the kernels compute with; it is asked for where it is used, for it costs time to start."""

from typing import Any

from mlbackends.model.errors import MlBackendsError


def numpy() -> Any:
    """Return numpy. Raises MlBackendsError where it is not installed."""
    try:
        import numpy as np
    except ImportError as error:
        said = f"attention on the CPU computes with numpy, and it cannot be imported: {error}"
        raise MlBackendsError(said, "install numpy 2.0 or newer") from None
    return np
