"""Which problems torch's flash attention takes on CUDA. Source: torch 2.13.0 for CUDA 13.0, its binary."""

from mlbackends.model.problem import AttentionProblem, heads_of
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


def flash(environment: Environment) -> tuple[Constraint, ...]:
    """Return what flash attention asks for, in torch's order."""
    return (
        _built(environment.flash_built),
        on_device("cuda"),
        rank_is(4),
        no_mask(),
        same_head_dim(),
        head_dim_at_most(256),
        _nested_head_dim(),
        capability_between((8, 0), (12, 1)),
        _training_limit(),
        where_dense(square_causal()),
        _element_type(environment.flash_3),
        _nested_heads(),
        where_dense(equal_batch()),
        where_dense(grouped_heads()),
        where_dense(non_empty()),
        where_dense(last_dim_contiguous(singleton_exempt=True)),
    )


def _built(built: bool) -> Constraint:
    def test(problem: AttentionProblem) -> str:
        del problem
        return "" if built else "torch was built without flash attention"

    return Constraint("not-built", "a torch that was built with it", test)


def _nested_head_dim() -> Constraint:
    def test(problem: AttentionProblem) -> str:
        if not problem.query.nested or problem.head_dim % 8 == 0:
            return ""
        return f"head_dim is {problem.head_dim}; in nested tensors it must be a multiple of 8"

    return Constraint("head-dim-unaligned", "in nested tensors, head_dim a multiple of 8", test)


def _nested_heads() -> Constraint:
    def test(problem: AttentionProblem) -> str:
        specs = (problem.query, problem.key, problem.value)
        ragged = any(spec.nested and not heads_of(spec) for spec in specs)
        return (
            "the number of heads differs within the nested tensors; it must not" if ragged else ""
        )

    return Constraint("nested", "nested tensors whose heads do not differ", test)


def _training_limit() -> Constraint:
    """Ask for shorter rows on GPUs whose shared memory the backward pass outgrows."""

    def test(problem: AttentionProblem) -> str:
        small = problem.capability in ((8, 6), (8, 7), (8, 8), (8, 9), (12, 0), (12, 1))
        inputs = (problem.query, problem.key, problem.value)
        if not small or not any(spec.requires_grad for spec in inputs):
            return ""
        if 192 < problem.head_dim <= 224:
            return (
                f"head_dim is {problem.head_dim} and a gradient is required;"
                " on sm86 to sm89 and sm120 it takes none from 193 to 224"
            )
        if problem.head_dim > 224 and problem.dropout:
            return (
                f"head_dim is {problem.head_dim} and a gradient with dropout is required;"
                " on sm86 to sm89 and sm120 it takes at most 224"
            )
        return ""

    return Constraint("gradient", "for gradients on small GPUs, shorter rows", test)


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
