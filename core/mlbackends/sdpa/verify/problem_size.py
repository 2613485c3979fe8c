"""How much there is to compute in an attention problem, and how much memory a check of it takes."""

from math import inf, prod

from mlbackends.host.host import Host
from mlbackends.model.problem import ITEM_BYTES, AttentionProblem, TensorSpec

_WORKSPACE = 512 << 20
"""What the exact computation and an interpreter with numpy take at most beside the tensors."""


def visible_scores(problem: AttentionProblem) -> int:
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
    """Return the floating-point operations of what is timed.

    That is both products; of a backward pass five: the scores again, the gradients of weights and of
    value, as wide as the value, and those of query and key. Source: Dao 2023, FlashAttention-2.
    """
    widths = problem.head_dim + problem.value_dim
    if problem.wants_gradient:
        widths = 3 * problem.head_dim + 2 * problem.value_dim
    return 2 * prod(problem.leading_shape) * visible_scores(problem) * widths


def least_bytes(problem: AttentionProblem) -> int:
    """Return the bytes of inputs and result: what must be moved once, however it is computed.

    A backward pass also reads the result with its gradient and the sums of rows, and writes gradients.
    """
    moved = _bytes(problem.query, problem.key, problem.value, problem.mask)
    result = prod(problem.output_shape) * ITEM_BYTES[problem.dtype]
    if not problem.wants_gradient:
        return moved + result
    sums = prod(problem.output_shape[:-1]) * max(ITEM_BYTES[problem.dtype], 4)
    return moved + 2 * result + sums + gradient_bytes(problem)


def gradient_bytes(problem: AttentionProblem) -> int:
    """Return the bytes of what a backward pass returns."""
    mask = problem.mask if problem.mask and problem.mask.requires_grad else None
    return _bytes(problem.query, problem.key, problem.value, mask)


def _bytes(*specs: TensorSpec | None) -> int:
    return sum(each.elements * ITEM_BYTES[each.dtype] for each in specs if each is not None)


def needed_bytes(problem: AttentionProblem) -> int:
    """Return about how much memory a check takes: tensors in several processes, and in float64."""
    specs = (problem.query, problem.key, problem.value, problem.mask)
    elements = sum(each.elements for each in specs if each is not None)
    results = prod(problem.output_shape)
    item = ITEM_BYTES[problem.dtype]
    scores_of_a_row = prod(problem.leading_shape) * problem.key_length * 8 * 4
    if problem.wants_gradient:  # as many gradients, and room in which grouped heads are summed
        elements, results, scores_of_a_row = 3 * elements, 3 * results, 3 * scores_of_a_row
    return (elements + results) * (2 * item + 24) + 24 * results + scores_of_a_row + _WORKSPACE


def too_large(problem: AttentionProblem, memory: int, disk: int, folder: str) -> str:
    """Return why a check cannot begin, "" where it can.

    memory, disk: the bytes that are free, disk in the folder to which inputs and results are written.
    """
    needed, written = needed_bytes(problem), least_bytes(problem)
    if needed > memory:
        free = f"{memory / 2**30:,.1f} GiB of memory are free"
        return f"a check takes about {needed / 2**30:,.1f} GiB, and {free}"
    if written > disk:
        size, free = f"{written / 2**20:,.1f} MiB", f"{disk / 2**20:,.1f} MiB are free there"
        return f"a check writes about {size} to {folder}, and {free}; TMPDIR names another place"
    return ""


def free_bytes(host: Host | None = None) -> int:
    """Return the free memory within the limit of the control group, without swap."""
    import psutil

    from mlbackends.host.system.cgroups import limit

    lowest = limit(host or Host("/"), "memory_limit_bytes")
    return int(min(psutil.virtual_memory().available, lowest.value if lowest else inf))
