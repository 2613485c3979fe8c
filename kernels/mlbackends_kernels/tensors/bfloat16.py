"""bfloat16 as the 16-bit patterns that it is: numpy has no such type, and needs none for this."""

from typing import Any

from mlbackends_kernels.tensors.arithmetic import numpy


def to_float32(bits: Any) -> Any:
    """Return the numbers that patterns (uint16, any shape) stand for, as float32: always exact."""
    np = numpy()
    return (bits.astype(np.uint32) << 16).view(np.float32)


def from_float32(array: Any) -> Any:
    """Return the patterns (uint16) nearest to float32 numbers; halfway, to the even one.

    What is too large becomes infinite; a NaN stays one.
    """
    np = numpy()
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)
    rounded_bits = np.where(np.isnan(array), (bits >> 16) | 0x40, rounded >> 16)
    return rounded_bits.astype(np.uint16).reshape(array.shape)
