"""bfloat16 as 16-bit patterns, since numpy has no such type."""

from typing import Any

from mlbackends_kernels.tensors.arithmetic import numpy


def to_float32(bits: Any) -> Any:
    """Return bfloat16 patterns (uint16, any shape) as float32, exactly."""
    np = numpy()
    return (bits.astype(np.uint32) << 16).view(np.float32)


def from_float32(array: Any) -> Any:
    """Return float32 numbers as bfloat16 patterns (uint16), rounded to nearest, ties to even.

    Numbers that are too large become infinite; NaN stays NaN.
    """
    np = numpy()
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)
    rounded_bits = np.where(np.isnan(array), (bits >> 16) | 0x40, rounded >> 16)
    return rounded_bits.astype(np.uint16).reshape(array.shape)
