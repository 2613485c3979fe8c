"""The types of elements that can lie on a device, by NumPy's names, and how NVIDIA's libraries write them.

Source: library_types.h, cudaDataType.
"""

from functools import cache
from typing import Any

ITEMSIZES = {
    "bool": 1, "int32": 4, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8,
    "complex128": 16,
}  # fmt: skip
CUDA_TYPES = {
    "float16": 2, "bfloat16": 14, "float32": 0, "float64": 1, "complex64": 4, "complex128": 5,
}  # fmt: skip


def known(name: str) -> str:
    """Return a type's name. Raises TypeError for one that nothing here computes with."""
    if name not in ITEMSIZES:
        raise TypeError(f"elements of type {name} are not one of {', '.join(ITEMSIZES)}")
    return name


@cache
def numpy_dtype(name: str) -> Any:
    """Return NumPy's type; that of bfloat16 comes from ml_dtypes."""
    import numpy as np

    if name == "bfloat16":
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
