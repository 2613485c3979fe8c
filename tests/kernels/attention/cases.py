"""Numbers in each element type, and what tests of attention do with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlbackends.model.problem import TensorSpec
from mlbackends_kernels.tensors import arithmetic

#: Distance of 1 to the next number.
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def stored(array: Any, dtype: str) -> Any:
    """Return numbers in an element type; bfloat16 as patterns."""
    if dtype == "bfloat16":
        return arithmetic.bfloat16_from_float32(np.asarray(array, "float32"))
    return np.asarray(array).astype(dtype)


def numbers(array: Any, dtype: str, wide: str = "float64") -> Any:
    """Return the numbers that `stored` gave, in a wider type."""
    found = arithmetic.bfloat16_to_float32(array) if dtype == "bfloat16" else array
    with np.errstate(invalid="ignore"):  # some patterns are NaNs that signal
        return found.astype(wide)


def spec(array: Any, dtype: str, *, requires_grad: bool = False) -> TensorSpec:
    strides = tuple(step // array.itemsize for step in array.strides)
    return TensorSpec(array.shape, dtype, strides, requires_grad=requires_grad)


def gathered(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Return a gradient summed over what was repeated or broadcast from a tensor of this shape."""
    gradient = gradient.sum(tuple(range(gradient.ndim - len(shape))))
    for axis, size in enumerate(shape):
        if size != gradient.shape[axis]:
            split = (size, gradient.shape[axis] // size)
            apart = (*gradient.shape[:axis], *split, *gradient.shape[axis + 1 :])
            gradient = gradient.reshape(apart).sum(axis + 1)
    return gradient
