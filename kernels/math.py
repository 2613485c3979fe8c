"""The plain formula, exact and slow: every shape that attention has a meaning for, in numpy.

What every other backend is measured by, and what runs where no other can.
"""

import importlib.util
import sys
from typing import Any

from msgspec.structs import replace

from mlbackends.kernels.tensors import dropping, interchange
from mlbackends.kernels.tensors.arithmetic import INSTALL, numpy
from mlbackends.model.problem import REDUCED, AttentionProblem
from mlbackends.model.reasons import Reason
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.constraints import dtype_in, on_device
from mlbackends.sdpa.sdp_backend import SDPBackend

#: Scores that are held at once; above, rows of the query are taken in turn.
_SCORES_AT_ONCE = 1 << 22


class Math(AttentionBackend):
    """softmax(query @ transposed(key) * scale + mask) @ value, a block of rows at a time.

    Shapes:  query (..., H, L, E), key (..., Hkv, S, E), value (..., Hkv, S, Ev); what is before the
             last two broadcasts. Returns (..., H, L, Ev).
    Numbers: 16-bit elements are computed in float32 and rounded once, unless the problem says
             otherwise. A row that sees no key is 0. Tensors of a GPU are copied to the CPU and back;
             those of torch's meta device have no values, and neither has the result.
    """

    name, answers_to, rank = "math", SDPBackend.MATH, 0
    constraints = (
        on_device("cpu", "cuda", "rocm", "mps", "xpu", "meta"),
        dtype_in("float16", "bfloat16", "float32", "float64"),
    )
    takes = frozenset({"float64_inside", "lower_right"})
    tolerance = {"float16": 1.0, "bfloat16": 1.0, "float32": 1.0, "float64": 1.0}  # noqa: RUF012

    def missing_parts(self) -> tuple[Reason, ...]:
        """Return that numpy is not installed, if so."""
        if sys.modules.get("numpy") is not None or importlib.util.find_spec("numpy") is not None:
            return ()
        said = "it computes with numpy, and numpy is not installed"
        return (Reason("missing-part", said, INSTALL),)

    def run(
        self, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
    ) -> Any:
        """Compute it. Raises NoBackend where a constraint is not met."""
        self.require(problem)
        if problem.platform == "meta":
            return interchange.zeros_like(query, problem.output_shape)
        array = interchange.as_array
        seen = None if mask is None else array(mask)
        if 0 < problem.dropout < 1 and problem.seed is None:
            problem = replace(problem, seed=interchange.drawn_seed(query))
        result = attend(problem, array(query), array(key), array(value), seen)
        return interchange.like(query, interchange.narrowed(result, problem.dtype))


def attend(problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
    """Return attention in the problem's inner type, from arrays as `interchange.as_array` gives them."""
    np = numpy()
    inner, dtype = _inner_type(problem), problem.dtype
    keep = _rounding(problem)
    query, key, value = (interchange.widened(array, dtype, inner) for array in (query, key, value))
    key, value = _repeated(problem, key), _repeated(problem, value)
    # Half of the scale to either side, as in torch: a product of large numbers then overflows later.
    half, sign = _scale(problem)
    with np.errstate(all="ignore"):
        query, key = (
            keep(query * np.asarray(half * sign, inner)),
            keep(key * np.asarray(half, inner)),
        )
        keys = np.swapaxes(key, -1, -2)
        out = np.zeros(problem.output_shape, inner)
        for rows in _blocks(problem):
            scores = keep(query[..., rows, :] @ keys)
            scores = _masked(problem, scores, mask, rows)
            weights = keep(_softmax(scores))
            if problem.dropout:
                weights = _dropped(problem, weights, rows)
            out[..., rows, :] = keep(weights @ value)
    return out


def _inner_type(problem: AttentionProblem) -> str:
    """Return the type of the arithmetic: numpy sums 16-bit numbers poorly, so those are rounded after."""
    wanted = problem.inner_dtype or problem.dtype
    return "float32" if wanted in REDUCED else wanted


def _rounding(problem: AttentionProblem) -> Any:
    """Return what is done to each intermediate: nothing, or rounding to the 16-bit type if allowed."""
    if problem.inner_dtype not in REDUCED:
        return lambda array: array
    dtype = problem.inner_dtype

    def keep(array: Any) -> Any:
        return interchange.widened(interchange.narrowed(array, dtype), dtype, "float32")

    return keep


def _repeated(problem: AttentionProblem, array: Any) -> Any:
    """Return key or value with a head for each head of the query, where heads are grouped."""
    if not problem.enable_gqa or array.shape[-3] == problem.heads:
        return array
    return array.repeat(problem.heads // array.shape[-3], axis=-3)


def _scale(problem: AttentionProblem) -> tuple[float, float]:
    """Return the square root of the scale's size, and its sign."""
    scale = problem.scale
    if scale is None:
        return (problem.head_dim or 1) ** -0.25, 1.0
    return abs(scale) ** 0.5, -1.0 if scale < 0 else 1.0


def _blocks(problem: AttentionProblem) -> list[slice]:
    """Return rows of the query that are computed together."""
    width = problem.key_length
    for size in problem.leading_shape:
        width *= size
    step = max(1, _SCORES_AT_ONCE // max(width, 1))
    return [slice(start, start + step) for start in range(0, problem.query_length, step)]


def _masked(problem: AttentionProblem, scores: Any, mask: Any, rows: slice) -> Any:
    """Return the scores of some rows with -inf where a key is not seen, or the mask added."""
    np = numpy()
    if problem.is_causal:
        offset = problem.key_length - problem.query_length if problem.lower_right else 0
        row = np.arange(problem.query_length)[rows, None]
        seen = np.arange(problem.key_length) <= row + offset
        return np.where(seen, scores, -np.inf)
    if mask is None:
        return scores
    assert problem.mask is not None
    part = mask if mask.shape[-2] == 1 else mask[..., rows, :]
    if problem.mask.dtype == "bool":
        return np.where(part, scores, -np.inf)
    return scores + interchange.widened(part, problem.mask.dtype, scores.dtype)


def _softmax(scores: Any) -> Any:
    """Return the weights of each row; all 0 where every score is -inf, NaN where one is."""
    np = numpy()
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = weights.sum(axis=-1, keepdims=True)
    return np.where(largest == -np.inf, 0, weights / total)


def _dropped(problem: AttentionProblem, weights: Any, rows: slice) -> Any:
    """Return the weights with some dropped, and the rest enlarged so that their mean stays."""
    if problem.dropout == 1:
        return numpy().zeros_like(weights)
    assert problem.seed is not None
    taken = range(*rows.indices(problem.query_length))
    leading = problem.output_shape[:-2]
    kept = dropping.kept(problem.seed, problem.dropout, leading, taken, problem.key_length)
    return weights * kept / (1 - problem.dropout)
