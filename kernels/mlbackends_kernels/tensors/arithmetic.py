"""numpy, which is imported only when it is used because that takes long, and bfloat16.

numpy has no bfloat16: arrays of uint16 hold its bit patterns.
"""

import importlib.util
import sys
from typing import Any

from mlbackends.base.errors import MlBackendsError
from mlbackends.base.installed import install_command
from mlbackends.base.reasons import Reason


def numpy() -> Any:
    """Return numpy. Raises MlBackendsError where it is not installed."""
    try:
        import numpy as np
    except ImportError as error:
        message, hint = (
            f"numpy is needed and cannot be imported ({error})",
            install_command("kernels"),
        )
        raise MlBackendsError(f"{message}: {hint}", hint) from None
    return np


def without_numpy() -> tuple[Reason, ...]:
    """Return a reason if numpy is not installed, without importing it."""
    if sys.modules.get("numpy") is not None or importlib.util.find_spec("numpy") is not None:
        return ()
    return (Reason("missing-part", "numpy is not installed", install_command("kernels")),)


def bfloat16_to_float32(bits: Any) -> Any:
    """Return the values of bit patterns (uint16, any shape) as float32, which is exact."""
    np = numpy()
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bfloat16_from_float32(array: Any) -> Any:
    """Return the bit patterns (uint16) nearest to float32 numbers, with ties to even.

    Numbers that are too large become infinite; NaN stays NaN.
    """
    np = numpy()
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)
    rounded_bits = np.where(np.isnan(array), (bits >> 16) | 0x40, rounded >> 16)
    return rounded_bits.astype(np.uint16).reshape(array.shape)
