"""The equations of einsum: what they say of the dimensions of operands and result.

A letter is a label; the dimensions behind "..." have the labels -1, -2 and so on from the right, so
that they broadcast as in any other operation.

Source: torch 2.13, documentation of torch.einsum, and what it does.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Label = str | int
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_USAGE = (
    "an equation and at least one operand are needed, or operands each with a list of subscripts"
)


class Contraction(NamedTuple):
    """The labels of each operand's dimensions and of the result's, and the size of each label."""

    inputs: tuple[tuple[Label, ...], ...]
    output: tuple[Label, ...]
    sizes: dict[Label, int]


def arranged(arguments: "Sequence[Any]") -> tuple[str, list[Any]]:
    """Return equation and operands of a call in any of the forms that torch takes.

    einsum("ij,jk", a, b), einsum("ij,jk", [a, b]) and einsum(a, [0, 1], b, [1, 2], [0, 2]).
    Raises ValueError for a call without operands and a subscript outside 0 to 51.
    """
    if len(arguments) < 2:
        raise ValueError(f"einsum(): {_USAGE}")
    if isinstance(arguments[0], str):
        operands = list(arguments[1:])
        if len(operands) == 1 and isinstance(operands[0], list | tuple):
            operands = list(operands[0])
        return arguments[0], operands
    pairs = len(arguments) // 2 * 2
    equation = ",".join(_as_letters(each) for each in arguments[1:pairs:2])
    if pairs < len(arguments):
        equation += f"->{_as_letters(arguments[-1])}"
    return equation, list(arguments[0:pairs:2])


def _as_letters(subscripts: Any) -> str:
    if isinstance(subscripts, str) or not hasattr(subscripts, "__iter__"):
        raise TypeError(f"einsum(): {subscripts!r} is no list of subscripts; {_USAGE}")
    return "".join("..." if each is Ellipsis else _LETTERS[_number(each)] for each in subscripts)


def _number(subscript: Any) -> int:
    if not isinstance(subscript, int):
        raise TypeError(f"einsum(): a subscript is an int or an Ellipsis, not {subscript!r}")
    if not 0 <= subscript < len(_LETTERS):
        raise ValueError(f"einsum(): subscript {subscript} is not within [0, {len(_LETTERS)})")
    return subscript


def read(equation: str, shapes: "Sequence[Sequence[int]]") -> Contraction:
    """Return what an equation says of operands of these shapes.

    Raises RuntimeError, with the place and what was needed, where it does not fit them.
    """
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        message = (
            f"the equation {equation!r} has {len(terms)} operands, and {len(shapes)} were given"
        )
        raise RuntimeError(f"einsum(): {message}")
    sizes: dict[Label, int] = {}
    inputs = []
    for number, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        labels = _labelled(list(_symbols(term, f"operand {number}")), shape, number)
        _note_sizes(sizes, labels, shape, number)
        inputs.append(labels)
    hidden = tuple(sorted(label for label in sizes if isinstance(label, int)))
    if not arrow:
        return Contraction(tuple(inputs), (*hidden, *_alone(inputs)), sizes)
    output: list[Label] = []
    for symbol in _symbols(right, "the output"):
        output += hidden if symbol == "..." else [symbol]
    for label in output:
        if label not in sizes:
            message = f"output subscript {label} does not appear in any input operand"
            raise RuntimeError(f"einsum(): {message}")
        if output.count(label) > 1:
            message = f"output subscript {label} appears more than once in the output"
            raise RuntimeError(f"einsum(): {message}")
    return Contraction(tuple(inputs), tuple(output), sizes)


def _symbols(term: str, place: str) -> "Iterator[str]":
    """Yield the letters of a term, and "..." at most once."""
    position, seen = 0, False
    while position < len(term):
        if term.startswith("...", position):
            if seen:
                raise RuntimeError(f"einsum(): {place} has more than one ellipsis")
            seen = True
            yield "..."
            position += 3
            continue
        symbol = term[position]
        position += 1
        if symbol == ".":
            raise RuntimeError(f"einsum(): a '.' of {place} is not part of any ellipsis (...)")
        if symbol == " ":
            continue
        if symbol not in _LETTERS:
            message = f"invalid subscript {symbol!r} of {place}; subscripts must be in [a-zA-Z]"
            raise RuntimeError(f"einsum(): {message}")
        yield symbol


def _labelled(symbols: list[str], shape: "Sequence[int]", number: int) -> tuple[Label, ...]:
    """Return a label for each dimension of an operand."""
    hidden = len(shape) - (len(symbols) - ("..." in symbols))
    if hidden < 0 or (hidden and "..." not in symbols):
        message = f"operand {number} has {len(shape)} dimensions, and {len(symbols)} subscripts"
        raise RuntimeError(
            f"einsum(): {message}{'' if '...' in symbols else ' without an ellipsis'}"
        )
    labels: list[Label] = []
    for symbol in symbols:
        labels += range(-hidden, 0) if symbol == "..." else [symbol]
    return tuple(labels)


def _note_sizes(
    sizes: dict[Label, int], labels: tuple[Label, ...], shape: "Sequence[int]", number: int
) -> None:
    own: dict[Label, int] = {}
    for label, size in zip(labels, shape, strict=True):
        if own.setdefault(label, size) != size:
            message = f"subscript {label} is repeated for operand {number}, and its sizes differ"
            raise RuntimeError(f"einsum(): {message}: {own[label]} and {size}")
    for label, size in own.items():
        seen = sizes.get(label, 1)
        if size != seen and 1 not in (size, seen):
            name = "a dimension of the ellipsis" if isinstance(label, int) else f"subscript {label}"
            message = f"{name} has size {size} for operand {number}, and {seen} before"
            raise RuntimeError(f"einsum(): {message}: they do not broadcast")
        sizes[label] = size if seen == 1 else seen


def _alone(inputs: "Sequence[tuple[Label, ...]]") -> list[Label]:
    """Return the letters that appear once in all of the operands, capitals first."""
    letters = [label for labels in inputs for label in labels if isinstance(label, str)]
    return sorted(label for label in set(letters) if letters.count(label) == 1)
