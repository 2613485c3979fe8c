"""Which problems torch's flash attention takes on CUDA. Source: torch 2.13.0 for CUDA 13.0, its binary."""

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.shared import (
    NESTED_HEAD_DIM,
    NESTED_HEADS,
    flash_built,
    training_limit,
    where_dense,
)


def flash(environment: Environment) -> tuple[Constraint, ...]:
    """Return what flash attention asks for, in torch's order."""
    return (
        flash_built(environment.flash_built),
        need.on_device("cuda"),
        need.rank_is(4),
        need.no_mask(),
        need.same_head_dim(),
        need.head_dim_at_most(256),
        NESTED_HEAD_DIM,
        need.capability_between((8, 0), (12, 1)),
        training_limit(_is_small, "sm86 to sm89 and sm120"),
        where_dense(need.square_causal()),
        _element_type(environment.flash_3),
        NESTED_HEADS,
        where_dense(need.equal_batch()),
        where_dense(need.grouped_heads()),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(singleton_exempt=True)),
    )


def _is_small(problem: AttentionProblem) -> bool:
    return problem.capability in ((8, 6), (8, 7), (8, 8), (8, 9), (12, 0), (12, 1))


def _element_type(flash_3: bool) -> Constraint:
    def test(problem: AttentionProblem) -> str:
        capability = problem.capability or (8, 0)
        taken = ["float16", *(["bfloat16"] if capability >= (8, 0) else [])]
        taken += ["float8_e4m3fn"] if flash_3 and capability >= (9, 0) else []
        return need.dtype_in(*taken).test(problem)

    return Constraint("wrong-dtype", "element type float16 or bfloat16", test)
