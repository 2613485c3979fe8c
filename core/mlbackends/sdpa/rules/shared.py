"""Constraints of torch's kernels that several of them share."""

from collections.abc import Callable

from msgspec.structs import replace

from mlbackends.model.problem import AttentionProblem, heads_of
from mlbackends.sdpa.constraints import Constraint, constraint


def where_dense(constraint: Constraint) -> Constraint:
    """Return the constraint without its effect on nested tensors, which have no single length or width."""

    def test(problem: AttentionProblem) -> str:
        return "" if problem.is_nested else constraint.test(problem)

    return replace(constraint, test=test)


@constraint("head-dim-unaligned", "for nested tensors, head_dim a multiple of 8")
def nested_head_dim(problem: AttentionProblem) -> str:
    """Require nested rows of whole 16-byte vectors."""
    if not problem.query.nested or problem.head_dim % 8 == 0:
        return ""
    return f"head_dim is {problem.head_dim}; in nested tensors it must be a multiple of 8"


@constraint("nested", "nested tensors with one number of heads")
def nested_heads(problem: AttentionProblem) -> str:
    """Require one number of heads within nested tensors, and for gradients the same sizes in all of them."""
    specs = (problem.query, problem.key, problem.value)
    if not any(spec.nested for spec in specs):
        return ""
    if any(spec.nested and not heads_of(spec) for spec in specs):
        return "the number of heads must not differ within nested tensors"
    sizes = {spec.shape[:2] for spec in specs}
    if len(sizes) > 1 and any(spec.requires_grad for spec in specs):
        return "gradients of nested tensors need equal batches and heads of query, key and value"
    if any(len(set(counts) - {1}) > 1 for counts in zip(*sizes, strict=False)):
        return "batches and heads of nested tensors must be equal or 1"
    return ""


_MOST = 65535


@constraint("too-many-heads", f"batch and heads at most {_MOST}")
def crowd(problem: AttentionProblem) -> str:
    """Limit batch and heads to the size of one dimension of a launch grid."""
    batch = problem.query.shape[0] if problem.rank > 3 else 1
    if batch <= _MOST and problem.heads <= _MOST:
        return ""
    return f"there are {batch} batches and {problem.heads} heads; the limit is {_MOST} of each"


def training_limit(is_small: Callable[[AttentionProblem], bool], small: str) -> Constraint:
    """Limit head_dim on GPUs with too little shared memory for the backward pass.

    small: the names of those GPUs.
    """

    @constraint("gradient", "for gradients on small GPUs, a smaller head_dim")
    def limit(problem: AttentionProblem) -> str:
        inputs, width = (problem.query, problem.key, problem.value), problem.head_dim
        if not is_small(problem) or not any(spec.requires_grad for spec in inputs):
            return ""
        if 192 < width <= 224:
            return f"head_dim is {width}; on {small} gradients are not supported from 193 to 224"
        if width > 224 and problem.dropout:
            return f"head_dim is {width}; on {small} the limit for gradients with dropout is 224"
        return ""

    return limit()


def row_alignment(alignment: Callable[[AttentionProblem], int]) -> Constraint:
    """Require a head_dim and a value_dim that are multiples of a number."""

    @constraint("head-dim-unaligned", "rows of whole vectors, such as 8 elements of 16 bits")
    def whole_vectors(problem: AttentionProblem) -> str:
        step = alignment(problem)
        odd = [dim for dim in (problem.head_dim, problem.value_dim) if dim % step or not dim]
        return f"head_dim is {odd[0]}; it must be a multiple of {step}, above zero" if odd else ""

    return whole_vectors()
