"""Gradients of calls like an earlier one: as `planned`, the library finds by itself where tensors lie."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from mlbackends.sdpa.backend import Gradients
from mlbackends_kernels.attention_cpu.forward import SEEDS, room
from mlbackends_kernels.attention_cpu.gradients import FINE, compute
from mlbackends_kernels.attention_cpu.library import (
    GRADIENTS,
    GRADIENTS_CALL,
    LEVEL,
    PROBLEM,
    SEED,
    THREADS,
    level,
    planning,
    with_field,
)
from mlbackends_kernels.attention_cpu.planned import plan_of
from mlbackends_kernels.attention_cpu.threads import worth
from mlbackends_kernels.tensors.arithmetic import numpy

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.model.problem import AttentionProblem

_TENSORS = ctypes.py_object * 10
_PROBLEM_BYTES = PROBLEM.size + GRADIENTS.size


def prepared(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any, out: Any, logsumexp: Any
) -> Callable[..., Gradients | None] | None:
    """Return what computes gradients of calls of the same options; None where that is not known.

    What is returned takes the gradient of the output, query, key, value, mask, output, logsumexp and seed,
    of exactly the types of these. It returns the gradients, of no mask, or None as `planned.prepared`.
    Raises NotBuilt.
    """
    plan = plan_of(problem, query, key, value, mask, out, logsumexp)
    if plan is None:
        return None
    packed, is_watched = plan
    is_array, fine = isinstance(query, numpy().ndarray), FINE[problem.dtype]
    wide = "float64" if problem.dtype == "float64" else "float32"
    placed = planning().mlbackends_attention_gradients_placed
    kind: Any = type(query)

    def call(
        grad_out: Any,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        out: Any,
        logsumexp: Any,
        seed: int | None,
    ) -> Gradients | None:
        if not type(grad_out) is type(out) is type(logsumexp) is kind:
            return None
        if is_watched is not None and (
            is_watched(query, key, value, mask) or is_watched(grad_out, out, logsumexp, None)
        ):
            return None
        asked = ctypes.create_string_buffer(_PROBLEM_BYTES + GRADIENTS_CALL.size)
        inputs = query, key, value
        try:
            made = [room(each, each.shape) if is_array else _torch_room(each) for each in inputs]
            tensors = _TENSORS(*inputs, mask, out, logsumexp, _along_rows(grad_out), *made)
            if placed(packed, tensors, fine, asked):
                return None
        except Exception:  # noqa: BLE001  whatever their owner says of them, it will say again
            return None
        operations, moved, coarse_rows = GRADIENTS_CALL.unpack_from(asked, _PROBLEM_BYTES)
        threads = worth(2 * int(operations), 2 * int(moved))
        found = with_field(asked.raw[:_PROBLEM_BYTES], THREADS, threads)
        # A backward pass may come long after its forward pass.
        found = with_field(found, LEVEL, level())
        compute(with_field(found, SEED, (seed or 0) & SEEDS), coarse_rows, wide)
        return Gradients(*made)

    return call


def _torch_room(like: Any) -> Any:
    """Return a tensor as torch's, laid out as `room` lays out an array."""
    strides = like.stride()
    if len(strides) > 2 and 0 < strides[-3] < strides[-2]:
        return like.new_empty(like.transpose(-2, -3).shape).transpose(-2, -3)
    return like.new_empty(like.shape)


def _along_rows(grad_out: Any) -> Any:
    """Return the gradient of the output, or a copy where the elements of a row do not follow each other."""
    if isinstance(grad_out, numpy().ndarray):
        return grad_out if grad_out.strides[-1] == grad_out.itemsize else grad_out.copy()
    return grad_out if grad_out.stride(-1) == 1 else grad_out.contiguous()
