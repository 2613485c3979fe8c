"""What shapes and types two operands of a product must have."""

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def product_shape(a: "Sequence[int]", b: "Sequence[int]") -> tuple[int, ...]:
    """Return the shape of `a @ b`.

    Shapes: a (..., m, k) or (k,), b (..., k, n) or (k,); batches broadcast. Returns (..., m, n),
    without m or n where that operand is a vector. Raises RuntimeError where they do not fit.
    """
    if not a or not b:
        raise RuntimeError(f"both must have at least one dimension: {tuple(a)} @ {tuple(b)}")
    rows, columns = tuple(a[-2:-1]), tuple(b[-1:]) if len(b) > 1 else ()
    depth = b[-2] if len(b) > 1 else b[0]
    if a[-1] != depth:
        message = f"the last dimension of a is {a[-1]}, and b needs {depth}"
        raise RuntimeError(f"{tuple(a)} @ {tuple(b)}: {message}")
    return (*broadcast(a[:-2], b[:-2]), *rows, *columns)


def broadcast(a: "Sequence[int]", b: "Sequence[int]") -> tuple[int, ...]:
    """Return the shape in which both repeat along their dimensions of size 1."""
    sizes = []
    for of_a, of_b in itertools.zip_longest(reversed(a), reversed(b), fillvalue=1):
        if of_a != of_b and 1 not in (of_a, of_b):
            raise RuntimeError(f"batches {tuple(a)} and {tuple(b)} do not broadcast")
        sizes.append(of_b if of_a == 1 else of_a)
    return tuple(reversed(sizes))
