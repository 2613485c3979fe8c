"""Copies between arrays of any strides on a device, without a kernel of ours.

cudaMemcpy2D copies rows that lie a pitch apart. An array is a few runs of bytes, each axis of which
that cannot be a pitch is a loop here: fine for a transposed matrix, slow for a broadcast one.
"""

import itertools
from typing import TYPE_CHECKING

from mlbackends.kernels.cuda import runtime
from mlbackends.kernels.cuda.device_array import DeviceArray, empty

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    width = source.itemsize
    axes = [
        (count, to * target.itemsize, of * source.itemsize)
        for count, to, of in zip(target.shape, target.strides, source.strides, strict=True)
        if count > 1
    ]
    axes.sort(key=lambda axis: -abs(axis[1]))
    # What follows on without a gap on both sides is one run.
    while axes and axes[-1][1] == axes[-1][2] == width:
        width *= axes.pop()[0]
    rows = _rows(axes, width)
    count, to_pitch, of_pitch = axes.pop(rows) if rows is not None else (1, width, width)
    with runtime.on_device(target.device):
        for to, of in _offsets(axes):
            runtime.copy_rows(
                target.pointer + to, to_pitch, source.pointer + of, of_pitch, width, count
            )


def _rows(axes: "Sequence[tuple[int, int, int]]", width: int) -> int | None:
    """Return the place of the longest axis that can be the rows of one copy, None without one."""
    fit = [i for i, (_, to, of) in enumerate(axes) if min(to, of) >= width]
    return max(fit, key=lambda i: axes[i][0]) if fit else None


def _offsets(axes: "Sequence[tuple[int, int, int]]") -> "list[tuple[int, int]]":
    """Return the offsets in bytes, in target and source, of each copy."""
    return [
        (
            sum(i * axis[1] for i, axis in zip(index, axes, strict=True)),
            sum(i * axis[2] for i, axis in zip(index, axes, strict=True)),
        )
        for index in itertools.product(*(range(axis[0]) for axis in axes))
    ]
