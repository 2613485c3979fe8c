"""Scores and weights of an attention problem in numpy, some rows of the query at a time."""

from math import prod
from typing import Any

from mlbackends.base.element_types import REDUCED
from mlbackends.model.problem import AttentionProblem
from mlbackends_kernels.tensors import dropout, interchange
from mlbackends_kernels.tensors.arithmetic import numpy

#: Scores that are held at once; above, rows of the query are taken in turn.
SCORES_AT_ONCE = 1 << 22


class Rows:
    """A problem with its arrays in the type of its arithmetic.

    query (..., H, L, E) and key (..., H, S, E) carry half of the scale each, query_scale and key_scale:
    a product of large numbers then overflows later, as in torch. value is (..., H, S, Ev). Where heads
    are grouped, those of key and value stand repeated. sinks, None without any, extends to the scores.
    What `rounded` returns is what is computed with.
    """

    def __init__(
        self,
        problem: AttentionProblem,
        query: Any,
        key: Any,
        value: Any,
        mask: Any = None,
        sinks: Any = None,
        batch: int = 0,
    ) -> None:
        """Take arrays as `interchange.as_array` gives them. batch: of the first one, for dropout."""
        np, dtype = numpy(), problem.dtype
        self.problem, self.mask, self.batch = problem, mask, batch
        self.inner = inner_type(problem)
        self.sinks: Any = None
        if problem.sinks is not None:
            sinks = interchange.widened(sinks, problem.sinks.dtype, self.inner)
            self.sinks = sinks.reshape(*problem.leading_shape[-1:], 1, 1)
        scale = (problem.head_dim or 1) ** -0.5 if problem.scale is None else problem.scale
        half = abs(scale) ** 0.5
        self.query_scale = np.asarray(-half if scale < 0 else half, self.inner)
        self.key_scale = np.asarray(half, self.inner)
        tensors = (query, key, value)
        query, key, value = (interchange.widened(each, dtype, self.inner) for each in tensors)
        with np.errstate(all="ignore"):
            self.query = self.rounded(query * self.query_scale)
            self.key = self.rounded(_repeated(problem, key) * self.key_scale)
        self.value = _repeated(problem, value)

    def rounded(self, array: Any) -> Any:
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

    def products(self, rows: slice) -> Any:
        """Return the scores of some rows, capped, before masks."""
        scores = self.rounded(self.query[..., rows, :] @ self.key.swapaxes(-1, -2))
        cap = self.problem.softcap
        return self.rounded(numpy().tanh(scores / cap) * cap) if cap else scores

    def masked(self, scores: Any, rows: slice) -> Any:
        """Return the scores of some rows with the mask added, -inf where a key is not seen."""
        np, of_mask = numpy(), self.problem.mask
        if of_mask is not None and of_mask.dtype != "bool":
            scores = scores + interchange.widened(self._mask(rows), of_mask.dtype, scores.dtype)
        shown = self._shown(rows)
        return scores if shown is None else np.where(shown, scores, -np.inf)

    def blind(self, rows: slice) -> Any:
        """Return which of some rows (..., rows, 1) see no key. Others whose scores are -inf overflowed."""
        np, of_mask = numpy(), self.problem.mask
        if not self.problem.key_length:
            return np.array(True)
        shown = self._shown(rows)
        if of_mask is not None and of_mask.dtype != "bool":
            above = interchange.widened(self._mask(rows), of_mask.dtype, "float32") > -np.inf
            shown = above if shown is None else above & shown
        return np.array(False) if shown is None else ~shown.any(-1, keepdims=True)

    def _mask(self, rows: slice) -> Any:
        return self.mask if self.mask.shape[-2] == 1 else self.mask[..., rows, :]

    def _shown(self, rows: slice) -> Any:
        """Return which keys positions and a mask of booleans show to some rows, None for all."""
        np, problem = numpy(), self.problem
        shown = self._mask(rows) if problem.mask and problem.mask.dtype == "bool" else None
        length, keys = problem.query_length, problem.key_length
        if problem.band == (-1, -1):
            return shown
        left, right = (
            length + keys if side < 0 else min(side, length + keys) for side in problem.band
        )
        own = np.arange(length)[rows, None] + (keys - length if problem.lower_right else 0)
        places = np.arange(keys)
        near = (places >= own - left) & (places <= own + right)
        return near if shown is None else shown & near

    def dropped(self, weights: Any, rows: slice) -> Any:
        """Return the weights of some rows with some dropped, the rest enlarged so that their mean stays."""
        problem = self.problem
        if not problem.dropout:
            return weights
        if problem.dropout == 1:
            return numpy().zeros_like(weights)
        assert problem.seed is not None
        places = range(*rows.indices(problem.query_length))
        leading = problem.output_shape[:-2]
        seed, keys = problem.seed, problem.key_length
        keep_mask = dropout.keep_mask(seed, problem.dropout, leading, places, keys, self.batch)
        return weights * keep_mask / (1 - problem.dropout)


def softmax(scores: Any, blind: Any, sinks: Any = None) -> tuple[Any, Any]:
    """Return the weights of each row, and the logarithm of the sum of its exponentials (..., rows).

    blind: which rows see no key; their weights are 0, and so is the logarithm unless they have a sink. The
    logarithm is in float64. Both are NaN where a score is, and where all are -inf since their products
    overflowed and there is no sink.
    """
    np = numpy()
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sinks is not None:
        largest = np.maximum(largest, sinks)
    blind = (largest == -np.inf) & blind
    largest = np.where(blind, 0, largest)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - largest)
    logsumexp = np.where(blind, 0, largest.astype("float64") + np.log(total))
    return np.where(blind, 0, weights / total), logsumexp[..., 0]


def inner_type(problem: AttentionProblem) -> str:
    """Return the type of the arithmetic: numpy sums 16-bit numbers poorly, so those are rounded after."""
    target = problem.inner_dtype or problem.dtype
    return "float32" if target in REDUCED else target


def _repeated(problem: AttentionProblem, array: Any) -> Any:
    """Return key or value with a head for each head of the query, where heads are grouped."""
    if not problem.enable_gqa or array.shape[-3] == problem.heads:
        return array
    return array.repeat(problem.heads // array.shape[-3], axis=-3)
