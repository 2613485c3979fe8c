"""numpy, which the kernels compute with; it is imported where it is used, for importing takes long."""

from typing import Any

from mlbackends.model.errors import MlBackendsError

INSTALL = "pip install 'mlbackends[kernels]'"


def numpy() -> Any:
    """Return numpy. Raises MlBackendsError where it is not installed."""
    try:
        import numpy as np
    except ImportError as error:
        message = f"this computes with numpy, and it cannot be imported ({error}): {INSTALL}"
        raise MlBackendsError(message, INSTALL) from None
    return np
