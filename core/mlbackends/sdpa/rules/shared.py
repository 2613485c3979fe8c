"""Constraints of torch's kernels that several of them share."""

from collections.abc import Callable

from msgspec.structs import replace

from mlbackends.model.problem import AttentionProblem, heads_of
from mlbackends.sdpa.constraints import Constraint, constraint


def where_dense(constraint: Constraint) -> Constraint:
    """Return the condition for plain tensors alone: nested ones have no single length or width."""

    def test(problem: AttentionProblem) -> str:
        nested = problem.query.nested or problem.key.nested or problem.value.nested
        return "" if nested else constraint.test(problem)

    return replace(constraint, test=test)


@constraint("head-dim-unaligned", "in nested tensors, head_dim a multiple of 8")
def nested_head_dim(problem: AttentionProblem) -> str:
    """Ask for rows of whole vectors of 16 bytes."""
    if not problem.query.nested or problem.head_dim % 8 == 0:
        return ""
    return f"head_dim is {problem.head_dim}; in nested tensors it must be a multiple of 8"


@constraint("nested", "nested tensors whose heads do not differ")
def nested_heads(problem: AttentionProblem) -> str:
    """Ask for one number of heads."""
    specs = (problem.query, problem.key, problem.value)
    if not any(spec.nested and not heads_of(spec) for spec in specs):
        return ""
    return "the number of heads differs within the nested tensors; it must not"


_MOST = 65535


@constraint("too-many-heads", f"batch and heads at most {_MOST}")
def crowd(problem: AttentionProblem) -> str:
    """Ask for no more than one dimension of a grid holds."""
    batch = problem.query.shape[0] if problem.rank > 3 else 1
    if batch <= _MOST and problem.heads <= _MOST:
        return ""
    return f"batch is {batch} and heads are {problem.heads}; it takes at most {_MOST} of each"


def training_limit(is_small: Callable[[AttentionProblem], bool], small: str) -> Constraint:
    """Ask for shorter rows on GPUs with too little shared memory for the backward pass.

    small: the names of those GPUs.
    """

    @constraint("gradient", "for gradients on small GPUs, shorter rows")
    def limit(problem: AttentionProblem) -> str:
        inputs, width = (problem.query, problem.key, problem.value), problem.head_dim
        if not is_small(problem) or not any(spec.requires_grad for spec in inputs):
            return ""
        seen = f"head_dim is {width} and a gradient"
        if 192 < width <= 224:
            return f"{seen} is required; on {small} it takes none from 193 to 224"
        if width > 224 and problem.dropout:
            return f"{seen} with dropout is required; on {small} it takes at most 224"
        return ""

    return limit()


def row_alignment(alignment: Callable[[AttentionProblem], int]) -> Constraint:
    """Ask for rows of a multiple of so many elements."""

    @constraint("head-dim-unaligned", "rows of whole vectors: 8 elements of 16 bits")
    def whole_vectors(problem: AttentionProblem) -> str:
        step = alignment(problem)
        odd = [dim for dim in (problem.head_dim, problem.value_dim) if dim % step or not dim]
        return f"head_dim is {odd[0]}; it must be a multiple of {step}, above zero" if odd else ""

    return whole_vectors()
