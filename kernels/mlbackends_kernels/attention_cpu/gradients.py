"""The gradients of one problem through the library."""

from __future__ import annotations

from ctypes import byref
from math import prod
from typing import TYPE_CHECKING, Any

from mlbackends_kernels.attention_cpu.formula import summed
from mlbackends_kernels.attention_cpu.forward import (
    aligned,
    call_until_done,
    packed,
    parts_of_four,
    room,
    strides,
)
from mlbackends_kernels.attention_cpu.library import abi, library
from mlbackends_kernels.attention_cpu.threads import worth
from mlbackends_kernels.tensors import interchange
from mlbackends_kernels.tensors.arithmetic import numpy

if TYPE_CHECKING:
    from mlbackends.model.problem import AttentionProblem

#: The largest log-sum-exp whose last place, in float32, is fine enough for weights of this element type;
#: above, weights are computed an additional time.
FINE = {"float64": 12.0, "float32": 12.0, "float16": 256.0, "bfloat16": 2048.0}


def differentiate(
    problem: AttentionProblem,
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    out: Any,
    logsumexp: Any,
) -> tuple[Any, Any, Any, Any]:
    """Return arrays: the gradients of query, key, value and mask, each of its shape and element type.

    Takes tensors of any kind. The last one is None where the mask requires no gradient. Raises NotBuilt and
    MemoryError.
    """
    np = numpy()
    arrays = [aligned(interchange.as_array(each)) for each in (query, key, value)]
    seen = None if mask is None else aligned(interchange.as_array(mask))
    results = [_along_rows(aligned(interchange.as_array(each))) for each in (grad_out, out)]
    sums = np.ascontiguousarray(interchange.as_array(logsumexp))
    leading, shapes = problem.leading_shape, [each.shape for each in arrays]
    full = [(*leading, *shapes[0][-2:]), *(_shared(leading, shape) for shape in shapes[1:])]
    found = [room(array, shape) for array, shape in zip(arrays, full, strict=True)]
    for_mask = _room_for_mask(problem, leading)
    if not prod((*leading, problem.query_length, problem.key_length)):
        for each in found:
            each[...] = 0
    else:
        together = (*arrays, seen, *results, sums[..., None], *found, for_mask)
        for before, parts in parts_of_four(together, leading):
            _call(problem, before, parts)
    for place, (each, shape) in enumerate(zip(found, shapes, strict=True)):
        if each.shape != shape:
            found[place] = _of(problem.dtype, summed(_widened(problem.dtype, each), shape))
    if problem.mask is not None and for_mask is not None:
        for_mask = _of(problem.mask.dtype, summed(for_mask, problem.mask.shape))
    return (*found, for_mask)


def _call(problem: AttentionProblem, before: int, parts: tuple[Any, ...]) -> None:
    query, key, value, mask, grad_out, out, logsumexp, *found = parts
    for_query, for_key, for_value, for_mask = found
    rows, keys = out.shape[-2], key.shape[-2]
    operations = 4 * prod(out.shape[:-2]) * rows * keys * (key.shape[-1] + out.shape[-1])
    threads = worth(operations, 2 * (key.size + value.size) * out.itemsize)
    given = abi().structures["gradients"](
        forward=packed(problem, (query, key, value, mask, out, logsumexp), before, threads),
        of_output=grad_out.ctypes.data,
        query=for_query.ctypes.data,
        key=for_key.ctypes.data,
        value=for_value.ctypes.data,
        mask=None if for_mask is None else for_mask.ctypes.data,
        of_output_strides=strides(grad_out, 3),
        query_strides=strides(for_query, 3),
        key_strides=strides(for_key, 3),
        value_strides=strides(for_value, 3),
        mask_strides=strides(for_mask, 4),
    )
    np, functions = numpy(), library()
    workspace = np.empty(functions.mlbackends_attention_gradients_workspace(byref(given)), "uint8")
    given.forward.workspace = workspace.ctypes.data
    if _coarse(problem, logsumexp):
        refined = np.empty((3, logsumexp.size), logsumexp.dtype)
        given.refined = refined.ctypes.data
        call_until_done(functions.mlbackends_attention_refine, given)
    call_until_done(functions.mlbackends_attention_backward, given)


def _coarse(problem: AttentionProblem, logsumexp: Any) -> bool:
    """Tell whether a log-sum-exp is so large that its last place is too coarse for the weights of its row."""
    np = numpy()
    largest = np.abs(logsumexp, where=np.isfinite(logsumexp), out=np.zeros_like(logsumexp)).max()
    return bool(largest > FINE[problem.dtype])


def _along_rows(array: Any) -> Any:
    """Return the array, or a copy where the elements of a row do not follow each other."""
    if array.shape[-1] < 2 or array.strides[-1] == array.itemsize:
        return array
    return array.copy()


def _shared(leading: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in which the library gives the gradient of key or value: one for each batch."""
    if not leading:
        return shape[-2:]
    return (*leading[:-1], shape[-3] if len(shape) > 2 else 1, *shape[-2:])


def _room_for_mask(problem: AttentionProblem, leading: tuple[int, ...]) -> Any:
    mask = problem.mask
    if mask is None or not mask.requires_grad or mask.dtype == "bool":
        return None
    before = leading[:-2]
    own = (1,) * (4 - len(mask.shape)) + mask.shape[-4:]
    wide = "float64" if problem.dtype == "float64" else "float32"
    return numpy().zeros((*before, *own), wide)


def _widened(dtype: str, array: Any) -> Any:
    return interchange.widened(array, dtype, "float64" if dtype == "float64" else "float32")


def _of(dtype: str, array: Any) -> Any:
    return interchange.narrowed(array, dtype)
