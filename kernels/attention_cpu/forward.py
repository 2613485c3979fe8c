"""One problem through the library: arrays in, an array out, and nothing copied that lies well."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from mlbackends.kernels.attention_cpu.library import ELEMENTS, PROBLEM, level, library
from mlbackends.kernels.attention_cpu.threads import worth
from mlbackends.kernels.tensors import interchange
from mlbackends.kernels.tensors.arithmetic import numpy

if TYPE_CHECKING:
    from mlbackends.model.problem import AttentionProblem

#: After so long Python gets to look at signals.
_MILLISECONDS = 50

#: Of a seed, the lower 64 bits count.
_WORD = (1 << 64) - 1


def attend(
    problem: AttentionProblem,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    logsumexp: bool = False,
) -> tuple[Any, Any]:
    """Return attention, and if asked the logarithm of the sum of each row's exponentials (..., H, L).

    Takes anybody's tensors; the first result is of the query's kind, the second an array (float64 for
    float64, else float32), 0 for a row that sees no key; None where it is not asked for. Raises
    NotBuilt and MemoryError.
    """
    np = numpy()
    arrays = tuple(_aligned(interchange.as_array(each)) for each in (query, key, value))
    seen = None if mask is None else _aligned(interchange.as_array(mask))
    out = _output(problem, arrays[0])
    wide = "float64" if problem.dtype == "float64" else "float32"
    sums = np.zeros(problem.output_shape[:-1], wide) if logsumexp else None
    _in_four_dimensions(problem, (*arrays, seen), out, sums)
    return interchange.like(query, out), sums


def _aligned(array: Any) -> Any:
    """Return the array, or a copy where its elements lie across their own size."""
    size = array.itemsize
    if array.flags.aligned and not any(stride % size for stride in array.strides):
        return array
    return array.copy()


def _output(problem: AttentionProblem, query: Any) -> Any:
    """Return room for the result, laid out as the query: (B, H, L, Ev) or (B, L, H, Ev) in memory."""
    np, shape = numpy(), problem.output_shape
    strides = query.strides
    if len(shape) > 2 and query.ndim == len(shape) and 0 < strides[-3] < strides[-2]:
        swapped = (*shape[:-3], shape[-2], shape[-3], shape[-1])
        return np.empty(swapped, query.dtype).swapaxes(-2, -3)
    return np.empty(shape, query.dtype)


def _in_four_dimensions(
    problem: AttentionProblem, inputs: tuple[Any, ...], out: Any, logsumexp: Any
) -> None:
    """Compute it; what lies before batch and heads is taken one after the other.

    Dropout counts the batches through all dimensions before the heads, so there they become one.
    """
    if out.ndim <= 4:
        return _call(problem, inputs, out, logsumexp)
    if problem.dropout:
        merged = tuple(_as_one_batch(array, out.shape[:-3]) for array in inputs)
        count = prod(out.shape[:-3])
        sums = None if logsumexp is None else logsumexp.reshape(count, *logsumexp.shape[-2:])
        return _call(problem, merged, out.reshape(count, *out.shape[-3:]), sums)

    def part(array: Any, index: int) -> Any:
        if array is None or array.ndim < out.ndim:
            return array
        return array[index if array.shape[0] > 1 else 0]

    for index in range(out.shape[0]):
        parts = tuple(part(array, index) for array in inputs)
        _in_four_dimensions(
            problem, parts, out[index], None if logsumexp is None else logsumexp[index]
        )
    return None


def _as_one_batch(array: Any, batches: tuple[int, ...]) -> Any:
    """Return an array (..., H, L, E) with all that is before its heads in one dimension."""
    if array is None or array.ndim < 4 or all(size == 1 for size in array.shape[:-3]):
        return array if array is None else array.reshape(array.shape[-3:])
    tail = array.shape[-3:]
    return numpy().broadcast_to(array, (*batches, *tail)).reshape(prod(batches), *tail)


def _call(problem: AttentionProblem, inputs: tuple[Any, ...], out: Any, logsumexp: Any) -> None:
    query, key, value, mask = inputs
    rows, keys, width, value_width = out.shape[-2], key.shape[-2], key.shape[-1], out.shape[-1]
    batch = out.shape[-4] if out.ndim > 3 else 1
    heads = out.shape[-3] if out.ndim > 2 else 1
    if not out.size:
        return
    scale = problem.scale
    if scale is None:
        scale = (width or 1) ** -0.5
    size = out.itemsize
    operations = 2 * batch * heads * rows * keys * (width + value_width)
    threads = worth(operations, (key.size + value.size) * size)
    offset = keys - rows if problem.lower_right else 0

    def packed(workspace: int) -> bytes:
        return PROBLEM.pack(
            *(query.ctypes.data, key.ctypes.data, value.ctypes.data),
            0 if mask is None else mask.ctypes.data,
            *(out.ctypes.data, 0 if logsumexp is None else logsumexp.ctypes.data, workspace),
            *(batch, heads, rows, keys, width, value_width),
            *(_group(key, heads), _group(value, heads)),
            *(*_strides(query, 3), *_strides(key, 3), *_strides(value, 3), *_strides(out, 3)),
            *((0, 0, 0, 0) if mask is None else _strides(mask, 4)),
            *(offset, scale, problem.dropout, (problem.seed or 0) & _WORD, ELEMENTS[problem.dtype]),
            0 if problem.mask is None else ELEMENTS[problem.mask.dtype],
            *(int(problem.is_causal), level(), threads),
        )

    functions = library()
    asked = packed(0)
    needed = functions.mlbackends_attention_workspace(asked)
    if needed:
        workspace = numpy().empty(needed, "uint8")
        asked = packed(workspace.ctypes.data)
    first = functions.mlbackends_attention_forward(asked, 0, _MILLISECONDS)
    while first >= 0:  # Python handles signals here
        first = functions.mlbackends_attention_forward(asked, first, _MILLISECONDS)
    if first != -1:
        raise MemoryError("attention needs under 1 MB for each thread, and there is none")


def _group(array: Any, heads: int) -> int:
    """Return how many heads of the query share one of key or value."""
    return heads // array.shape[-3] if array.ndim > 2 else heads


def _strides(array: Any, count: int) -> list[int]:
    """Return strides in elements of batch, heads and rows, for a mask also of keys; 0 to broadcast."""
    size, ndim = array.itemsize, array.ndim
    return [
        0 if ndim < 4 - place or array.shape[place - 4] == 1 else array.strides[place - 4] // size
        for place in range(count)
    ]
