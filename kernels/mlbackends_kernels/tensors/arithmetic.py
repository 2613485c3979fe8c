"""numpy, which the kernels compute with; it is asked for where it is used, for it costs time to start."""

from typing import Any

from mlbackends.model.errors import MlBackendsError

INSTALL = "pip install 'mlbackends[kernels]'"


def numpy() -> Any:
    """Return numpy. Raises MlBackendsError where it is not installed."""
    try:
        import numpy as np
    except ImportError as error:
        said = f"this computes with numpy, and it cannot be imported ({error}): {INSTALL}"
        raise MlBackendsError(said, INSTALL) from None
    return np
