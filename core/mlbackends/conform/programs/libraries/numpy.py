"""NumPy: its BLAS (OpenBLAS, MKL, Accelerate), its loops and its FFT."""

from functools import partial
from typing import Any

import numpy as np

VERSION = np.__version__
TYPES = ("float64", "float32", "float16", "complex128", "complex64")


def laid_out(array: Any, layout: str, sizes: dict[str, int]) -> Any:
    """Return an array in a layout."""
    if layout == "zero-stride":
        return np.broadcast_to(array, (*array.shape[:-1], sizes["size"]))
    if layout == "strided":
        return np.repeat(array, 2, -1)[..., ::2]
    return np.ascontiguousarray(array.T).T


OPERATIONS = {
    "gemm": np.matmul, "exp": np.exp, "log": np.log, "fft": np.fft.fft, "sum": partial(np.sum, axis=-1),
    "max": partial(np.max, axis=-1), "cast": lambda x, dtype: x.astype(dtype),
}  # fmt: skip
