"""softmax(query @ transposed(key) * scale + mask) @ value, a block of rows at a time."""

from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends_kernels.attention_math.rows import Rows, softmax
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
            weights, logsumexp[..., rows] = softmax(given.scores(rows))
            weights = given.dropped(given.keep(weights), rows)
            out[..., rows, :] = given.keep(weights @ given.value)
    return out, logsumexp
