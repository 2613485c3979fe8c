"""Which problems torch's flash attention takes on CUDA. Source: torch 2.13.0 for CUDA 13.0, its binary."""

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.constraints import (
    Constraint,
    capability_between,
    equal_batch,
    grouped_heads,
    head_dim_at_most,
    last_dim_contiguous,
    no_mask,
    non_empty,
    on_device,
    rank_is,
    same_head_dim,
    square_causal,
)
from mlbackends.sdpa.rules.dense import where_dense
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.flash_parts import built, nested_head_dim, nested_heads, training_limit


def flash(environment: Environment) -> tuple[Constraint, ...]:
    """Return what flash attention asks for, in torch's order."""
    return (
        built(environment.flash_built),
        on_device("cuda"),
        rank_is(4),
        no_mask(),
        same_head_dim(),
        head_dim_at_most(256),
        nested_head_dim(),
        capability_between((8, 0), (12, 1)),
        training_limit(_is_small, "sm86 to sm89 and sm120"),
        where_dense(square_causal()),
        _element_type(environment.flash_3),
        nested_heads(),
        where_dense(equal_batch()),
        where_dense(grouped_heads()),
        where_dense(non_empty()),
        where_dense(last_dim_contiguous(singleton_exempt=True)),
    )


def _is_small(problem: AttentionProblem) -> bool:
    return problem.capability in ((8, 6), (8, 7), (8, 8), (8, 9), (12, 0), (12, 1))


def _element_type(flash_3: bool) -> Constraint:
    def test(problem: AttentionProblem) -> str:
        capability = problem.capability or (8, 0)
        taken = ["float16", "bfloat16"] if capability >= (8, 0) else ["float16"]
        if flash_3 and capability >= (9, 0):
            taken.append("float8_e4m3fn")
        if problem.dtype in taken:
            return ""
        return f"the element type is {problem.dtype}; it takes {', '.join(taken)}"

    return Constraint("wrong-dtype", "element type float16 or bfloat16", test)
