"""Prepared calls: calls like an earlier one, whose tensors a module in C++ reads by itself.

The slow part of a small call is to look at tensors from Python. A prepared call holds what calls of a
kind have in common (types, widths, options); native/python/prepared_calls.cpp reads the rest, and declines
what it cannot compute in place. Where that module was not built, no call is prepared.
"""

import importlib
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients
from mlbackends_kernels.attention_cpu.forward import is_mask_narrow, is_rows_first, room
from mlbackends_kernels.attention_cpu.gradients import FINE
from mlbackends_kernels.attention_cpu.library import abi, level, library
from mlbackends_kernels.attention_cpu.threads import worth
from mlbackends_kernels.tensors.arithmetic import numpy
from mlbackends_kernels.tensors.interchange import as_array, drawn_seed
from mlbackends_kernels.tensors.watching import watches


def prepare_forward(problem: AttentionProblem, *tensors: Any) -> Callable[..., Any] | None:
    """Return what computes calls of the same options, of any lengths; None where they cannot be prepared.

    tensors: query, key, value, mask and the results for these; the log-sum-exp is None where it is not
    wanted. The function that is returned takes query, key, value and mask of exactly the types and widths of
    these, and a seed, or what returns one. It returns None, with nothing done, for tensors that it cannot
    compute in place, that do not go together, or that carry more than numbers. Raises NotBuilt.
    """
    query, _, _, _, out, logsumexp = tensors
    empty = _empty(out)

    def make_sums(query: Any) -> Any:
        return empty(query.shape[:-1], dtype=logsumexp.dtype)

    make_results = *_make_output(query, out), None if logsumexp is None else make_sums
    call = _prepare("prepare_forward", problem, tensors, *make_results)
    if call is None:
        return None
    kind: Any = type(query)
    is_watched, draws = watches(kind), 0 < problem.dropout < 1
    if is_watched is None and not draws:
        return call

    def checked(query: Any, key: Any, value: Any, mask: Any, seed: Any) -> Any:
        if is_watched is not None and is_watched(query, key, value, mask):
            return None
        if seed is None and draws:
            return call(query, key, value, mask, lambda: drawn_seed(query))
        return call(query, key, value, mask, seed)

    return checked


def prepare_backward(
    problem: AttentionProblem, *tensors: Any
) -> Callable[..., Gradients | None] | None:
    """Return what computes gradients of calls of the same options; None where they cannot be prepared.

    tensors: query, key, value, mask, output and log-sum-exp. The function that is returned takes the gradient
    of the output, these, of exactly the types of these, and the seed. It returns the gradients, of no mask,
    or None as that of `prepare_forward`. Raises NotBuilt.
    """
    kind: Any = type(tensors[0])
    is_array = kind is numpy().ndarray

    def room_like(tensor: Any) -> Any:
        if is_array:
            return room(tensor, tensor.shape)
        if is_rows_first(tensor.shape, tensor.stride()):
            return tensor.new_empty(tensor.transpose(-2, -3).shape).transpose(-2, -3)
        return tensor.new_empty(tensor.shape)

    call = _prepare("prepare_backward", problem, tensors, room_like, None, False, None)
    if call is None:
        return None
    is_watched = watches(kind)

    def checked(grad_out: Any, *saved: Any) -> Gradients | None:
        if type(grad_out) is not kind or not grad_out.ndim:
            return None
        *inputs, out, logsumexp, _ = saved
        if is_watched is not None and is_watched(*inputs, grad_out, out, logsumexp):
            return None
        # The module reads rows whose elements follow each other.
        if is_array:
            along = grad_out.strides[-1] == grad_out.itemsize
            rows = grad_out if along else grad_out.copy()
        else:
            rows = grad_out if grad_out.stride(-1) == 1 else grad_out.contiguous()
        # A backward pass may come long after its forward pass, and the instruction set may be another.
        found = call(rows, *saved, level())
        return None if found is None else Gradients(*found)

    return checked


@cache
def native_module() -> Any:
    """Return the module in C++, None where it was not built or is of another version. Raises NotBuilt.

    None also without a GIL: such a Python imports modules of the stable ABI, whose objects lie otherwise.
    """
    library()  # which the module calls
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    try:
        found = importlib.import_module("mlbackends_kernels.lib.prepared_calls")
    except ImportError:
        return None
    return found if found.abi == abi().version else None


def _prepare(
    name: str, problem: AttentionProblem, tensors: tuple[Any, ...], *make_results: Any
) -> Callable[..., Any] | None:
    """Return a prepared call of the module, None where it cannot read such tensors.

    make_results: what `_make_output` returns, and what makes room for the logarithms, None for neither.
    """
    query, _, _, mask, out, logsumexp = tensors
    module, np, torch = native_module(), numpy(), sys.modules.get("torch")
    kind: Any = type(query)
    is_array = kind is np.ndarray
    exchange = getattr(kind, "__dlpack_c_exchange_api__", None)
    is_torch = torch is not None and kind is torch.Tensor and type(exchange).__name__ == "PyCapsule"
    if module is None or not (is_array or is_torch) or is_mask_narrow(problem):
        return None
    present = [tensor for tensor in tensors if tensor is not None]
    if any(type(tensor) is not kind or not as_array(tensor).flags.aligned for tensor in present):
        return None
    # The module knows NumPy's element types by their addresses: those of its own types stay.
    if is_array and any(each.dtype is not np.dtype(each.dtype.type) for each in present):
        return None
    try:
        is_watched = watches(kind)
    except AttributeError:
        return None
    if is_watched is not None and is_watched(*tensors[:4]):
        return None
    width, elements = problem.head_dim, abi().elements
    found: Callable[..., Any] | None = getattr(module, name)(
        *(query, mask, logsumexp, tuple(each.dtype for each in present), *make_results, worth),
        *(width, out.shape[-1], elements[problem.dtype]),
        *(elements[problem.mask.dtype if problem.mask else "none"], level()),
        *((width or 1) ** -0.5 if problem.scale is None else problem.scale, problem.dropout),
        *(problem.is_causal, problem.lower_right, problem.enable_gqa, FINE[problem.dtype]),
    )
    return found


def _empty(like: Any) -> Any:
    """Return the `empty` of the library that a tensor is of."""
    return numpy().empty if isinstance(like, numpy().ndarray) else sys.modules["torch"].empty


def _make_output(query: Any, out: Any) -> tuple[Callable[..., Any], Any, bool]:
    """Return what makes room for a result like `out`, a dtype or None, and whether its rows lie first.

    Without a dtype the function takes a query; with one, the shape of a query and the dtype. The module
    checks whether the room fits.
    """
    is_torch = not isinstance(out, numpy().ndarray)
    if is_torch:
        torch = sys.modules["torch"]
        like = torch.empty_like(query)
        if (like.shape, like.stride(), like.dtype) == (out.shape, out.stride(), out.dtype):
            return torch.empty_like, None, False  # cheaper by far than with a shape
    empty, dtype, width = _empty(out), out.dtype, out.shape[-1]
    if len(out.shape) < 3 or as_array(out).flags.c_contiguous:
        if width != query.shape[-1]:
            return lambda query: empty((*query.shape[:-1], width), dtype=dtype), None, False
        if is_torch:
            return lambda query: empty(query.shape, dtype=dtype), None, False
        return empty, dtype, False

    def rows_first(query: Any) -> Any:
        *batch, heads, rows, _ = query.shape
        return empty((*batch, rows, heads, width), dtype=dtype).swapaxes(-2, -3)

    return rows_first, None, True
