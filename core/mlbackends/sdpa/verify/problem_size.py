"""The operations of an attention problem, and the memory that a check of it takes."""

from math import inf, prod

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.base.element_types import ITEM_BYTES
from mlbackends.host.host import Host
from mlbackends.host.system.cgroups import limit
from mlbackends.model.problem import AttentionProblem, TensorSpec

#: The most that the exact computation and an interpreter with numpy take, without the tensors.
_WORKSPACE = 512 << 20
#: What is taken for free where the system does not report it.
_UNKNOWN_BYTES = 2 << 30
#: A larger problem on a GPU is compared in some heads only.
_MOST_FLOPS = 10**11


class Sample(Struct, frozen=True):
    """The batches and heads of a problem that are compared with the exact result.

    leading: the leading dimensions of the query. places: by dimension, the indices that are compared.
    group: how many query heads share one head of key and value.
    """

    leading: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    group: int

    def of(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the indices to compare in each leading dimension of a tensor; () for all."""
        sizes = shape[:-2] if len(shape) > 1 else shape  # sinks have one element for each head
        skipped = len(self.places) - len(sizes)
        indices = []
        for at, size in enumerate(sizes, skipped):
            places = self.places[at]
            if size != self.leading[at]:  # heads of key and value, or broadcast dimensions
                places = tuple(dict.fromkeys(place // self.group for place in places))
            indices.append(() if size == 1 else places)
        return tuple(indices)


def visible_scores(problem: AttentionProblem) -> int:
    """Return the number of scores of one head, over all sequences, within the causal mask and the window."""
    left, right = problem.band
    count = 0
    for rows, keys in problem.sequences:
        offset = keys - rows if problem.lower_right else 0
        count += rows * keys if right < 0 else _scores_up_to(offset + right, rows, keys)
        count -= 0 if left < 0 else _scores_up_to(offset - left - 1, rows, keys)
    return count


def _scores_up_to(offset: int, rows: int, columns: int) -> int:
    """Return the number of scores in columns up to their row + offset."""
    # Row i sees i + 1 + offset keys, limited to 0 and to all.
    first, last = max(1 + offset, 0), min(rows + offset, columns)
    if last <= 0:
        return 0
    growing = last - first + 1
    whole = rows - max(min(columns - offset, rows), 0)
    return (first + last) * growing // 2 + whole * columns if growing > 0 else whole * columns


def flops(problem: AttentionProblem) -> int:
    """Return the floating-point operations of the call that is timed.

    A forward pass has two products; a backward pass has five: the scores again, the gradients of weights and
    value, which are value_dim wide, and those of query and key. Source: Dao 2023, FlashAttention-2.
    """
    widths = problem.head_dim + problem.value_dim
    if problem.wants_gradient:
        widths = 3 * problem.head_dim + 2 * problem.value_dim
    leading = problem.leading_shape
    heads = leading[-1] if problem.key_lengths else prod(leading)
    return 2 * heads * visible_scores(problem) * widths


def least_bytes(problem: AttentionProblem) -> int:
    """Return the bytes of inputs and result, which every implementation moves at least once.

    A backward pass also reads the result, its gradient and the sums of rows, and writes gradients.
    """
    item = ITEM_BYTES[problem.dtype]
    more = problem.sinks, problem.alibi_slopes, problem.page_table
    moved = _bytes(problem.query, problem.mask, *more)
    for spec in (problem.key, problem.value):
        if problem.page_table is None:
            moved += _bytes(spec)
        else:  # the unused part of a sequence's last page is not read
            moved += sum(problem.key_lengths) * spec.shape[1] * spec.shape[3] * item
    result = prod(problem.output_shape) * item
    if not problem.wants_gradient:
        return moved + result
    sums = prod(problem.output_shape[:-1]) * max(ITEM_BYTES[problem.dtype], 4)
    return moved + 2 * result + sums + gradient_bytes(problem)


def gradient_bytes(problem: AttentionProblem) -> int:
    """Return the bytes of the results of a backward pass."""
    more = [spec for spec in (problem.mask, problem.sinks) if spec and spec.requires_grad]
    return _bytes(problem.query, problem.key, problem.value, *more)


def _bytes(*specs: TensorSpec | None) -> int:
    return sum(spec.elements * ITEM_BYTES[spec.dtype] for spec in specs if spec is not None)


def sample(problem: AttentionProblem) -> Sample | None:
    """Return the part of a problem that is compared; None for all of it, as always on the CPU.

    A key head is included with all query heads that share it, so that gradients are complete.
    """
    specs = (problem.query, problem.key, problem.value)
    if problem.platform == "cpu" or flops(problem) <= _MOST_FLOPS or problem.dropout:
        return None
    leading = problem.leading_shape
    is_plain = all(spec.shape[:-3] == leading[:-1] for spec in specs)
    if not leading or not is_plain or leading[-1] != problem.heads:
        return None
    if problem.key_heads != problem.value.shape[-3]:
        return None
    if problem.mask is not None and problem.mask.requires_grad:
        return None
    if problem.key_lengths:
        return None
    count = max(1, _MOST_FLOPS * prod(leading[:-1]) * problem.key_heads // flops(problem))
    group = leading[-1] // problem.key_heads
    heads = _spread(problem.key_heads, count)
    places = [tuple(head * group + number for head in heads for number in range(group))]
    count = max(1, count // len(heads))
    for size in reversed(leading[:-1]):
        places.insert(0, _spread(size, count))
        count = max(1, count // len(places[0]))
    return Sample(leading, tuple(places), group)


def _spread(size: int, count: int) -> tuple[int, ...]:
    """Return `count` evenly spread indices below `size`, with the first and the last; for one, the last."""
    if count >= size:
        return tuple(range(size))
    if count == 1:
        return (size - 1,)
    return tuple(number * (size - 1) // (count - 1) for number in range(count))


def sampled(problem: AttentionProblem, chosen: Sample | None) -> AttentionProblem:
    """Return the part of a problem that is compared."""
    if chosen is None:
        return problem

    def part(spec: TensorSpec) -> TensorSpec:
        leading = (len(places) or 1 for places in chosen.of(spec.shape))
        shape = (*leading, *(spec.shape[-2:] if len(spec.shape) > 1 else ()))
        return TensorSpec(shape, spec.dtype, requires_grad=spec.requires_grad)

    names = ("query", "key", "value", "mask", "sinks", "alibi_slopes")
    specs = {name: part(spec) for name in names if (spec := getattr(problem, name)) is not None}
    return replace(problem, **specs)


def sample_text(problem: AttentionProblem, chosen: Sample | None) -> str:
    """Return a sentence about the part of a problem that is compared; "" for all of it."""
    heads = prod(problem.leading_shape)
    compared = heads if chosen is None else prod(map(len, chosen.places))
    return f"{compared} of {heads} heads were compared with float64" if compared < heads else ""


def needed_bytes(problem: AttentionProblem) -> int:
    """Return an estimate of the memory that a check takes: tensors in several processes and in float64."""
    whole = 0
    chosen = sample(problem)
    if chosen is not None:  # random numbers, and two copies in a process that reads or writes them
        tensors = _bytes(problem.query, problem.key, problem.value, problem.mask)
        most = max(problem.query.elements, problem.key.elements, problem.value.elements)
        whole = 12 * most + 3 * tensors
        problem = sampled(problem, chosen)
    specs = (problem.query, problem.key, problem.value, problem.mask, problem.sinks)
    elements = sum(spec.elements for spec in specs if spec is not None)
    results = prod(problem.output_shape)
    item = ITEM_BYTES[problem.dtype]
    scores_of_a_row = prod(problem.leading_shape) * problem.key_length * 8 * 4
    if problem.wants_gradient:  # gradients, and memory in which grouped heads are summed
        elements, results, scores_of_a_row = 3 * elements, 3 * results, 3 * scores_of_a_row
    room = (elements + results) * (2 * item + 24) + 24 * results + scores_of_a_row
    return whole + room + _WORKSPACE


def too_large(problem: AttentionProblem, memory: int, disk: int, folder: str) -> str:
    """Return why a check cannot start, "" if it can.

    memory, disk: the free bytes, on disk in the folder to which inputs and results are written.
    """
    needed, written = needed_bytes(problem), least_bytes(problem)
    if needed > memory:
        free = f"{memory / 2**30:,.1f} GiB are free"
        return f"a check needs about {needed / 2**30:,.1f} GiB of memory, and {free}"
    if written > disk:
        size, free = f"{written / 2**20:,.1f} MiB", f"{disk / 2**20:,.1f} MiB are free there"
        return f"a check writes about {size} to {folder}, and {free}; set TMPDIR to another folder"
    return ""


def free_bytes(host: Host | None = None) -> int:
    """Return the free memory, without swap, within the limit of the control group."""
    import psutil

    lowest = limit(host or Host("/"), "memory_limit_bytes")
    try:
        available: float = psutil.virtual_memory().available
    except OSError:  # no /proc is mounted
        available = _UNKNOWN_BYTES
    return int(min(available, lowest.value if lowest else inf))
