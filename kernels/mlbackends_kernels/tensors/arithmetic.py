"""numpy, which the kernels compute with; it is imported where it is used, for importing takes long."""

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
        message = f"this computes with numpy, and it cannot be imported ({error}): {INSTALL}"
        raise MlBackendsError(message, INSTALL) from None
    return np


def without_numpy() -> tuple[Reason, ...]:
    """Return that numpy is not installed, if so; it is not imported for that."""
    if sys.modules.get("numpy") is not None or importlib.util.find_spec("numpy") is not None:
        return ()
    return (Reason("missing-part", "it computes with numpy, and numpy is not installed", INSTALL),)
