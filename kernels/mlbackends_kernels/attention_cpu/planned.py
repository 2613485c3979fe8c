"""Calls like an earlier one: the library finds by itself where tensors lie, how, and how long they are.

The slow part of a small call is to look at tensors from Python. A plan holds what calls of a kind have in
common (element types, widths, options); the library reads the rest, and refuses what it cannot compute in
place.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends_kernels.attention_cpu.forward import SEEDS, compute
from mlbackends_kernels.attention_cpu.library import (
    CALL,
    ELEMENTS,
    LAYOUT,
    PLAN,
    PROBLEM,
    SEED,
    THREADS,
    level,
    planned,
    planning,
    with_field,
)
from mlbackends_kernels.attention_cpu.owners import layout_of, owner_of, watched
from mlbackends_kernels.attention_cpu.threads import worth
from mlbackends_kernels.tensors.arithmetic import numpy
from mlbackends_kernels.tensors.interchange import as_array, drawn_seed

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.model.problem import AttentionProblem

#: Up to so many operations, some microseconds, it takes longer to give the GIL away and get it back.
_AT_ONCE = 1 << 17
_TENSORS = ctypes.py_object * 6


class Plan(NamedTuple):
    """packed: as the library takes it. is_watched: see `owners.watched`."""

    packed: bytes
    is_watched: Callable[..., bool] | None


def plan_of(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any, out: Any, logsumexp: Any
) -> Plan | None:
    """Return a plan for calls of a problem's options and of exactly these types, None where there is none.

    Raises NotBuilt.
    """
    kind: Any = type(query)
    given = [each for each in (query, key, value, out, mask, logsumexp) if each is not None]
    owner = owner_of(kind) if all(type(each) is kind for each in given) else None
    if owner is None:
        return None
    try:
        is_watched = watched(kind)
    except AttributeError:
        return None
    if is_watched is not None and is_watched(query, key, value, mask):
        return None
    told = query, mask, logsumexp
    elements = [_element(owner, each) for each in told]
    if None in elements:
        return None
    packed = _packed(problem, owner, elements, [_itemsize(each) for each in told])
    return Plan(packed, is_watched)


def prepared(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any, out: Any, logsumexp: Any
) -> Callable[..., Any] | None:
    """Return what computes calls of the same options, of any lengths; None where that is not known.

    out and logsumexp: what was returned for these; the latter is None where it is not asked for. What is
    returned takes query, key, value and mask of exactly the types and widths of these, and a seed. It
    returns None, with nothing done, for tensors that it cannot compute in place, that do not go together,
    or that carry more than numbers. Raises NotBuilt.
    """
    plan = plan_of(problem, query, key, value, mask, out, logsumexp)
    if plan is None:
        return None
    packed, is_watched = plan
    at_once, make, make_sums = planned(packed), _maker(query, out), _sums_maker(logsumexp)
    draws = 0 < problem.dropout < 1

    def call(query: Any, key: Any, value: Any, mask: Any, seed: Any) -> Any:
        if is_watched is not None and is_watched(query, key, value, mask):
            return None
        try:
            out = make(query)
            sums = None if make_sums is None else make_sums(query)
            found = at_once(query, key, value, mask, out, sums)
            asked = _asked(packed, query, key, value, mask, out, sums) if found is False else None
        except Exception:  # noqa: BLE001  whatever their owner says of them, it will say again
            return None
        if not (found is out or asked):
            return None
        if asked:
            if callable(seed):
                seed = seed()
            elif draws and seed is None:
                seed = drawn_seed(query)
            compute(with_field(asked, SEED, (seed or 0) & SEEDS))
        return out if sums is None else (out, sums)

    return call


def _element(owner: bytes, tensor: Any) -> int | None:
    """Return the library's word for the elements of a tensor, None where it does not read them in place."""
    if tensor is None:
        return 0
    np = numpy()
    if isinstance(tensor, np.ndarray) and tensor.dtype is not np.dtype(tensor.dtype.type):
        return None  # the library knows types by their addresses: those of numpy's own stay
    found, array = layout_of(owner, tensor), as_array(tensor)
    if found is None or not array.flags.aligned or array.ctypes.data != found[1]:
        return None
    element: int = LAYOUT.unpack(found[0])[-2]
    return element


def _itemsize(tensor: Any) -> int:
    return 0 if tensor is None else int(as_array(tensor).itemsize)


def _packed(
    problem: AttentionProblem, owner: bytes, elements: list[Any], itemsizes: list[int]
) -> bytes:
    """Pack a plan. elements and itemsizes: of query, mask and logsumexp, 0 for what there is not."""
    width = problem.head_dim
    scale = (width or 1) ** -0.5 if problem.scale is None else problem.scale
    asked = PROBLEM.pack(
        *(0,) * 11,
        *(width, problem.value_dim),
        *(0,) * 19,
        *(scale, problem.dropout, 0, 0),
        ELEMENTS[problem.dtype],
        0 if problem.mask is None else ELEMENTS[problem.mask.dtype],
        *(int(problem.is_causal), level(), 1),
    )
    options = int(problem.lower_right), int(problem.enable_gqa)
    most_at_once = -1 if problem.dropout else _AT_ONCE  # a seed has to be written first
    return asked + owner + PLAN.pack(*elements, *itemsizes, *options, most_at_once)


def _asked(plan: bytes, *tensors: Any) -> bytes | None:
    """Return the problem of a call as the library takes it, None where these are none of the plan."""
    found = ctypes.create_string_buffer(PROBLEM.size + CALL.size)
    if planning().mlbackends_attention_placed(plan, _TENSORS(*tensors), found):
        return None
    operations, moved = CALL.unpack_from(found, PROBLEM.size)
    return with_field(found.raw[: PROBLEM.size], THREADS, worth(int(operations), int(moved)))


def _maker(query: Any, out: Any) -> Callable[[Any], Any]:
    """Return what makes, from a query, room for a result like `out`; the library looks whether it fits."""
    is_torch = not isinstance(out, numpy().ndarray)
    torch: Any = sys.modules.get("torch")
    if is_torch:
        like = torch.empty_like(query)
        if (like.shape, like.stride(), like.dtype) == (out.shape, out.stride(), out.dtype):
            return torch.empty_like  # type: ignore[no-any-return]  # cheaper by far than with a shape
    dtype, width = out.dtype, out.shape[-1]
    empty = torch.empty if is_torch else numpy().empty
    if len(out.shape) < 3 or as_array(out).flags.c_contiguous:
        if width != query.shape[-1]:
            return lambda query: empty((*query.shape[:-1], width), dtype=dtype)
        if is_torch:
            return lambda query: empty(query.shape, dtype=dtype)
        return lambda query: empty(query.shape, dtype)  # by name it takes a tenth longer

    def rows_first(query: Any) -> Any:
        *batch, heads, rows, _ = query.shape
        return empty((*batch, rows, heads, width), dtype=dtype).swapaxes(-2, -3)

    return rows_first


def _sums_maker(logsumexp: Any) -> Callable[[Any], Any] | None:
    """Return what makes, from a query, room for the logarithms, None where they are not asked for."""
    if logsumexp is None:
        return None
    is_torch = not isinstance(logsumexp, numpy().ndarray)
    empty, dtype = sys.modules["torch"].empty if is_torch else numpy().empty, logsumexp.dtype
    return lambda query: empty(query.shape[:-1], dtype=dtype)
