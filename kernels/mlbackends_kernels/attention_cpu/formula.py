"""The plain formula of attention in numpy, forward and backward, a block of rows at a time.

Gradients: with weights P, dropped and enlarged Z, scores S and a row's sum D of grad_out * out,

    grad value = transposed(Z) @ grad_out        grad Z = grad_out @ transposed(value)
    grad S     = P * (grad P - D)                grad P = grad Z, dropped and enlarged as Z
    grad query = grad S @ key * scale            grad key = transposed(grad S) @ query * scale
"""

from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients
from mlbackends_kernels.attention_cpu.rows import Rows, softmax
from mlbackends_kernels.tensors import interchange
from mlbackends_kernels.tensors.arithmetic import numpy


def attend(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
) -> tuple[Any, Any]:
    """Return attention (..., H, L, Ev) and each row's logarithm (..., H, L), both in the inner type.

    Takes arrays as `interchange.as_array` gives them.
    """
    np = numpy()
    given = Rows(problem, query, key, value, mask)
    out = np.zeros(problem.output_shape, given.inner)
    logsumexp = np.zeros(problem.output_shape[:-1], given.inner)
    with np.errstate(all="ignore"):
        for rows in given.blocks():
            weights, logsumexp[..., rows] = softmax(given.scores(rows), given.blind(rows))
            weights = given.dropped(given.keep(weights), rows)
            out[..., rows, :] = given.keep(weights @ given.value)
    return out, logsumexp


def gradients(problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
    """Return the gradients in the inner type, each of its tensor's shape.

    tensors: query, key, value, mask, out and logsumexp; all are arrays as `interchange.as_array` gives them.
    out and logsumexp may be of more keys than are
    given here, whose gradients are then the whole's; rows that they say nothing more of do without them.
    They may be None where the inner type is float64 and the problem's is narrower: they would be rounded.
    """
    np = numpy()
    query, key, value, mask, out, logsumexp = tensors
    given = Rows(problem, query, key, value, mask)
    inner, leading, of_mask = given.inner, problem.leading_shape, problem.mask
    rounded = inner == "float64" != problem.dtype
    grad_out = interchange.widened(grad_out, problem.dtype, inner)
    result: Any = None if rounded else interchange.widened(out, problem.dtype, inner)
    for_query = np.zeros((*leading, problem.query_length, problem.head_dim), inner)
    for_key = np.zeros((*leading, problem.key_length, problem.head_dim), inner)
    for_value = np.zeros((*leading, problem.key_length, problem.value_dim), inner)
    for_mask: Any = None
    if of_mask is not None and of_mask.requires_grad and of_mask.dtype != "bool":
        for_mask = np.zeros(of_mask.shape, inner)
    with np.errstate(all="ignore"):
        for rows in given.blocks():
            coming, scores = grad_out[..., rows, :], given.scores(rows)
            weights, own = softmax(scores, given.blind(rows))
            share = None if rounded else _share(scores, own, logsumexp[..., rows])
            weights = given.keep(weights if share is None else weights * share.astype(inner))
            for_value += given.dropped(weights, rows).swapaxes(-1, -2) @ coming
            for_weights = given.dropped(given.keep(coming @ given.value.swapaxes(-1, -2)), rows)
            along = (for_weights * weights).sum(-1, keepdims=True)
            if share is not None:
                whole = (coming * result[..., rows, :]).sum(-1, keepdims=True)
                along = np.where(share == 1, along, whole)
            for_scores = given.keep(weights * (for_weights - along))
            for_query[..., rows, :] = for_scores @ given.key
            for_key += for_scores.swapaxes(-1, -2) @ given.query[..., rows, :]
            if for_mask is not None:
                part = for_mask if for_mask.shape[-2] == 1 else for_mask[..., rows, :]
                part += summed(for_scores, part.shape)
        for_query *= given.query_scale
        for_key *= given.key_scale
    return Gradients(
        summed(for_query, problem.query.shape),
        summed(for_key, problem.key.shape),
        summed(for_value, problem.value.shape),
        for_mask,
    )


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
