"""Copies between arrays of any strides on a device: torch's or CuPy's where both are theirs, else ours.

Ours is a kernel that NVRTC compiles at first use. It has not run on a GPU yet.
"""

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends.sdpa.describe import is_torch
from mlbackends_kernels.cuda.device_array import DeviceArray, as_owner, empty_like, product
from mlbackends_kernels.cuda.devices import call, on_device
from mlbackends_kernels.cuda.launching import from_source
from mlbackends_kernels.cuda.streams import is_cupy

if TYPE_CHECKING:
    from collections.abc import Sequence

_SOURCE = Path(__file__).with_name("copies.cu")
_AXES = 6  # that the kernel has
_THREADS, _MOST_BLOCKS = 256, 1 << 16


class _Axis(NamedTuple):
    """How many elements, and the bytes from one to the next in the target and in the source."""

    length: int
    to: int
    of: int


def packed(array: DeviceArray) -> DeviceArray:
    """Return the array itself where its elements lie one behind the other, else a copy."""
    if array.is_packed:
        return array
    result = empty_like(array)
    copy_elements(result, array)
    return result


def copy_elements(target: DeviceArray, source: DeviceArray) -> None:
    """Copy the elements of an array into one of the same shape, on the target's stream.

    The types may differ where the source's elements are the first part of the target's: real
    numbers into the real parts of complex ones.
    """
    if not target.size:
        return
    if is_torch(target.owner) and is_torch(source.owner):
        with as_owner(target), sys.modules["torch"].no_grad():
            _of_torch(target).copy_(_of_torch(source))
        return
    if is_cupy(target.owner) and is_cupy(source.owner):
        with as_owner(target):
            _of_cupy(target)[...] = _of_cupy(source)
        return
    axes = _joined([
        _Axis(count, to * target.itemsize, of * source.itemsize)
        for count, to, of in zip(target.shape, target.strides, source.strides, strict=True)
        if count > 1
    ])  # fmt: skip
    with on_device(target.device):
        if not axes or axes == [_Axis(target.size, source.itemsize, source.itemsize)]:
            size = source.itemsize * target.size
            call("cuMemcpyDtoDAsync", target.pointer, source.pointer, size, target.stream)
        else:
            _launch(target, source, axes)


def _joined(axes: "list[_Axis]") -> "list[_Axis]":
    """Return the axes, the target's nearest neighbours last, those that follow on as one."""
    axes.sort(key=lambda axis: -abs(axis.to))
    joined: list[_Axis] = []
    for axis in axes:
        last = joined[-1] if joined else None
        if last and (last.to, last.of) == (axis.to * axis.length, axis.of * axis.length):
            joined[-1] = _Axis(last.length * axis.length, axis.to, axis.of)
        else:
            joined.append(axis)
    return joined


def _launch(target: DeviceArray, source: DeviceArray, axes: "Sequence[_Axis]") -> None:
    """Launch the kernel, once for each index of the axes before its last six."""
    import numpy as np

    outer, inner = axes[:-_AXES], axes[-_AXES:]
    inner = [*[_Axis(1, 0, 0)] * (_AXES - len(inner)), *inner]
    total = product([axis.length for axis in inner])
    block = (_THREADS, 1, 1)
    kernel = from_source(_SOURCE, f"copy_{source.itemsize}", target.device, block)
    steps = [np.int64(number) for column in zip(*inner, strict=True) for number in column]
    grid = (min(-(-total // _THREADS), _MOST_BLOCKS), 1, 1)
    for index in itertools.product(*(range(axis.length) for axis in outer)):
        to = sum(i * axis.to for i, axis in zip(index, outer, strict=True))
        of = sum(i * axis.of for i, axis in zip(index, outer, strict=True))
        pointers = target.pointer + to, source.pointer + of
        kernel(target.device, target.stream, grid, *pointers, np.int64(total), *steps)


def _of_torch(array: DeviceArray) -> Any:
    owner: Any = array.owner
    offset = owner.storage_offset() + (array.pointer - owner.data_ptr()) // array.itemsize
    return owner.as_strided(array.shape, array.strides, offset)


def _of_cupy(array: DeviceArray) -> Any:
    owner: Any = array.owner
    strides = [step * array.itemsize for step in array.strides]
    memory = owner.data + (array.pointer - int(owner.data.ptr))
    return sys.modules["cupy"].ndarray(array.shape, array.dtype, memptr=memory, strides=strides)
