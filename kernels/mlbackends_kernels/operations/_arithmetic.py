"""What einsum does with arrays: NumPy's in memory, and DeviceArrays by cuBLAS alone.

Both offer the same few functions. On a device a sum is a product with ones and an outer product one
over an inner dimension of size 1; those two are exact, whatever the switches allow.
"""

from typing import TYPE_CHECKING, Any, Protocol

from mlbackends_kernels.operations._precision import Product
from mlbackends_kernels.operations._shapes import product_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mlbackends_kernels.cuda.device_array import DeviceArray


class Arithmetic(Protocol):
    """The functions that both have; what they take and return is of their own kind."""

    def diagonal(self, array: Any, places: "Sequence[int]") -> Any:
        """Return the elements whose indices agree where two dimensions go to one place.

        places: for each dimension, its place in the result.
        """

    def permuted(self, array: Any, axes: "Sequence[int]") -> Any:
        """Return the array with its dimensions in another order."""

    def reshaped(self, array: Any, shape: "Sequence[int]") -> Any:
        """Return the elements in the same order under another shape."""

    def summed(self, array: Any, axes: "Sequence[int]") -> Any:
        """Return the sum over some dimensions, without them."""

    def product(self, a: Any, b: Any) -> Any:
        """Return `a @ b`, as the switches say."""

    def outer(self, a: Any, b: Any) -> Any:
        """Return the products of columns (..., m, 1) and rows (..., 1, n)."""


class InMemory:
    """NumPy's arrays, of the element type that they came with."""

    def __init__(self, dtype: str) -> None:
        self._product = Product(dtype)

    def diagonal(self, array: "NDArray[Any]", places: "Sequence[int]") -> "NDArray[Any]":
        """Return a view, or a copy."""
        import numpy as np

        result: NDArray[Any] = np.einsum(array, list(places), sorted(set(places)))
        return result

    def permuted(self, array: "NDArray[Any]", axes: "Sequence[int]") -> "NDArray[Any]":
        """Return the array with its dimensions in another order."""
        return array.transpose(axes)

    def reshaped(self, array: "NDArray[Any]", shape: "Sequence[int]") -> "NDArray[Any]":
        """Return the elements in the same order under another shape."""
        return array.reshape(shape)

    def summed(self, array: "NDArray[Any]", axes: "Sequence[int]") -> "NDArray[Any]":
        """Return the sum over some dimensions, without them."""
        result: NDArray[Any] = array.sum(tuple(axes))
        return result

    def product(self, a: "NDArray[Any]", b: "NDArray[Any]") -> "NDArray[Any]":
        """Return `a @ b`, as the switches say."""
        return self._product(a, b)

    def outer(self, a: "NDArray[Any]", b: "NDArray[Any]") -> "NDArray[Any]":
        """Return the products of columns (..., m, 1) and rows (..., 1, n)."""
        result: NDArray[Any] = a * b
        return result


class OnDevice:
    """Arrays on a CUDA device."""

    def diagonal(self, array: "DeviceArray", places: "Sequence[int]") -> "DeviceArray":
        """Return a view: along a diagonal one step is a step along each of its dimensions."""
        count = max(places) + 1
        shape, strides = [0] * count, [0] * count
        for place, size, step in zip(places, array.shape, array.strides, strict=True):
            shape[place] = size
            strides[place] += step
        return array.viewed(shape, strides)

    def permuted(self, array: "DeviceArray", axes: "Sequence[int]") -> "DeviceArray":
        """Return a view with the dimensions in another order."""
        return array.permuted(axes)

    def reshaped(self, array: "DeviceArray", shape: "Sequence[int]") -> "DeviceArray":
        """Return the elements under another shape, copied if they do not lie in their order."""
        from mlbackends_kernels.cuda.copies import packed

        return packed(array).viewed(shape)

    def summed(self, array: "DeviceArray", axes: "Sequence[int]") -> "DeviceArray":
        """Return the sum over some dimensions, by a product with ones."""
        from mlbackends_kernels.cuda.device_array import product

        remaining = [axis for axis in range(array.ndim) if axis not in axes]
        sizes, count = [array.shape[i] for i in remaining], product([array.shape[i] for i in axes])
        rows = self.reshaped(array.permuted([*remaining, *axes]), (product(sizes), count))
        return self.reshaped(self._exact(rows, _ones(count, array)), sizes)

    def product(self, a: "DeviceArray", b: "DeviceArray") -> "DeviceArray":
        """Return `a @ b`, as the switches say."""
        from mlbackends_kernels.cuda.products import multiply

        return multiply(a, b, product_shape(a.shape, b.shape))

    def outer(self, a: "DeviceArray", b: "DeviceArray") -> "DeviceArray":
        """Return the products of columns (..., m, 1) and rows (..., 1, n)."""
        return self._exact(a, b)

    def _exact(self, a: "DeviceArray", b: "DeviceArray") -> "DeviceArray":
        from mlbackends_kernels.cuda.products import EXACT, multiply

        return multiply(a, b, product_shape(a.shape, b.shape), EXACT)


def _ones(count: int, like: "DeviceArray") -> "DeviceArray":
    """Return `count` ones of an array's type, on its device and stream."""
    from mlbackends_kernels.cuda.device_array import empty, filled_with_ones

    return filled_with_ones(empty((count,), like.dtype, like.device, like.stream))
