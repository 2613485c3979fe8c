"""Discrete Fourier transforms of arrays on a device, along any axes.

cuFFT reads an array where it lies if its strides are those of a block of a larger one; others are
copied first. Plans are kept in `mlbackends.cuda.cufft_plan_cache`.
"""

from typing import TYPE_CHECKING

from mlbackends.cuda.plan_cache import plans_of
from mlbackends_kernels.cuda import cublas, runtime
from mlbackends_kernels.cuda.cufft import FORWARD, INVERSE, MOST_AXES, Layout, Plan, Shape
from mlbackends_kernels.cuda.device_array import DeviceArray, empty, product, zeros
from mlbackends_kernels.cuda.dtypes import ELEMENT_TYPES
from mlbackends_kernels.cuda.strided_copy import copy_elements

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPLEX_OF = {
    "float32": "complex64",
    "float64": "complex128",
    "complex64": "complex64",
    "complex128": "complex128",
}
REAL_OF = {"complex64": "float32", "complex128": "float64"}


def transform(
    kind: str,
    array: DeviceArray,
    axes: "Sequence[int]",
    sizes: "Sequence[int]",
    *,
    inverse: bool,
    factor: float,
) -> DeviceArray:
    """Return the transform along `axes`, times `factor`.

    kind: c2c; r2c, whose last axis keeps sizes[-1] // 2 + 1 numbers; or c2r, its inverse. sizes: of
    the transform along each of the axes, each at least 1; an array is cut off or filled with zeros.
    Raises TypeError for a type that cuFFT does not transform.
    """
    array = _typed(kind, array)
    wanted = list(sizes)
    if kind == "c2r":
        wanted[-1] = sizes[-1] // 2 + 1
    array = _resized(array, axes, wanted)
    with runtime.on_device(array.device):
        result = _in_parts(kind, array, axes, sizes, INVERSE if inverse else FORWARD)
        if factor != 1 and result.size:
            handle = cublas.handle(result.device)
            handle.scale(result.pointer, result.size, result.dtype, factor)
    return result


def _typed(kind: str, array: DeviceArray) -> DeviceArray:
    """Return the array with elements as the kind of transform takes them."""
    if array.dtype not in COMPLEX_OF:
        message = f"transforms take {', '.join(COMPLEX_OF)}, not {array.dtype}"
        raise TypeError(message)
    if kind == "r2c":
        if array.dtype in REAL_OF:
            raise TypeError(f"a real transform takes real numbers, not {array.dtype}")
        return array
    if array.dtype in REAL_OF:
        return array
    result = zeros(array.shape, COMPLEX_OF[array.dtype], array.device)
    copy_elements(result, array)
    return result


def _resized(array: DeviceArray, axes: "Sequence[int]", sizes: "Sequence[int]") -> DeviceArray:
    """Return the array with these sizes along the axes: cut off as a view, or filled with zeros."""
    shape, overlap = list(array.shape), list(array.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis], overlap[axis] = size, min(size, overlap[axis])
    part = array.viewed(overlap, array.strides)
    if shape == overlap:
        return part
    result = zeros(shape, array.dtype, array.device)
    copy_elements(result.viewed(overlap, result.strides), part)
    return result


def _in_parts(
    kind: str, array: DeviceArray, axes: "Sequence[int]", sizes: "Sequence[int]", direction: int
) -> DeviceArray:
    """Transform along the last three axes and then along the others; for c2r the others first.

    The last result lies packed in memory, though its view may order the axes otherwise.
    """
    last, others = range(len(axes))[-MOST_AXES:], range(len(axes))[:-MOST_AXES]
    parts = [others[i : i + MOST_AXES] for i in range(0, len(others), MOST_AXES)]
    steps = [("c2c", part) for part in parts]
    steps.insert(len(steps) if kind == "c2r" else 0, (kind, last))
    for each, part in steps:
        array = _along(each, array, [axes[i] for i in part], [sizes[i] for i in part], direction)
    return array


def _along(
    kind: str, array: DeviceArray, axes: "Sequence[int]", sizes: "Sequence[int]", direction: int
) -> DeviceArray:
    rest = [axis for axis in range(array.ndim) if axis not in axes]
    order = [*rest, *axes]
    source = array.permuted(order)
    batch, counts = source.shape[: len(rest)], list(sizes)
    if kind == "r2c":
        counts[-1] = sizes[-1] // 2 + 1
    dtypes = {"r2c": COMPLEX_OF, "c2r": REAL_OF}.get(kind, {})
    dtype = dtypes.get(source.dtype, source.dtype)
    result = empty((*batch, *counts), dtype, source.device)
    if result.size:
        source, layout = _readable(kind, source, len(axes))
        target = Layout(tuple(counts), 1, product(counts))
        shape = Shape(kind, source.dtype, tuple(sizes), layout, target, product(batch))
        with plans_of(source.device).borrowed(shape, lambda: Plan(shape)) as plan:
            plan.run(source.pointer, result.pointer, direction)
    return result.permuted([order.index(axis) for axis in range(len(order))])


def _readable(kind: str, array: DeviceArray, rank: int) -> tuple[DeviceArray, Layout]:
    """Return an array whose last axes cuFFT can read, the same one if it can, and its layout."""
    layout = _layout(array, rank)
    # c2r uses its source as room for work; real numbers are read in pairs.
    pair = ELEMENT_TYPES[COMPLEX_OF[array.dtype]].itemsize
    if layout is not None and kind != "c2r" and not array.pointer % pair:
        return array, layout
    moved = empty(array.shape, array.dtype, array.device)
    copy_elements(moved, array)
    layout = _layout(moved, rank)
    assert layout is not None
    return moved, layout


def _layout(array: DeviceArray, rank: int) -> Layout | None:
    """Return how cuFFT is to read an array's last axes, None where it must be copied first."""
    shape, strides = array.shape, array.strides
    step = strides[-1] if shape[-1] > 1 else 1
    embed, below = [shape[-1]], step * shape[-1]
    if step < 1:
        return None
    unit = step
    for axis in range(2, rank + 1):
        stride = strides[-axis] if shape[-axis] > 1 else below
        if stride < below or stride % unit:
            return None
        embed[0] = stride // unit
        embed.insert(0, shape[-axis])
        unit, below = stride, stride * shape[-axis]
    distance = _distance(shape[:-rank], strides[:-rank])
    return None if distance is None else Layout(tuple(embed), step, distance or below)


def _distance(batch: "Sequence[int]", strides: "Sequence[int]") -> int | None:
    """Return the one stride that leads through a whole batch, 0 where there is but one element."""
    moving = [(count, by) for count, by in zip(batch, strides, strict=True) if count != 1]
    if not moving:
        return 0
    count, distance = moving[-1]
    for size, by in reversed(moving[:-1]):
        if by != distance * count:
            return None
        count *= size
    return distance if distance > 0 else None
