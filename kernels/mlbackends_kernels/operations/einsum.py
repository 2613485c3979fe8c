"""Sums of products that an equation describes, two operands at a time.

Switches: `opt_einsum.enabled` and `opt_einsum.strategy` give the order of three and more operands;
float32 obeys `mkldnn.matmul.fp32_precision` in every product that adds up.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends.sdpa.describe import refuse_unreadable
from mlbackends.switches import store
from mlbackends_kernels.cuda.device_array import as_device_array, is_on_device
from mlbackends_kernels.cuda.streams import callers
from mlbackends_kernels.operations._arithmetic import Arithmetic, InMemory, OnDevice
from mlbackends_kernels.operations._arrays import common_dtype, operand, quiet, returned
from mlbackends_kernels.operations._equation import Contraction, Label, arranged, read

if TYPE_CHECKING:
    from collections.abc import Sequence


class Term(NamedTuple):
    """An array whose dimensions have labels, each once."""

    array: Any
    labels: tuple[Label, ...]


def run(*arguments: Any) -> Any:
    """Return the sum of products; see `mlbackends_kernels.operations._call.einsum`."""
    equation, tensors = arranged(arguments)
    named = {f"operand {i}": each for i, each in enumerate(tensors)}
    refuse_unreadable(named, "einsum(): ")
    places = [is_on_device(tensor) for tensor in tensors]
    if any(places) and not all(places):
        first = places.index(not places[0])
        raise RuntimeError(f"all must lie on one device: operand 0 and operand {first} do not")
    if places[0]:
        stream = callers(*tensors)
        arrays = [as_device_array(tensor, stream) for tensor in tensors]
        _common_dtype([array.dtype for array in arrays])
        if len({array.device for array in arrays}) > 1:
            raise RuntimeError(f"all must lie on one device, not {[a.device for a in arrays]}")
        return contracted(equation, arrays, OnDevice())
    return _in_memory(equation, named)


@quiet
def _in_memory(equation: str, named: dict[str, Any]) -> Any:
    operands = [operand("einsum", name, each) for name, each in named.items()]
    dtype = _common_dtype([each.dtype for each in operands])
    result = contracted(equation, [each.array for each in operands], InMemory(dtype))
    return returned(next(iter(named.values())), result, dtype)


def _common_dtype(dtypes: "Sequence[str]") -> str:
    return common_dtype({f"operand {i}": dtype for i, dtype in enumerate(dtypes)})


def contracted(equation: str, arrays: "Sequence[Any]", by: Arithmetic) -> Any:
    """Return the sum of products of arrays that one arithmetic understands."""
    contraction = read(equation, [array.shape for array in arrays])
    terms = [
        _with_labels_once(array, labels, by)
        for array, labels in zip(arrays, contraction.inputs, strict=True)
    ]
    for places in path(contraction):
        chosen = [terms.pop(place) for place in sorted(places, reverse=True)][::-1]
        result = chosen[0]
        for number, other in enumerate(chosen[1:], 2):
            needed = _needed([*terms, *chosen[number:]], contraction.output)
            result = multiplied(result, other, needed, by)
        terms.append(result)
    return _ordered(terms[0], contraction.output, by)


def path(contraction: Contraction) -> "list[tuple[int, ...]]":
    """Return which operands to multiply first, next and last: their places in a list.

    Those that are multiplied leave the list, and their product goes to its end.
    """
    count = len(contraction.inputs)
    if count > 2 and store.read("opt_einsum.enabled"):
        from mlbackends import opt_einsum as installed

        package = installed.get_opt_einsum()
        if package is not None:
            return _found_path(package, contraction)
    if count < 2:
        return []
    # From left to right: the product so far is the last of the list.
    return [(0, 1), *((0, left) for left in range(count - 2, 0, -1))]


def _found_path(package: Any, contraction: Contraction) -> "list[tuple[int, ...]]":
    symbols = {label: package.get_symbol(i) for i, label in enumerate(contraction.sizes)}
    # A label that stands twice in one operand is one dimension from here on: its diagonal.
    inputs = [dict.fromkeys(labels) for labels in contraction.inputs]
    words = ["".join(symbols[label] for label in labels) for labels in inputs]
    equation = f"{','.join(words)}->{''.join(symbols[label] for label in contraction.output)}"
    shapes = [tuple(contraction.sizes[label] for label in labels) for labels in inputs]
    strategy = store.read("opt_einsum.strategy") or "auto"
    found = package.contract_path(equation, *shapes, shapes=True, optimize=strategy)[0]
    return [tuple(places) for places in found]


def _needed(others: "Sequence[Term]", output: tuple[Label, ...]) -> set[Label]:
    """Return the labels that are still needed after a product: by the result or another operand."""
    return {*output, *(label for term in others for label in term.labels)}


def multiplied(left: Term, right: Term, needed: set[Label], by: Arithmetic) -> Term:
    """Return the product of two operands, summed over what is not wanted any more."""
    shared = set(left.labels) & set(right.labels)
    left = _summed(left, {label for label in left.labels if label not in needed | shared}, by)
    right = _summed(right, {label for label in right.labels if label not in needed | shared}, by)
    inner = [label for label in left.labels if label in shared - needed]
    for label in list(inner):
        sizes = {_size(left, label), _size(right, label)}
        if len(sizes) == 2:  # one of them repeats: its factor can be taken out of the sum
            left, right = _summed(left, {label}, by), _summed(right, {label}, by)
            inner.remove(label)
    batch = [label for label in left.labels if label in shared & needed]
    rows = [label for label in left.labels if label not in (*batch, *inner)]
    columns = [label for label in right.labels if label not in (*batch, *inner)]
    a = _ordered(left, (*batch, *rows, *inner), by)
    b = _ordered(right, (*batch, *inner, *columns), by)
    outer, last = len(batch), len(batch) + len(rows)
    row_sizes, column_sizes = a.shape[outer:last], b.shape[outer + len(inner) :]
    depth = _count(a.shape[last:])
    a = by.reshaped(a, (*a.shape[:outer], _count(row_sizes), depth))
    b = by.reshaped(b, (*b.shape[:outer], depth, _count(column_sizes)))
    array = by.product(a, b) if inner else by.outer(a, b)
    array = by.reshaped(array, (*array.shape[:outer], *row_sizes, *column_sizes))
    return Term(array, (*batch, *rows, *columns))


def _with_labels_once(array: Any, labels: tuple[Label, ...], by: Arithmetic) -> Term:
    """Return an operand with the diagonal taken where a label stands twice."""
    once = tuple(dict.fromkeys(labels))
    if len(once) == len(labels):
        return Term(array, labels)
    return Term(by.diagonal(array, [once.index(label) for label in labels]), once)


def _summed(term: Term, labels: set[Label], by: Arithmetic) -> Term:
    """Return an operand without some labels."""
    if not labels:
        return term
    axes = [i for i, label in enumerate(term.labels) if label in labels]
    remaining = tuple(label for label in term.labels if label not in labels)
    return Term(by.summed(term.array, axes), remaining)


def _ordered(term: Term, labels: "Sequence[Label]", by: Arithmetic) -> Any:
    """Return an operand's array with its dimensions in an order; what is in no label is summed."""
    term = _summed(term, set(term.labels) - set(labels), by)
    return by.permuted(term.array, [term.labels.index(label) for label in labels])


def _size(term: Term, label: Label) -> int:
    return int(term.array.shape[term.labels.index(label)])


def _count(sizes: "Sequence[int]") -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
