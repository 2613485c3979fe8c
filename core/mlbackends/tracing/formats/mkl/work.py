"""How much a routine of BLAS or LAPACK computes, and how much memory it cannot but touch.

work.json has, by the routine's stem, its multiplications, its additions and its elements read and written, as
formulas of the sizes. Two more names are `long` and `short`, the larger and the smaller of m and n; for
a matrix that is symmetric or triangular, `order` is its order, and `other` the other size.

Multiplications and additions are counted apart, since on complex numbers they cost 6 and 2 real
operations. What depends on the values (eigenvalues, singular values, swaps of pivots) has no count.
Traffic is each matrix once, twice if it is changed in place, and half of it where it is symmetric or
triangular.

Source: LAPACK Working Note 41, appendix C (operation counts of the BLAS and LAPACK); for getrs, getri,
potrs and their kin its tables of the same note.
"""

from collections.abc import Mapping
from functools import cache
from types import CodeType

from mlbackends.base.tables import table

ELEMENT_BYTES = {"f16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16}


@cache
def formulas(what: str) -> dict[str, tuple[CodeType, ...]]:
    """Return the "operations" or the "elements" of work.json by stem; a formula is a Python expression."""
    return {
        stem: tuple(compile(text, "work.json", "eval") for text in texts)
        for stems, *texts in table("tracing/formats/mkl/work")[what]
        for stem in stems.split()
    }


def work(
    stem: str, dtype: str, sizes: Mapping[str, int], words: Mapping[str, str]
) -> tuple[float | None, float | None]:
    """Return operations and bytes of one call; None for what is not known.

    words: the arguments that are characters, such as side.
    """
    left = words.get("side", "L").upper() == "L"
    names: dict[str, int] = {"left": left, **sizes}
    if "m" in sizes and "n" in sizes:
        m, n = sizes["m"], sizes["n"]
        order, other = (m, n) if left else (n, m)
        names |= {"order": order, "other": other, "long": max(m, n), "short": min(m, n)}

    def value(formula: CodeType) -> float:
        number: float = eval(formula, {"__builtins__": {}}, names)  # noqa: S307  text of our own file
        return number

    flops = elements = None
    weights = (6, 2) if dtype in {"c64", "c128"} else (1, 1)
    try:
        if counts := formulas("operations").get(stem):
            products, sums = map(value, counts)
            flops = float(max(round(weights[0] * products + weights[1] * sums), 0))
        for formula in formulas("elements").get(stem, ()):
            elements = value(formula)
    except NameError:  # a size that is behind an address, as in gemm_batch
        return None, None
    size = ELEMENT_BYTES.get(dtype)
    return flops, None if elements is None or size is None else float(elements * size)
