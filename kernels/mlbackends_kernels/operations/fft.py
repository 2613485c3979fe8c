"""Discrete Fourier transforms: NumPy's for arrays in memory, cuFFT's for arrays on a device.

Switches: `cuda.cufft_plan_cache` keeps the plans of each device.
"""

from typing import TYPE_CHECKING, Any

from mlbackends.sdpa.describe import refuse_unreadable_one
from mlbackends_kernels.cuda.device_array import as_device_array, empty_like, is_on_device, product
from mlbackends_kernels.operations._arrays import NARROW, operand, quiet, returned
from mlbackends_kernels.tensors.arithmetic import numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = {
    "fft": ("c2c", False),
    "ifft": ("c2c", True),
    "rfft": ("r2c", False),
    "irfft": ("c2r", True),
}
_OF_REAL = ("rfft", "rfftn", "ihfft")


def run(
    name: str,
    array: Any,
    sizes: "int | Sequence[int] | None",
    axes: "int | Sequence[int] | None",
    norm: str | None,
) -> Any:
    """Return the transform that `numpy.fft` calls by this name.

    name: fft, ifft, rfft, irfft, or one of these with an n behind it, hfft or ihfft. sizes, axes:
    numbers, and where there is an n, sequences of them. Raises what NumPy raises: ValueError for a
    size below 1, an axis that stands there twice and an unknown norm, IndexError for an axis that is
    not there; and TypeError for elements that it does not transform.
    """
    refuse_unreadable_one(f"{name}(): a", array)
    if is_on_device(array):
        return _on_device(name, as_device_array(array), sizes, axes, norm)
    return _in_memory(name, array, sizes, axes, norm)


@quiet
def _in_memory(name: str, array: Any, sizes: Any, axes: Any, norm: str | None) -> Any:
    np = numpy()
    values, dtype = operand(name, "a", array)
    if dtype in NARROW:
        raise TypeError(f"{name}() takes float32, float64 and complex numbers, not {dtype}")
    if name in _OF_REAL and values.dtype.kind == "c":
        raise TypeError(f"{name}() takes real numbers, not {dtype}; fft and fftn take complex ones")
    if (
        name.endswith("n") and axes is None and sizes is not None
    ):  # NumPy means to give this another meaning
        axes = range(-len(sizes), 0)
    return returned(array, getattr(np.fft, name)(values, sizes, axes, norm), dtype)


def frequencies(name: str, points: int, spacing: float) -> Any:
    """Return what `numpy.fft` calls fftfreq or rfftfreq: an array of float64."""
    np = numpy()
    if isinstance(points, bool) or not hasattr(type(points), "__index__"):
        raise TypeError(f"{name}() takes a number of points, an int, not {type(points).__name__}")
    if int(points) < 1 or not spacing:
        message = f"needs 1 point or more and a spacing other than 0, not {points} and {spacing}"
        raise ValueError(f"{name}() {message}")
    return getattr(np.fft, name)(int(points), spacing)


def shifted(name: str, array: Any, axes: "int | Sequence[int] | None") -> Any:
    """Return what `numpy.fft` calls fftshift or ifftshift, of the array's own kind and type."""
    refuse_unreadable_one(f"{name}(): x", array)
    if is_on_device(array):
        return _shifted_on_device(name, as_device_array(array), axes)
    np = numpy()
    values, dtype = operand(name, "x", array)
    return returned(array, np.ascontiguousarray(getattr(np.fft, name)(values, axes)), dtype)


def _shifted_on_device(name: str, array: Any, axes: Any) -> Any:
    """Move the first half of each axis behind the second, a copy for each half."""
    from mlbackends_kernels.cuda.copies import copy_elements, packed

    for axis in _axes(array.ndim, None, [axes] if isinstance(axes, int) else axes):
        count = array.shape[axis]
        half = count // 2 if name == "fftshift" else count - count // 2
        result = empty_like(array)
        for to, of, length in ((0, count - half, half), (half, 0, count - half)):
            shape = (*array.shape[:axis], length, *array.shape[axis + 1 :])
            target = result.viewed(shape, result.strides, to * result.strides[axis])
            copy_elements(target, array.viewed(shape, array.strides, of * array.strides[axis]))
        array = result
    return packed(array)


def _on_device(name: str, array: Any, sizes: Any, axes: Any, norm: str | None) -> Any:
    from mlbackends_kernels.cuda.transforms import transform

    if name.removesuffix("n") not in _KINDS:
        message = "conjugate before irfft, or behind rfft, and swap norm"
        raise NotImplementedError(
            f"{name}() takes arrays in memory, and this is on CUDA: {message}"
        )
    kind, inverse = _KINDS[name.removesuffix("n")]
    if name.endswith("n"):
        axes = _axes(array.ndim, sizes, axes)
    else:
        sizes, axes = None if sizes is None else [sizes], _axes(array.ndim, None, [axes])
    if not axes:
        raise ValueError("at least one axis is needed to transform along")
    if sizes is None:
        sizes = [array.shape[axis] for axis in axes]
        if kind == "c2r":
            sizes[-1] = 2 * (sizes[-1] - 1)
    sizes = [
        array.shape[axis] if size == -1 and name.endswith("n") else int(size)
        for axis, size in zip(axes, sizes, strict=True)
    ]
    if min(sizes) < 1:
        raise ValueError(f"Invalid number of FFT data points ({min(sizes)}) specified.")
    count = product(sizes)
    factor = _factor(norm, inverse, count)
    return transform(kind, array, axes, sizes, inverse=inverse, factor=factor)


def _axes(rank: int, sizes: Any, axes: Any) -> list[int]:
    """Return the axes as numbers from 0 on."""
    if axes is None:
        axes = range(rank) if sizes is None else range(-len(sizes), 0)
    found = []
    for axis in axes:
        if not -rank <= axis < rank:
            raise IndexError(f"axis {axis} is out of bounds for an array of dimension {rank}")
        found.append(axis % rank)
    if len(set(found)) != len(found):
        raise ValueError(f"each axis may be given once, not {list(axes)}")
    if sizes is not None and len(sizes) != len(found):
        raise ValueError(f"there are {len(sizes)} sizes for {len(found)} axes")
    return found


def _factor(norm: str | None, inverse: bool, count: int) -> float:
    """Return what a transform of `count` points is multiplied by."""
    if norm not in (None, "backward", "ortho", "forward"):
        message = 'should be None, "backward", "ortho" or "forward"'
        raise ValueError(f"Invalid norm value {norm!r}; {message}.")
    if norm == "ortho":
        return float(count**-0.5)
    return 1 / count if (norm == "forward") != inverse else 1.0
