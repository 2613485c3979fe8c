"""numpy, which is imported only where it is used, since importing it is slow."""

import importlib.util
import sys
from typing import Any

from mlbackends.base.errors import MlBackendsError
from mlbackends.base.reasons import Reason
from mlbackends.base.version import install_command

INSTALL = install_command("kernels")


def numpy() -> Any:
    """Return numpy. Raises MlBackendsError where it is not installed."""
    try:
        import numpy as np
    except ImportError as error:
        message = f"numpy is needed and cannot be imported ({error}): {INSTALL}"
        raise MlBackendsError(message, INSTALL) from None
    return np


def without_numpy() -> tuple[Reason, ...]:
    """Return a reason if numpy is not installed, without importing it."""
    if sys.modules.get("numpy") is not None or importlib.util.find_spec("numpy") is not None:
        return ()
    return (Reason("missing-part", "numpy is not installed", INSTALL),)
