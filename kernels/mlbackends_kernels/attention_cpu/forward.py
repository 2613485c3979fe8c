"""The forward pass through the library; arrays are copied only where their layout requires it."""

import ctypes
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends_kernels.attention_cpu.library import abi, level, library
from mlbackends_kernels.attention_cpu.rows import require_pages
from mlbackends_kernels.attention_cpu.threads import parallel_of, worth
from mlbackends_kernels.tensors import interchange
from mlbackends_kernels.tensors.arithmetic import numpy

#: The longest time without a check for signals by Python.
_MILLISECONDS = 50

#: A side of a window that has every key.
_EVERY_KEY = 1 << 60

#: The bits of a seed that are used.
SEEDS = (1 << 64) - 1


def attend(
    problem: AttentionProblem,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    logsumexp: bool = False,
    sinks: Any = None,
    alibi_slopes: Any = None,
    page_table: Any = None,
) -> tuple[Any, Any]:
    """Return attention, and with `logsumexp` the logarithm of the sum of each row's exponentials (..., H, L).

    Tensors may be of any kind; the results are of the query's kind. The second is float64 for float64,
    otherwise float32, 0 for a row that sees no key; None without `logsumexp`. Raises NotBuilt, MemoryError,
    and IndexError for a page that does not exist.
    """
    np, problem = numpy(), interchange.seeded(problem, query)
    arrays = read_inputs(problem, query, key, value, mask)
    out = room(arrays[0], problem.output_shape)
    wide = "float64" if problem.dtype == "float64" else "float32"
    sums = np.zeros(problem.output_shape[:-1], wide) if logsumexp else None
    columns = None if sums is None else sums[..., None]
    more = {
        "sinks": _numbers_of_heads(sinks, problem.sinks, wide),
        "slopes": _numbers_of_heads(alibi_slopes, problem.alibi_slopes, wide),
        "query_offsets": _offsets(problem.query_lengths),
        "key_offsets": _offsets(problem.key_lengths),
        "pages": None if page_table is None else np.ascontiguousarray(interchange.as_array(page_table)),
    }
    require_pages(problem, more["pages"])
    for before, parts in parts_of_four((*arrays, out, columns), problem.leading_shape):
        arguments = packed(problem, parts, before)
        arguments.parallel = parallel_of(query)
        for name, array in more.items():
            setattr(arguments, name, None if array is None else array.ctypes.data)
        functions = library()
        if needed := functions.mlbackends_attention_workspace(ctypes.byref(arguments)):
            workspace = np.empty(needed, "uint8")
            arguments.workspace = workspace.ctypes.data
        if parts[-2].size:
            call_until_done(functions.mlbackends_attention_forward, arguments)
    result = interchange.like(query, out)
    return result, None if sums is None else interchange.like(query, sums, wide)


def _numbers_of_heads(tensor: Any, spec: TensorSpec | None, wide: str) -> Any:
    if spec is None:
        return None
    return numpy().ascontiguousarray(interchange.widened(interchange.as_array(tensor), spec.dtype, wide))


def _offsets(lengths: tuple[int, ...]) -> Any:
    np = numpy()
    return np.concatenate(([0], np.cumsum(lengths))).astype("int64") if lengths else None


def is_mask_narrow(problem: AttentionProblem) -> bool:
    """Return whether the mask is float32 in a float64 problem, which the library does not read."""
    mask = problem.mask
    return mask is not None and mask.dtype == "float32" and problem.dtype == "float64"


def read_inputs(problem: AttentionProblem, *tensors: Any) -> tuple[Any, ...]:
    """Return query, key, value and mask as arrays that the library can read, copied where necessary."""
    arrays = [None if tensor is None else aligned(interchange.as_array(tensor)) for tensor in tensors]
    mask = arrays[3]
    if mask is not None and is_mask_narrow(problem):
        once = tuple(slice(None) if stride else slice(1) for stride in mask.strides)
        arrays[3] = numpy().broadcast_to(mask[once].astype("float64"), mask.shape)
    return tuple(arrays)


def aligned(array: Any) -> Any:
    """Return the array, or a copy if its elements are not aligned to their size."""
    size = array.itemsize
    if array.flags.aligned and not any(stride % size for stride in array.strides):
        return array
    return array.copy()


def room(like: Any, shape: tuple[int, ...]) -> Any:
    """Return an uninitialised array of a shape in the layout of another: (B, H, L, E) or (B, L, H, E)."""
    np = numpy()
    if like.ndim == len(shape) and is_rows_first(like.shape, like.strides):
        swapped = (*shape[:-3], shape[-2], shape[-3], shape[-1])
        return np.empty(swapped, like.dtype).swapaxes(-2, -3)
    return np.empty(shape, like.dtype)


def is_rows_first(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether the memory order of a tensor is (B, L, H, E); False with one row or one head."""
    return len(shape) > 2 and shape[-3] > 1 and shape[-2] > 1 and 0 < strides[-3] < strides[-2]


def parts_of_four(arrays: Sequence[Any], leading: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
    """Yield the number of preceding batches, and parts of the arrays with at most four dimensions.

    leading: the leading dimensions to which the arrays broadcast; an array may be None.
    """

    def part(array: Any, index: tuple[int, ...]) -> Any:
        if array is None or array.ndim <= 4:
            return array
        own = array.shape[:-4]
        places = zip(index[-len(own) :], own, strict=True)
        return array[tuple(place if size > 1 else 0 for place, size in places)]

    if len(leading) <= 2:
        yield 0, tuple(arrays)
        return
    batches = prod(leading[-2:-1])
    for number, index in enumerate(numpy().ndindex(*leading[:-2])):
        yield number * batches, tuple(part(array, index) for array in arrays)


def call_until_done(function: Any, arguments: Any) -> None:
    """Call the library until all is computed; Python handles signals in between."""
    reached = function(ctypes.byref(arguments), 0, _MILLISECONDS)
    while reached >= 0:
        reached = function(ctypes.byref(arguments), reached, _MILLISECONDS)
    if reached != -1:
        raise MemoryError("attention could not allocate its scratch memory, under 1 MB per thread")


def packed(problem: AttentionProblem, arrays: tuple[Any, ...], before: int, passes: int = 1) -> Any:
    """Return a problem as the library's structure, without a workspace.

    arrays: query, key, value, mask or None, output, and log-sum-exp or None, with at most four dimensions.
    before: the number of preceding batches. passes: the work in units of a forward pass.
    """
    query, key, value, mask, out, logsumexp = arrays
    width, value_dim = key.shape[-1], out.shape[-1]
    rows = max(problem.query_lengths, default=out.shape[-2])
    keys = max(problem.key_lengths, default=key.shape[-2])
    heads = out.shape[-3] if out.ndim > 2 else 1
    groups = [heads // array.shape[-3] if array.ndim > 2 else heads for array in (key, value)]
    window = tuple(_EVERY_KEY if side < 0 else min(side, _EVERY_KEY) for side in problem.band)
    operations = 2 * prod(out.shape[:-1]) * min(keys, sum(window) + 1) * (width + value_dim)
    moved = (key.size + value.size) * out.itemsize * min(keys, sum(window) + rows) // max(keys, 1)
    batch = len(problem.key_lengths) or (out.shape[-4] if out.ndim > 3 else 1)
    if problem.page_table is not None:
        moved = moved * sum(problem.key_lengths) // max(key.shape[0] * key.shape[2], 1)
    elements = abi().elements
    of_mask = problem.mask.dtype if problem.mask else "none"
    return abi().structures["problem"](
        **operands(query=query, key=key, value=value, mask=mask, output=out),
        logsumexp=None if logsumexp is None else logsumexp.ctypes.data,
        batch=batch,
        heads=heads,
        query_length=rows,
        key_length=keys,
        head_dim=width,
        value_dim=value_dim,
        key_group=groups[0],
        value_group=groups[1],
        window=window,
        pages_stride=problem.page_table.shape[1] if problem.page_table else 0,
        page_size=key.shape[-2],
        lower_right=problem.lower_right,
        scale=(width or 1) ** -0.5 if problem.scale is None else problem.scale,
        softcap=problem.softcap,
        dropout=problem.dropout,
        seed=(problem.seed or 0) & SEEDS,
        first_batch=before,
        element=elements[problem.dtype],
        mask_element=elements["float64" if is_mask_narrow(problem) else of_mask],
        level=level(),
        threads=worth(passes * operations, passes * moved),
    )


def operands(**arrays: Any) -> dict[str, Any]:
    """Return the addresses and strides of arrays, by their names in the library's structures.

    Strides are in elements: of batch, heads and rows, for a mask also of keys; 0 to broadcast, and for None.
    """
    fields: dict[str, Any] = {}
    for name, array in arrays.items():
        strides = [0] * (4 if name == "mask" else 3)
        if array is not None:
            fields[name] = array.ctypes.data
            for place in range(max(4 - array.ndim, 0), len(strides)):
                if array.shape[place - 4] != 1:
                    strides[place] = array.strides[place - 4] // array.itemsize
        fields[f"{name}_strides"] = tuple(strides)
    return fields
