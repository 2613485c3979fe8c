"""Which problems torch's memory-efficient attention takes on CUDA.

Source: torch 2.13.0 for CUDA 13.0, its binary. Grouped heads come with a later release.
"""

from mlbackends.model.problem import ITEM_BYTES, REDUCED, AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.parts import row_alignment, where_dense


def efficient(environment: Environment) -> tuple[Constraint, ...]:
    """Return what memory-efficient attention asks for, in torch's order."""
    del environment  # nothing of it matters here
    return (
        need.on_device("cuda"),
        need.capability_between((5, 0), (12, 1)),
        need.rank_is(4),
        row_alignment(alignment),
        _storage_alignment(),
        _nested_inference(),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(mask_too=True)),
        where_dense(need.equal_batch()),
        where_dense(need.equal_heads()),
        _element_type(),
    )


def alignment(problem: AttentionProblem) -> int:
    """Return of how many elements the rows must be a multiple, by element type and GPU."""
    capability = problem.capability or (8, 0)
    if problem.dtype in REDUCED:
        return 8 if capability >= (7, 0) else 1
    return 4 if capability >= (8, 0) and problem.dtype == "float32" else 1


def _storage_alignment() -> Constraint:
    def test(problem: AttentionProblem) -> str:
        if (problem.capability or (8, 0)) < (8, 0):
            return ""
        step = alignment(problem)
        for name in ("query", "key", "value"):
            spec = getattr(problem, name)
            if spec.elements and spec.storage_offset % step:
                size = step * ITEM_BYTES[problem.dtype]
                return (
                    f"{name} starts {spec.storage_offset} elements into its storage;"
                    f" it must start at a multiple of {step} elements, {size} bytes"
                )
        return ""

    return Constraint("storage-unaligned", "tensors that start at whole vectors", test)


def _nested_inference() -> Constraint:
    def test(problem: AttentionProblem) -> str:
        specs = (problem.query, problem.key, problem.value)
        if not any(spec.nested for spec in specs) or not any(spec.requires_grad for spec in specs):
            return ""
        return "nested tensors require a gradient; it gives none for those"

    return Constraint("gradient", "nested tensors that require no gradient", test)


def _element_type() -> Constraint:
    def test(problem: AttentionProblem) -> str:
        taken = ["float16", "float32"]
        if (problem.capability or (8, 0)) >= (8, 0):
            taken.append("bfloat16")
        if problem.dtype in taken:
            return ""
        return f"the element type is {problem.dtype}; it takes {', '.join(taken)}"

    return Constraint("wrong-dtype", "element type float16, float32, or bfloat16 from sm80", test)
