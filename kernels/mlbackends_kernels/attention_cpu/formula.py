"""The plain formula of attention in numpy, forward and backward, a block of rows at a time.

Gradients: with weights P, dropped and enlarged Z, scores S and a row's sum D of grad_out * out,

    grad value = transposed(Z) @ grad_out        grad Z = grad_out @ transposed(value)
    grad S     = P * (grad P - D)                grad P = grad Z, dropped and enlarged as Z
    grad query = grad S @ key * scale            grad key = transposed(grad S) @ query * scale
"""

from math import prod
from typing import Any

from mlbackends.model.problem import REDUCED, AttentionProblem
from mlbackends.sdpa.backend import Gradients
from mlbackends_kernels.tensors import dropout, interchange
from mlbackends_kernels.tensors.arithmetic import numpy

#: Scores that are held at once; above, rows of the query are taken in turn.
SCORES_AT_ONCE = 1 << 22


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


class Rows:
    """A problem with its arrays in the type of its arithmetic.

    query (..., H, L, E) and key (..., H, S, E) carry half of the scale each, query_scale and key_scale:
    a product of large numbers then overflows later, as in torch. value is (..., H, S, Ev). Where heads
    are grouped, those of key and value stand repeated. What `keep` returns is what is computed with.
    """

    def __init__(
        self, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any
    ) -> None:
        """Take arrays as `interchange.as_array` gives them."""
        np, dtype = numpy(), problem.dtype
        self.problem, self.mask = problem, mask
        self.inner = inner_type(problem)
        scale = (problem.head_dim or 1) ** -0.5 if problem.scale is None else problem.scale
        half = abs(scale) ** 0.5
        self.query_scale = np.asarray(-half if scale < 0 else half, self.inner)
        self.key_scale = np.asarray(half, self.inner)
        tensors = (query, key, value)
        query, key, value = (interchange.widened(each, dtype, self.inner) for each in tensors)
        with np.errstate(all="ignore"):
            self.query = self.keep(query * self.query_scale)
            self.key = self.keep(_repeated(problem, key) * self.key_scale)
        self.value = _repeated(problem, value)

    def keep(self, array: Any) -> Any:
        """Return an intermediate as it goes on: itself, or rounded to the 16-bit type if allowed."""
        dtype = self.problem.inner_dtype
        if dtype not in REDUCED:
            return array
        return interchange.widened(interchange.narrowed(array, dtype), dtype, "float32")

    def blocks(self) -> list[slice]:
        """Return rows of the query that are computed together."""
        width = prod((*self.problem.leading_shape, self.problem.key_length))
        step = max(1, SCORES_AT_ONCE // max(width, 1))
        return [slice(start, start + step) for start in range(0, self.problem.query_length, step)]

    def scores(self, rows: slice) -> Any:
        """Return the scores of some rows, -inf where a key is not seen, with the mask added."""
        np, problem = numpy(), self.problem
        scores = self.keep(self.query[..., rows, :] @ self.key.swapaxes(-1, -2))
        if problem.is_causal:
            offset = problem.key_length - problem.query_length if problem.lower_right else 0
            row = np.arange(problem.query_length)[rows, None]
            seen = np.arange(problem.key_length) <= row + offset
            return np.where(seen, scores, -np.inf)
        if self.mask is None:
            return scores
        assert problem.mask is not None
        part = self.mask if self.mask.shape[-2] == 1 else self.mask[..., rows, :]
        if problem.mask.dtype == "bool":
            return np.where(part, scores, -np.inf)
        return scores + interchange.widened(part, problem.mask.dtype, scores.dtype)

    def blind(self, rows: slice) -> Any:
        """Return which of some rows (..., rows, 1) see no key. Others whose scores are -inf overflowed."""
        np, problem = numpy(), self.problem
        if not problem.key_length:
            return np.array(True)
        if problem.is_causal:
            offset = problem.key_length - problem.query_length if problem.lower_right else 0
            return np.arange(problem.query_length)[rows, None] + offset < 0
        if self.mask is None:
            return np.array(False)
        part = self.mask if self.mask.shape[-2] == 1 else self.mask[..., rows, :]
        return ~seen_by(part, problem.mask.dtype if problem.mask else "").any(-1, keepdims=True)

    def dropped(self, weights: Any, rows: slice) -> Any:
        """Return the weights of some rows with some dropped, the rest enlarged so that their mean stays."""
        problem = self.problem
        if not problem.dropout:
            return weights
        if problem.dropout == 1:
            return numpy().zeros_like(weights)
        assert problem.seed is not None
        taken = range(*rows.indices(problem.query_length))
        leading = problem.output_shape[:-2]
        kept = dropout.kept(problem.seed, problem.dropout, leading, taken, problem.key_length)
        return weights * kept / (1 - problem.dropout)


def seen_by(mask: Any, dtype: str) -> Any:
    """Return where a mask shows a key: true, or above -inf."""
    return mask if dtype == "bool" else interchange.widened(mask, dtype, "float32") > -numpy().inf


def softmax(scores: Any, blind: Any) -> tuple[Any, Any]:
    """Return the weights of each row, and the logarithm of the sum of its exponentials (..., rows).

    blind: which rows see no key; both are 0 there. The logarithm is in float64. Both are NaN where a score
    is, and where all are -inf since their products overflowed.
    """
    np = numpy()
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    blind = (largest == -np.inf) & blind
    weights = np.exp(scores - np.where(blind, 0, largest))
    total = weights.sum(axis=-1, keepdims=True)
    logsumexp = np.where(blind, 0, largest.astype("float64") + np.log(total))
    return np.where(blind, 0, weights / total), logsumexp[..., 0]


def inner_type(problem: AttentionProblem) -> str:
    """Return the type of the arithmetic: numpy sums 16-bit numbers poorly, so those are rounded after."""
    wanted = problem.inner_dtype or problem.dtype
    return "float32" if wanted in REDUCED else wanted


def _repeated(problem: AttentionProblem, array: Any) -> Any:
    """Return key or value with a head for each head of the query, where heads are grouped."""
    if not problem.enable_gqa or array.shape[-3] == problem.heads:
        return array
    return array.repeat(problem.heads // array.shape[-3], axis=-3)
