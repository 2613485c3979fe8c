"""The plain formula of attention in numpy, forward and backward, a block of rows at a time.

Gradients: with weights P, dropped and enlarged Z, scores S and a row's sum D of grad_out * out,

    grad value = transposed(Z) @ grad_out        grad Z = grad_out @ transposed(value)
    grad S     = P * (grad P - D)                grad P = grad Z, dropped and enlarged as Z
    grad query = grad S @ key * scale            grad key = transposed(grad S) @ query * scale

A cap c on the scores C = c * tanh(S / c) makes grad S = grad C * (1 - (C / c)^2). A sink, whose weight is P,
gets the sum of -P * D over all rows.
"""

from typing import Any

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.backend import Gradients
from mlbackends_kernels.attention_cpu.rows import Rows, inner_type, softmax
from mlbackends_kernels.attention_cpu.sequences import sequences
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
    page_table: Any = None,
) -> tuple[Any, Any]:
    """Return attention (..., H, L, Ev) and each row's logarithm (..., H, L), both in the inner type.

    Takes arrays as `interchange.as_array` gives them. Raises IndexError for a page that is not there.
    """
    np = numpy()
    out = np.zeros(problem.output_shape, inner_type(problem))
    logsumexp = np.zeros(problem.output_shape[:-1], out.dtype)
    for one in sequences(problem, page_table):
        tensors = query[one.rows], one.keys_of(key), one.keys_of(value)
        rows_of_one = Rows(one.problem, *tensors, mask, sinks, one.number)
        into, sums = out[one.rows], logsumexp[one.rows]
        with np.errstate(all="ignore"):
            for rows in rows_of_one.blocks():
                scores = rows_of_one.masked(rows_of_one.products(rows), rows)
                weights, sums[..., rows] = softmax(
                    scores, rows_of_one.blind(rows), rows_of_one.sinks
                )
                weights = rows_of_one.dropped(rows_of_one.rounded(weights), rows)
                into[..., rows, :] = rows_of_one.rounded(weights @ rows_of_one.value)
    return out, logsumexp


def gradients(
    problem: AttentionProblem, grad_out: Any, *tensors: Any, sinks: Any = None
) -> Gradients:
    """Return the gradients in the inner type, each of its tensor's shape.

    tensors: query, key, value, mask, out and logsumexp; all are arrays as `interchange.as_array` gives them.
    out and logsumexp may be of more keys than are given here, whose gradients are then the whole's, as is
    that of sinks; rows that they say nothing more of do without them.
    They may be None where the inner type is float64 and the problem's is narrower: they would be rounded.
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
    for one in sequences(problem):
        arrays = query[one.rows], one.keys_of(key), one.keys_of(value)
        rows_of_one = Rows(one.problem, *arrays, mask, sinks, one.number)
        forward = None if result is None else (result[one.rows], logsumexp[one.rows])
        parts = into.query[one.rows], into.key[one.keys], into.value[one.keys]
        own = into._replace(query=parts[0], key=parts[1], value=parts[2])
        with np.errstate(all="ignore"):
            _add_gradients(own, rows_of_one, grad_out[one.rows], forward)
    return Gradients(
        summed(into.query, problem.query.shape),
        summed(into.key, problem.key.shape),
        summed(into.value, problem.value.shape),
        into.mask,
        None if into.sinks is None else into.sinks.reshape(-1),
    )


def _needs_gradient(spec: TensorSpec) -> bool:
    return spec.requires_grad and spec.dtype != "bool"


def _add_gradients(
    into: Gradients, inputs: Rows, grad_out: Any, forward: tuple[Any, Any] | None
) -> None:
    """Add the gradients of one sequence. forward: its result and logarithms, None to do without."""
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
    """Return how much of each row's weight (..., rows, 1) is on keys given here, None if all of every row's.

    A share that rounded scores alone could make is all: a logsumexp as large as a mask's -1e9 has lost
    the logarithm of the sum, and weights by it would be too large by a factor, such as the number of keys.
    """
    np = numpy()
    apart = own - logsumexp.astype("float64")
    # A large negative number that masks a key has no part in the sum, nor has its rounding.
    lowest = scores.min(-1, initial=0, where=scores > -65536)
    near = 8 * np.finfo(scores.dtype).eps * (1 + np.maximum(np.abs(own), -lowest))
    whole = apart >= -near
    return None if whole.all() else np.where(whole, 1, np.exp(apart))[..., None]


def summed(array: Any, shape: tuple[int, ...]) -> Any:
    """Return what goes to a tensor of a shape: the sum over what was broadcast or repeated of it.

    A dimension of fewer elements, and more than one, stood repeated, each element in a row.
    """
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    for axis, size in enumerate(shape):
        if array.shape[axis] != size:
            apart = (*array.shape[:axis], size, array.shape[axis] // size, *array.shape[axis + 1 :])
            array = array.reshape(apart).sum(axis + 1)
    return array
