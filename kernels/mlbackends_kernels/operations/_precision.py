"""Products of arrays in memory, in the precision that the switches ask for.

Matrix units (AMX, tensor cores) round float32 operands to fewer bits, multiply those without error
and add up in float32. Rounding first and multiplying in float32 gives just that on any processor.

Source: Intel's optimization manual, chapter on AMX; the formats bfloat16 and TF32.
"""

from typing import TYPE_CHECKING, Any

from mlbackends.switches import store

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Of the 23 bits of a float32's fraction; 7 and 10 are left.
_DROPPED_BITS = {"bf16": 16, "tf32": 13}


class Product:
    """`a @ b` for operands of one type, as the switches were when it was made.

    float32 obeys `mkldnn.matmul.fp32_precision` while `mkldnn.enabled` holds; other types are exact,
    also those that are computed with as float32.
    """

    def __init__(self, dtype: str) -> None:
        self._dropped: int | None = None
        if dtype == "float32" and store.read("mkldnn.enabled"):
            word = str(store.read("mkldnn.matmul.fp32_precision"))
            self._dropped = _DROPPED_BITS.get(word)

    def __call__(self, a: "NDArray[Any]", b: "NDArray[Any]") -> "NDArray[Any]":
        """Multiply as `numpy.matmul` does. Raises NotImplementedError for booleans, as torch does."""
        import numpy as np

        if a.dtype.kind == "b":
            message = "there is no product of booleans; convert them to numbers"
            raise NotImplementedError(f"\"matmul\" not implemented for 'Bool': {message}")
        if self._dropped is not None:
            a, b = without_last_bits(a, self._dropped), without_last_bits(b, self._dropped)
        result: NDArray[Any] = np.matmul(a, b)
        return result


def without_last_bits(array: "NDArray[Any]", dropped: int) -> "NDArray[Any]":
    """Return float32 numbers rounded to the nearest whose last `dropped` bits are 0, ties to even.

    What is larger than all of them becomes infinite, and NaN stays NaN.
    """
    import numpy as np

    bits = np.ascontiguousarray(array).view(np.uint32)
    odd = (bits >> np.uint32(dropped)) & np.uint32(1)
    half = np.uint32((1 << (dropped - 1)) - 1)
    rounded = (bits + half + odd) & np.uint32((0xFFFFFFFF << dropped) & 0xFFFFFFFF)
    result: NDArray[Any] = np.where(np.isnan(array), array, rounded.view(np.float32))
    return result.reshape(array.shape)
