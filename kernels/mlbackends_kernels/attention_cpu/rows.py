"""Scores and weights of an attention problem in numpy, some rows of the query at a time."""

from math import prod
from typing import Any

from mlbackends.model.problem import REDUCED, AttentionProblem
from mlbackends_kernels.tensors import dropout, interchange
from mlbackends_kernels.tensors.arithmetic import numpy

#: Scores that are held at once; above, rows of the query are taken in turn.
SCORES_AT_ONCE = 1 << 22


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
