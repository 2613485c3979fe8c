"""How much there is to compute in an attention problem, and how much memory a check of it takes."""

from math import prod

from mlbackends.model.problem import ITEM_BYTES, AttentionProblem

_WORKSPACE = 512 << 20
"""What the exact computation and an interpreter with numpy take at most beside the tensors."""


def seen_scores(problem: AttentionProblem) -> int:
    """Return how many scores of one head count: all but those that a causal mask hides."""
    rows, columns = problem.query_length, problem.key_length
    if not problem.is_causal:
        return rows * columns
    offset = columns - rows if problem.lower_right else 0
    # Row i sees i + 1 + offset keys, at least none and at most all.
    first, last = max(1 + offset, 0), min(rows + offset, columns)
    if last <= 0:
        return 0
    growing = last - first + 1
    whole = rows - max(min(columns - offset, rows), 0)
    return (first + last) * growing // 2 + whole * columns if growing > 0 else whole * columns


def flops(problem: AttentionProblem) -> int:
    """Return the floating-point operations of both products."""
    heads = prod(problem.leading_shape)
    return 2 * heads * seen_scores(problem) * (problem.head_dim + problem.value_dim)


def least_bytes(problem: AttentionProblem) -> int:
    """Return the bytes of inputs and result: what must be moved once, however it is computed."""
    specs = [problem.query, problem.key, problem.value, problem.mask]
    moved = sum(each.elements * ITEM_BYTES[each.dtype] for each in specs if each is not None)
    return moved + prod(problem.output_shape) * ITEM_BYTES[problem.dtype]


def needed_bytes(problem: AttentionProblem) -> int:
    """Return about how much memory a check takes: tensors in several processes, and in float64."""
    inputs = (problem.query, problem.key, problem.value)
    elements = sum(each.elements for each in inputs)
    elements += problem.mask.elements if problem.mask else 0
    results = prod(problem.output_shape)
    item = ITEM_BYTES[problem.dtype]
    scores_of_a_row = prod(problem.leading_shape) * problem.key_length * 8 * 4
    return (elements + results) * (2 * item + 24) + 24 * results + scores_of_a_row + _WORKSPACE


def free_bytes() -> int:
    """Return how much memory can be had without swapping."""
    import psutil

    return int(psutil.virtual_memory().available)
