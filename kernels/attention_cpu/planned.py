"""A call that is like an earlier one: only addresses are new, and the library reads those itself.

The slow part of a small call is to look at tensors from Python. A plan holds the problem as the library
takes it, and the exact layouts for which it holds; the library compares them with what it is given.
"""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from mlbackends.kernels.attention_cpu.forward import compute, packer
from mlbackends.kernels.attention_cpu.library import (
    LAYOUT,
    PROBLEM,
    THREADS,
    library,
    planned,
    planning,
    with_field,
)
from mlbackends.kernels.attention_cpu.owners import layout_of, owner_of, watched
from mlbackends.kernels.attention_cpu.threads import worth
from mlbackends.kernels.tensors.arithmetic import numpy
from mlbackends.kernels.tensors.interchange import as_array

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.model.problem import AttentionProblem

#: Up to so many operations, some microseconds, it takes longer to give the GIL away and get it back.
_AT_ONCE = 1 << 17
_ADDRESSES = 7 * 8
_TENSORS = ctypes.py_object * 5


def prepared(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any, out: Any
) -> Callable[[Any, Any, Any, Any], Any] | None:
    """Return what computes the problem for other tensors that lie as these; None where that is not known.

    out: what `run` returned for them. What is returned takes query, key, value and mask of exactly the
    types of these; it returns None, with nothing done, for tensors that lie otherwise, or that carry
    more than numbers. Raises NotBuilt.
    """
    kind: Any = type(query)
    tensors = [query, key, value, out, *(() if mask is None else (mask,))]
    owner = owner_of(kind) if all(type(each) is kind for each in tensors) else None
    if owner is None or problem.dropout or len(problem.output_shape) > 4:
        return None
    try:
        is_watched = watched(kind)
    except AttributeError:
        return None
    if is_watched is not None and is_watched(query, key, value, mask):
        return None
    arrays = [as_array(each) for each in tensors]
    layouts = [_layout(owner, *pair) for pair in zip(tensors, arrays, strict=True)]
    make = _maker(query, out)
    if make is None or None in layouts:
        return None
    inputs = (*arrays[:3], arrays[4] if mask is not None else None)
    asked = packer(problem, (*inputs, arrays[3], None), 0, 1)(0)
    asked = bytes(_ADDRESSES) + asked[_ADDRESSES:]
    plan = b"".join([asked, owner, *filter(None, layouts)])
    if mask is None:
        plan += bytes(LAYOUT.size)
    plan += arrays[0].itemsize.to_bytes(8, sys.byteorder)
    plan += (0 if mask is None else arrays[4].itemsize).to_bytes(8, sys.byteorder)
    rows = prod(problem.output_shape[:-1])
    operations = 2 * rows * problem.key_length * (problem.head_dim + problem.value_dim)
    if operations <= _AT_ONCE and not library().mlbackends_attention_workspace(asked):
        return _at_once(plan, make, is_watched)
    moved = (arrays[1].size + arrays[2].size) * arrays[0].itemsize
    return _in_parts(plan, make, is_watched, partial(worth, operations, moved))


def _layout(owner: bytes, tensor: Any, array: Any) -> bytes | None:
    """Return how a tensor lies if it is read where it is, and not from a copy."""
    found = layout_of(owner, tensor)
    if found is None or not array.flags.aligned or array.ctypes.data != found[1]:
        return None
    return None if any(stride % array.itemsize for stride in array.strides) else found[0]


def _maker(query: Any, out: Any) -> Callable[[Any], Any] | None:
    """Return what makes, from a query, room for a result like `out`."""
    np = numpy()
    if not isinstance(out, np.ndarray):
        torch: Any = sys.modules["torch"]
        like = torch.empty_like(query)
        if (like.shape, like.stride(), like.dtype) == (out.shape, out.stride(), out.dtype):
            return torch.empty_like  # type: ignore[no-any-return]  # cheaper by far than with a shape
        shape, strides, dtype = out.shape, out.stride(), out.dtype
        return lambda _: torch.empty_strided(shape, strides, dtype=dtype)
    empty, shape, dtype = np.empty, out.shape, out.dtype
    if out.flags.c_contiguous:
        return lambda _: empty(shape, dtype)
    swapped = out.swapaxes(-2, -3)
    if not swapped.flags.c_contiguous:
        return None
    shape = swapped.shape
    return lambda _: empty(shape, dtype).swapaxes(-2, -3)


def _at_once(
    plan: bytes, make: Callable[[Any], Any], is_watched: Callable[..., bool] | None
) -> Callable[[Any, Any, Any, Any], Any]:
    computed = planned(plan)

    def call(query: Any, key: Any, value: Any, mask: Any) -> Any:
        if is_watched is not None and is_watched(query, key, value, mask):
            return None
        try:
            return computed(query, key, value, mask, make(query))
        except Exception:  # noqa: BLE001  whatever their owner says of them, it will say again
            return None

    return call


def _in_parts(
    plan: bytes,
    make: Callable[[Any], Any],
    is_watched: Callable[..., bool] | None,
    threads: Callable[[], int],
) -> Callable[[Any, Any, Any, Any], Any]:
    placed = planning().mlbackends_attention_placed

    def call(query: Any, key: Any, value: Any, mask: Any) -> Any:
        if is_watched is not None and is_watched(query, key, value, mask):
            return None
        asked = ctypes.create_string_buffer(PROBLEM.size)
        try:
            out = make(query)
            if placed(plan, _TENSORS(query, key, value, mask, out), asked):
                return None
        except Exception:  # noqa: BLE001  as above
            return None
        compute(with_field(asked.raw, THREADS, threads()))
        return out

    return call
