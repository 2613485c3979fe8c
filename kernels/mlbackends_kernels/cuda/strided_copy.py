"""Copies between arrays of any strides on a device, without a kernel of ours.

A matrix is transposed by cuBLAS. Everything else is rows that lie a pitch apart, which cudaMemcpy2D
copies; an axis that neither takes is a loop here, so a broadcast array is copied slowly.
"""

import itertools
from typing import TYPE_CHECKING, NamedTuple

from mlbackends_kernels.cuda import cublas, runtime
from mlbackends_kernels.cuda.device_array import DeviceArray, empty

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_PITCH = 2**31 - 1
"""What cudaMemcpy2D takes in bytes, and cuBLAS in elements."""


class Axis(NamedTuple):
    """How many elements, and the bytes from one to the next in the target and in the source."""

    length: int
    to: int
    of: int


def packed(array: DeviceArray) -> DeviceArray:
    """Return the array itself where its elements lie one behind the other, else a copy."""
    if array.is_packed:
        return array
    result = empty(array.shape, array.dtype, array.device)
    copy_elements(result, array)
    return result


def copy_elements(target: DeviceArray, source: DeviceArray) -> None:
    """Copy the elements of an array into one of the same shape.

    The types may differ where the source's elements are the first part of the target's: real
    numbers into the real parts of complex ones.
    """
    if not target.size:
        return
    axes = [
        Axis(count, to * target.itemsize, of * source.itemsize)
        for count, to, of in zip(target.shape, target.strides, source.strides, strict=True)
        if count > 1
    ]
    axes.sort(key=lambda axis: -abs(axis.to))
    if target.dtype == source.dtype and target.dtype in cublas.CAN_TRANSPOSE:
        place = _transposed(axes, target.itemsize)
        if place is not None:
            _transpose(target, source, axes, place)
            return
    _copy_rows(target, source, axes)


def _transposed(axes: "Sequence[Axis]", size: int) -> int | None:
    """Return the axis over neighbours in the source, if another one runs over them in the target."""
    if not axes or axes[-1].to != size or not size < axes[-1].of:
        return None
    last = axes[-1]
    for place, axis in enumerate(axes[:-1]):
        steps = (axis.to, last.of)
        if (
            axis.of == size
            and axis.to >= last.length * size
            and last.of >= axis.length * size
            and not any(step % size or step // size > _MOST_PITCH for step in steps)
        ):
            return place
    return None


def _transpose(target: DeviceArray, source: DeviceArray, axes: "list[Axis]", place: int) -> None:
    rows, size = axes.pop(), target.itemsize
    columns = axes.pop(place)
    handle = cublas.handle(target.device)
    for to, of in _offsets(axes):
        handle.transpose(
            target.dtype,
            rows.length,
            columns.length,
            (target.pointer + to, columns.to // size),
            (source.pointer + of, rows.of // size),
        )


def _copy_rows(target: DeviceArray, source: DeviceArray, axes: "list[Axis]") -> None:
    width = source.itemsize
    # What follows on without a gap on both sides is one run.
    while axes and axes[-1].to == axes[-1].of == width:
        width *= axes.pop().length
    fit = [
        place
        for place, axis in enumerate(axes)
        if min(axis.to, axis.of) >= width and max(axis.to, axis.of) <= _MOST_PITCH
    ]
    rows = Axis(1, width, width)
    if fit:
        rows = axes.pop(max(fit, key=lambda place: axes[place].length))
    with runtime.on_device(target.device):
        for to, of in _offsets(axes):
            pitches = (target.pointer + to, rows.to, source.pointer + of, rows.of)
            runtime.copy_rows(*pitches, width, rows.length)


def _offsets(axes: "Sequence[Axis]") -> "Iterator[tuple[int, int]]":
    """Yield the offsets in bytes, in target and source, of each copy."""
    for index in itertools.product(*(range(axis.length) for axis in axes)):
        yield (
            sum(i * axis.to for i, axis in zip(index, axes, strict=True)),
            sum(i * axis.of for i, axis in zip(index, axes, strict=True)),
        )
