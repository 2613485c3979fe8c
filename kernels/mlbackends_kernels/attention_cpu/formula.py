"""Plain attention in numpy, forward and backward, a block of rows at a time.

Gradients, with weights P, weights after dropout Z, scores S and D = the sum of grad_out * out in a row:

    grad value = transposed(Z) @ grad_out        grad Z = grad_out @ transposed(value)
    grad S     = P * (grad P - D)                grad P = grad Z after the same dropout
    grad query = grad S @ key * scale            grad key = transposed(grad S) @ query * scale

With a softcap c, C = c * tanh(S / c) and grad S = grad C * (1 - (C / c)^2). The gradient of a sink with
weight P is the sum of -P * D over all rows.
"""

from typing import Any

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.backend import Gradients
from mlbackends_kernels.attention_cpu.rows import Rows, inner_type, sequences, softmax
from mlbackends_kernels.tensors import interchange
from mlbackends_kernels.tensors.arithmetic import numpy


def attend(
    problem: AttentionProblem,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    sinks: Any = None,
    alibi_slopes: Any = None,
    page_table: Any = None,
) -> tuple[Any, Any]:
    """Return attention (..., H, L, Ev) and each row's logarithm (..., H, L), both in the inner dtype.

    The arrays are as `interchange.as_array` returns them. Raises IndexError for a page that does not exist.
    """
    np = numpy()
    out = np.zeros(problem.output_shape, inner_type(problem))
    logsumexp = np.zeros(problem.output_shape[:-1], out.dtype)
    for sequence in sequences(problem, page_table):
        tensors = query[sequence.rows], sequence.keys_of(key), sequence.keys_of(value)
        block_of = Rows(sequence.problem, *tensors, mask, sinks, sequence.number, alibi_slopes)
        into, sums = out[sequence.rows], logsumexp[sequence.rows]
        with np.errstate(all="ignore"):
            for rows in block_of.blocks():
                scores = block_of.masked(block_of.products(rows), rows)
                weights, sums[..., rows] = softmax(scores, block_of.blind(rows), block_of.sinks)
                weights = block_of.dropped(block_of.rounded(weights), rows)
                into[..., rows, :] = block_of.rounded(weights @ block_of.value)
    return out, logsumexp


def gradients(
    problem: AttentionProblem, grad_out: Any, *tensors: Any, sinks: Any = None, alibi_slopes: Any = None
) -> Gradients:
    """Return the gradients in the inner dtype, each with its tensor's shape.

    tensors: query, key, value, mask, out and logsumexp; all are as `interchange.as_array` returns them.
    out and logsumexp may be from a call with more keys; the gradients, also that of sinks, are then parts of
    the gradients of that call. Rows whose logsumexp has no other keys are computed without out and logsumexp.
    Both may be None where the inner dtype is float64 and the problem's is narrower: they would be rounded.
    """
    np = numpy()
    query, key, value, mask, out, logsumexp = tensors
    inner, leading = inner_type(problem), problem.leading_shape
    rounded = inner == "float64" != problem.dtype
    grad_out = interchange.widened(grad_out, problem.dtype, inner)
    result = None if rounded else interchange.widened(out, problem.dtype, inner)
    rows, keys = (*leading, problem.query_length), (*leading, problem.key_length)
    of_mask, of_sinks = problem.mask, problem.sinks
    into = Gradients(
        np.zeros((*rows, problem.head_dim), inner),
        np.zeros((*keys, problem.head_dim), inner),
        np.zeros((*keys, problem.value_dim), inner),
        np.zeros(of_mask.shape, inner) if of_mask and _needs_gradient(of_mask) else None,
        np.zeros((*leading[-1:], 1, 1), inner) if of_sinks and _needs_gradient(of_sinks) else None,
    )
    for sequence in sequences(problem):
        arrays = query[sequence.rows], sequence.keys_of(key), sequence.keys_of(value)
        block_of = Rows(sequence.problem, *arrays, mask, sinks, sequence.number, alibi_slopes)
        forward = None if result is None else (result[sequence.rows], logsumexp[sequence.rows])
        parts = into.query[sequence.rows], into.key[sequence.keys], into.value[sequence.keys]
        own = into._replace(query=parts[0], key=parts[1], value=parts[2])
        with np.errstate(all="ignore"):
            _add_gradients(own, block_of, grad_out[sequence.rows], forward)
    return Gradients(
        summed(into.query, problem.query.shape),
        summed(into.key, problem.key.shape),
        summed(into.value, problem.value.shape),
        into.mask,
        None if into.sinks is None else into.sinks.reshape(-1),
    )


def _needs_gradient(spec: TensorSpec) -> bool:
    return spec.requires_grad and spec.dtype != "bool"


def _add_gradients(into: Gradients, inputs: Rows, grad_out: Any, forward: tuple[Any, Any] | None) -> None:
    """Add the gradients of one sequence. forward: its result and logarithms, or None."""
    np, cap = numpy(), inputs.problem.softcap
    for rows in inputs.blocks():
        coming, products = grad_out[..., rows, :], inputs.products(rows)
        scores = inputs.masked(products, rows)
        weights, own = softmax(scores, inputs.blind(rows), inputs.sinks)
        share = None if forward is None else _share(scores, own, forward[1][..., rows])
        weights = inputs.rounded(weights if share is None else weights * share.astype(inputs.inner))
        into.value[...] += inputs.dropped(weights, rows).swapaxes(-1, -2) @ coming
        for_weights = inputs.dropped(inputs.rounded(coming @ inputs.value.swapaxes(-1, -2)), rows)
        along = (for_weights * weights).sum(-1, keepdims=True)
        if share is not None and forward is not None:
            whole = (coming * forward[0][..., rows, :]).sum(-1, keepdims=True)
            along = np.where(share == 1, along, whole)
        if into.sinks is not None:
            of_sinks = np.exp(inputs.sinks - own[..., None]) * (1 if share is None else share)
            into.sinks[...] -= summed(of_sinks * along, into.sinks.shape)
        for_scores = inputs.rounded(weights * (for_weights - along))
        if into.mask is not None:
            part = into.mask if into.mask.shape[-2] == 1 else into.mask[..., rows, :]
            part += summed(for_scores, part.shape)
        if cap:
            for_scores = inputs.rounded(for_scores * (1 - (products / cap) ** 2))
        into.query[..., rows, :] = for_scores @ inputs.key
        into.key[...] += for_scores.swapaxes(-1, -2) @ inputs.query[..., rows, :]
    into.query[...] *= inputs.query_scale
    into.key[...] *= inputs.key_scale


def _share(scores: Any, own: Any, logsumexp: Any) -> Any:
    """Return the share of each row's weight (..., rows, 1) on the given keys, None if it is 1 in all rows.

    A share that differs from 1 by rounding errors counts as 1: a logsumexp of the size of a mask's -1e9 has
    lost the logarithm of the sum, and weights computed from it would be wrong by a factor.
    """
    np = numpy()
    apart = own - logsumexp.astype("float64")
    # Large negative numbers that mask keys do not contribute to the sum, nor does their rounding.
    lowest = scores.min(-1, initial=0, where=scores > -65536)
    near = 8 * np.finfo(scores.dtype).eps * (1 + np.maximum(np.abs(own), -lowest))
    whole = apart >= -near
    return None if whole.all() else np.where(whole, 1, np.exp(apart))[..., None]


def summed(array: Any, shape: tuple[int, ...]) -> Any:
    """Return the sum over the dimensions in which a tensor of this shape was broadcast or repeated.

    A dimension with fewer elements, but more than one, was repeated element by element.
    """
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    for axis, size in enumerate(shape):
        if array.shape[axis] != size:
            apart = (*array.shape[:axis], size, array.shape[axis] // size, *array.shape[axis + 1 :])
            array = array.reshape(apart).sum(axis + 1)
    return array
