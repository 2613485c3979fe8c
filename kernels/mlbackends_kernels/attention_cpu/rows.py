"""Scores and weights of an attention problem in numpy, by sequence and by blocks of rows."""

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from msgspec.structs import replace

from mlbackends.base.element_types import REDUCED
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends_kernels.tensors import dropout, interchange
from mlbackends_kernels.tensors.arithmetic import numpy

#: The most scores in memory at once; a larger problem is computed in blocks of rows.
SCORES_AT_ONCE = 1 << 22


class Rows:
    """A problem with its arrays in the element type of its arithmetic.

    query (..., H, L, E) and key (..., H, S, E) are multiplied by query_scale and key_scale, each the square
    root of the scale: as in torch, products of large numbers then overflow later. value is (..., H, S, Ev).
    Grouped heads of key and value are repeated. sinks and slopes broadcast to the scores, or are None.
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
        slopes: Any = None,
    ) -> None:
        """Use arrays as `interchange.as_array` returns them. batch: the first batch's number, for dropout."""
        np, dtype = numpy(), problem.dtype
        self.problem, self.mask, self.batch = problem, mask, batch
        self.inner = inner_type(problem)
        self.sinks = self._of_heads(sinks, problem.sinks)
        self.slopes = self._of_heads(slopes, problem.alibi_slopes)
        scale = (problem.head_dim or 1) ** -0.5 if problem.scale is None else problem.scale
        half = abs(scale) ** 0.5
        self.query_scale = np.asarray(-half if scale < 0 else half, self.inner)
        self.key_scale = np.asarray(half, self.inner)
        tensors = (query, key, value)
        query, key, value = (interchange.widened(array, dtype, self.inner) for array in tensors)
        with np.errstate(all="ignore"):
            self.query = self.rounded(query * self.query_scale)
            self.key = self.rounded(_repeated(problem, key) * self.key_scale)
        self.value = _repeated(problem, value)

    def _of_heads(self, array: Any, spec: TensorSpec | None) -> Any:
        if spec is None:
            return None
        heads = self.problem.leading_shape[-1:]
        return interchange.widened(array, spec.dtype, self.inner).reshape(*heads, 1, 1)

    def rounded(self, array: Any) -> Any:
        """Return an intermediate result, rounded to the 16-bit type if that is allowed."""
        dtype = self.problem.inner_dtype
        if dtype not in REDUCED:
            return array
        return interchange.widened(interchange.narrowed(array, dtype), dtype, "float32")

    def blocks(self) -> list[slice]:
        """Return the blocks of query rows that are computed together."""
        width = prod((*self.problem.leading_shape, self.problem.key_length))
        step = max(1, SCORES_AT_ONCE // max(width, 1))
        return [slice(start, start + step) for start in range(0, self.problem.query_length, step)]

    def products(self, rows: slice) -> Any:
        """Return the capped scores of a block of rows, before masks."""
        scores = self.rounded(self.query[..., rows, :] @ self.key.swapaxes(-1, -2))
        cap = self.problem.softcap
        return self.rounded(numpy().tanh(scores / cap) * cap) if cap else scores

    def masked(self, scores: Any, rows: slice) -> Any:
        """Return the scores of a block of rows with slopes and mask added, -inf for hidden keys."""
        np, of_mask = numpy(), self.problem.mask
        if self.slopes is not None:
            scores = self.rounded(scores - self.slopes * np.abs(self._distances(rows)).astype(scores.dtype))
        if of_mask is not None and of_mask.dtype != "bool":
            scores = scores + interchange.widened(self._mask(rows), of_mask.dtype, scores.dtype)
        shown = self._shown(rows)
        return scores if shown is None else np.where(shown, scores, -np.inf)

    def blind(self, rows: slice) -> Any:
        """Return which rows of a block (..., rows, 1) see no key. In others, scores of -inf overflowed."""
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
        """Return which keys a block of rows sees by position and boolean mask, None for all."""
        problem = self.problem
        shown = self._mask(rows) if problem.mask and problem.mask.dtype == "bool" else None
        length, keys = problem.query_length, problem.key_length
        if problem.band == (-1, -1):
            return shown
        left, right = (length + keys if side < 0 else min(side, length + keys) for side in problem.band)
        distances = self._distances(rows)
        near = (distances >= -left) & (distances <= right)
        return near if shown is None else shown & near

    def _distances(self, rows: slice) -> Any:
        """Return how far each key is to the right of the position of each row of a block."""
        np, length, keys = numpy(), self.problem.query_length, self.problem.key_length
        own = np.arange(length)[rows, None] + (keys - length if self.problem.lower_right else 0)
        return np.arange(keys) - own

    def dropped(self, weights: Any, rows: slice) -> Any:
        """Return the weights of a block of rows after dropout, the kept ones divided by 1 - dropout."""
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

    blind: the rows that see no key; their weights are 0, and so are their logarithms without a sink.
    Logarithms are in float64. Both are NaN where a score is NaN, or where all scores overflowed to -inf and
    there is no sink.
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
    """Return the element type of the arithmetic, at least float32; results are rounded afterwards."""
    target = problem.inner_dtype or problem.dtype
    return "float32" if target in REDUCED else target


def _repeated(problem: AttentionProblem, array: Any) -> Any:
    """Return key or value with grouped heads repeated for each head of the query."""
    if not problem.enable_gqa or array.shape[-3] == problem.heads:
        return array
    return array.repeat(problem.heads // array.shape[-3], axis=-3)


# ---- sequences ---------------------------------------------------------------------

#: Slices of a tensor.
Place = tuple[Any, ...]
_WHOLE: Place = (...,)


class Sequence(NamedTuple):
    """One sequence as a plain problem of its own.

    number: its index in the batch. rows: its slices of the query and the result. keys: its slices of key and
    value. pages: its pages of key and value, in order; None without paging.
    """

    problem: AttentionProblem
    number: int = 0
    rows: Place = _WHOLE
    keys: Place = _WHOLE
    pages: Any = None

    def keys_of(self, tensor: Any) -> Any:
        """Return its part of key or value, (..., keys, width)."""
        if self.pages is None:
            return tensor[self.keys]
        heads, width = tensor.shape[1], tensor.shape[-1]
        gathered = tensor[self.pages].swapaxes(0, 1).reshape(1, heads, -1, width)
        return gathered[..., : self.problem.key_length, :]


def sequences(problem: AttentionProblem, page_table: Any = None) -> Iterator[Sequence]:
    """Yield every sequence of a problem; the problem itself if all have the same length.

    Raises IndexError for a page that does not exist.
    """
    if not problem.key_lengths:
        yield Sequence(problem)
        return
    require_pages(problem, page_table)
    row = key = 0
    for number, (length, keys) in enumerate(problem.sequences):
        place: Place = (slice(number, number + 1),)
        if problem.query_lengths:
            place = (slice(None), slice(None), slice(row, row + length))
        sequence = Sequence(_alone(problem, length, keys), number, place)
        if page_table is None:
            yield sequence._replace(keys=(slice(None), slice(None), slice(key, key + keys)))
        else:
            size = problem.key.shape[-2]
            yield sequence._replace(pages=page_table[number, : -(-keys // size) if size else 0])
        row, key = row + length, key + keys


def require_pages(problem: AttentionProblem, page_table: Any) -> None:
    """Raise IndexError for a page that does not exist."""
    if page_table is None:
        return
    np, (count, _, size, _) = numpy(), problem.key.shape
    used = np.arange(page_table.shape[1]) * size < np.asarray(problem.key_lengths)[:, None]
    missing = np.argwhere(used & ((page_table < 0) | (page_table >= count)))
    if missing.size:
        number, place = missing[0]
        page = page_table[number, place]
        raise IndexError(f"page_table has page {page} for sequence {number}; there are {count} pages")


def _alone(problem: AttentionProblem, length: int, keys: int) -> AttentionProblem:
    """Return the problem of one sequence."""

    def spec(like: TensorSpec, rows: int) -> TensorSpec:
        shape = (1, like.shape[1], rows, like.shape[3])
        return TensorSpec(shape, like.dtype, requires_grad=like.requires_grad)

    return replace(
        problem,
        query=spec(problem.query, length),
        key=spec(problem.key, keys),
        value=spec(problem.value, keys),
        query_lengths=(),
        key_lengths=(),
        page_table=None,
    )
