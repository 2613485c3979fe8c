"""Sums of products that an equation describes, two operands at a time.

Switches: `opt_einsum.enabled` and `opt_einsum.strategy` give the order of three and more operands;
float32 obeys `mkldnn.matmul.fp32_precision` in every product that adds up.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends import flag_store
from mlbackends.kernels.operations._arrays import common_dtype, operand, returned
from mlbackends.kernels.operations._equation import Contraction, Label, arranged, read
from mlbackends.kernels.operations._precision import Product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Term(NamedTuple):
    """An array whose dimensions have labels, each once."""

    array: "NDArray[Any]"
    labels: tuple[Label, ...]


def run(*arguments: Any) -> Any:
    """Return the sum of products; see `mlbackends.operations.einsum`."""
    equation, tensors = arranged(arguments)
    operands = {f"operand {i}": operand(f"operand {i}", each) for i, each in enumerate(tensors)}
    dtype = common_dtype(operands)
    contraction = read(equation, [each.array.shape for each in operands.values()])
    terms = [
        _with_labels_once(each.array, labels)
        for each, labels in zip(operands.values(), contraction.inputs, strict=True)
    ]
    product = Product(dtype)
    for places in path(contraction):
        chosen = [terms.pop(place) for place in sorted(places, reverse=True)][::-1]
        result = chosen[0]
        for number, other in enumerate(chosen[1:], 2):
            wanted = _wanted([*terms, *chosen[number:]], contraction.output)
            result = multiplied(result, other, wanted, product)
        terms.append(result)
    return returned(tensors[0], _ordered(terms[0], contraction.output), dtype)


def path(contraction: Contraction) -> "list[tuple[int, ...]]":
    """Return which operands to multiply first, next and last: their places in a list.

    Those that are multiplied leave the list, and their product goes to its end.
    """
    count = len(contraction.inputs)
    if count > 2 and flag_store.read("opt_einsum.enabled"):
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
    strategy = flag_store.read("opt_einsum.strategy") or "auto"
    found = package.contract_path(equation, *shapes, shapes=True, optimize=strategy)[0]
    return [tuple(places) for places in found]


def _wanted(others: "Sequence[Term]", output: tuple[Label, ...]) -> set[Label]:
    """Return the labels that are still needed after a product: by the result or another operand."""
    return {*output, *(label for term in others for label in term.labels)}


def multiplied(left: Term, right: Term, wanted: set[Label], product: Product) -> Term:
    """Return the product of two operands, summed over what is not wanted any more."""
    shared = set(left.labels) & set(right.labels)
    left = _summed(left, {label for label in left.labels if label not in wanted | shared})
    right = _summed(right, {label for label in right.labels if label not in wanted | shared})
    inner = [label for label in left.labels if label in shared - wanted]
    for label in list(inner):
        sizes = {_size(left, label), _size(right, label)}
        if len(sizes) == 2:  # one of them repeats: its factor can be taken out of the sum
            left, right = _summed(left, {label}), _summed(right, {label})
            inner.remove(label)
    batch = [label for label in left.labels if label in shared & wanted]
    rows = [label for label in left.labels if label not in (*batch, *inner)]
    columns = [label for label in right.labels if label not in (*batch, *inner)]
    a, b = _ordered(left, (*batch, *rows, *inner)), _ordered(right, (*batch, *inner, *columns))
    outer = len(batch)
    row_sizes, column_sizes = a.shape[outer : outer + len(rows)], b.shape[outer + len(inner) :]
    if inner:
        depth = _count(a.shape[outer + len(rows) :])
        a = a.reshape((*a.shape[:outer], _count(row_sizes), depth))
        b = b.reshape((*b.shape[:outer], depth, _count(column_sizes)))
        array = product(a, b)
        array = array.reshape((*array.shape[:outer], *row_sizes, *column_sizes))
    else:
        array = a.reshape((*a.shape, *[1] * len(columns))) * b.reshape(
            (*b.shape[:outer], *[1] * len(rows), *column_sizes)
        )
    return Term(array, (*batch, *rows, *columns))


def _with_labels_once(array: "NDArray[Any]", labels: tuple[Label, ...]) -> Term:
    """Return an operand with the diagonal taken where a label stands twice."""
    import numpy as np

    once = tuple(dict.fromkeys(labels))
    if len(once) == len(labels):
        return Term(array, labels)
    number = {label: i for i, label in enumerate(once)}
    return Term(np.einsum(array, [number[label] for label in labels], list(number.values())), once)


def _summed(term: Term, labels: set[Label]) -> Term:
    """Return an operand without some labels."""
    if not labels:
        return term
    axes = tuple(i for i, label in enumerate(term.labels) if label in labels)
    kept = tuple(label for label in term.labels if label not in labels)
    return Term(term.array.sum(axes), kept)


def _ordered(term: Term, labels: "Sequence[Label]") -> "NDArray[Any]":
    """Return an operand's array with its dimensions in an order; what is in no label is summed."""
    term = _summed(term, set(term.labels) - set(labels))
    return term.array.transpose([term.labels.index(label) for label in labels])


def _size(term: Term, label: Label) -> int:
    return int(term.array.shape[term.labels.index(label)])


def _count(sizes: "Sequence[int]") -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
