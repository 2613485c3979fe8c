"""Discrete Fourier transforms of arrays on a device, along any axes, by cuFFT through nvmath.

cuFFT reads an array where it lies if its strides are those of a block of a larger one; others are
copied first. Plans are kept in `mlbackends.cuda.cufft_plan_cache`; each run has a work area of its own,
allocated in the order of its stream.

Source: cuFFT documentation, sections on the advanced data layout, cufftMakePlanMany64, cufftExec*.
"""

import threading
from typing import TYPE_CHECKING, NamedTuple

from mlbackends.cuda.plan_cache import plans_of
from mlbackends_kernels.cuda import products
from mlbackends_kernels.cuda.copies import copy_elements
from mlbackends_kernels.cuda.device_array import DeviceArray, empty_like, product, zeros_like
from mlbackends_kernels.cuda.devices import driver, on_device
from mlbackends_kernels.cuda.dtypes import ITEMSIZES
from mlbackends_kernels.cuda.errors import our_errors
from mlbackends_kernels.cuda.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPLEX_OF = {
    "float32": "complex64",
    "float64": "complex128",
    "complex64": "complex64",
    "complex128": "complex128",
}
REAL_OF = {"complex64": "float32", "complex128": "float64"}

_FORWARD, _INVERSE = -1, 1
_MOST_AXES = 3  # of one plan
#: cufftType, and the function that runs a plan, by kind of transform and the input's type.
_KINDS = {
    ("c2c", "complex64"): (0x29, "exec_c2c"),
    ("r2c", "float32"): (0x2A, "exec_r2c"),
    ("c2r", "complex64"): (0x2C, "exec_c2r"),
    ("c2c", "complex128"): (0x69, "exec_z2z"),
    ("r2c", "float64"): (0x6A, "exec_d2z"),
    ("c2r", "complex128"): (0x6C, "exec_z2d"),
}


class _Layout(NamedTuple):
    """How elements lie, all counted in elements.

    embed: the sizes of the array in memory along the transformed axes. step: between neighbours
    along the last of them. distance: between one transform of the batch and the next.
    """

    embed: tuple[int, ...]
    step: int
    distance: int


class _Shape(NamedTuple):
    """What a plan is made for, and the key under which it is kept.

    kind: c2c, r2c or c2r. dtype: of the input. sizes: of the transform, along one to three axes.
    """

    kind: str
    dtype: str
    sizes: tuple[int, ...]
    source: _Layout
    target: _Layout
    batch: int


class _Plan:
    """A plan of cuFFT. The device on which it is made must be current, whenever it is used."""

    def __init__(self, shape: _Shape) -> None:
        number, function = _KINDS[shape.kind, shape.dtype]
        self._destroying, self._handle = threading.Lock(), None
        with our_errors("cufftCreate"):
            from nvmath.bindings import cufft

            driver()
            self._library, self._run = cufft, getattr(cufft, function)
            self._handle = cufft.create()
        self._direction = shape.kind == "c2c"
        try:
            with our_errors("cufftMakePlanMany64"):
                cufft.set_auto_allocation(self._handle, 0)
                self._work_bytes = cufft.make_plan_many64(
                    *(self._handle, len(shape.sizes), shape.sizes, *shape.source, *shape.target),
                    *(number, shape.batch),
                )
        except BaseException:
            self.destroy()
            raise

    def run(self, source: DeviceArray, target: DeviceArray, direction: int) -> None:
        """Transform one array into another, on the target's stream. c2r spoils its source."""
        work = Memory(self._work_bytes, target.device, target.stream)
        directions = (direction,) if self._direction else ()
        with our_errors("cufftExec"):
            self._library.set_stream(self._handle, target.stream)
            self._library.set_work_area(self._handle, work.pointer)
            self._run(self._handle, source.pointer, target.pointer, *directions)

    def destroy(self) -> None:
        """Give the plan back; a second time does nothing."""
        with self._destroying:
            handle, self._handle = self._handle, None
            if handle is not None:
                with our_errors("cufftDestroy"):
                    self._library.destroy(handle)


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
    with on_device(array.device):
        result = _in_parts(kind, array, axes, sizes, _INVERSE if inverse else _FORWARD)
        if factor != 1 and result.size:
            products.scale(result, factor)
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
    result = zeros_like(array, dtype=COMPLEX_OF[array.dtype])
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
    result = zeros_like(array, shape)
    copy_elements(result.viewed(overlap, result.strides), part)
    return result


def _in_parts(
    kind: str, array: DeviceArray, axes: "Sequence[int]", sizes: "Sequence[int]", direction: int
) -> DeviceArray:
    """Transform along the last three axes and then along the others; for c2r the others first.

    The last result lies packed in memory, though its view may order the axes otherwise.
    """
    last, others = range(len(axes))[-_MOST_AXES:], range(len(axes))[:-_MOST_AXES]
    parts = [others[i : i + _MOST_AXES] for i in range(0, len(others), _MOST_AXES)]
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
    result = empty_like(source, (*batch, *counts), dtype)
    if result.size:
        source, layout = _readable(kind, source, len(axes))
        target = _Layout(tuple(counts), 1, product(counts))
        shape = _Shape(kind, source.dtype, tuple(sizes), layout, target, product(batch))
        with plans_of(source.device).borrowed(shape, lambda: _Plan(shape)) as plan:
            plan.run(source, result, direction)
    return result.permuted([order.index(axis) for axis in range(len(order))])


def _readable(kind: str, array: DeviceArray, rank: int) -> tuple[DeviceArray, _Layout]:
    """Return an array whose last axes cuFFT can read, the same one if it can, and its layout."""
    layout = _layout(array, rank)
    # c2r uses its source as room for work; real numbers are read in pairs.
    pair = ITEMSIZES[COMPLEX_OF[array.dtype]]
    if layout is not None and kind != "c2r" and not array.pointer % pair:
        return array, layout
    moved = empty_like(array)
    copy_elements(moved, array)
    layout = _layout(moved, rank)
    assert layout is not None
    return moved, layout


def _layout(array: DeviceArray, rank: int) -> _Layout | None:
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
    return None if distance is None else _Layout(tuple(embed), step, distance or below)


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
