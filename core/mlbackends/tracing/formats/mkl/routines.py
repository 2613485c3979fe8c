"""BLAS, LAPACK and MKL's own routines: their arguments by name, in the order in which MKL prints them.

MKL prints Fortran's order and names without prefix, whichever interface was called: `cblas_sgemm` of
row-major matrices is SGEMM with the two swapped. Integers and characters are printed as values, the
rest as addresses. routines.json has the type of elements by the letters of the precision, or by routine,
and for each routine its name without these letters, the letters, and the arguments.

Source: the reference BLAS and LAPACK 3.12 (netlib.org), oneMKL Developer Reference for its extensions.
"""

from functools import cache, lru_cache

from mlbackends.base.tables import table
from mlbackends.tracing.numbers import rejoined


@cache
def _routines() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Return stem, letters and argument names by the routine's full name in lower case."""
    return {
        prefix + stem: (stem, prefix, tuple(arguments.split()))
        for stem, prefixes, arguments in table("tracing/formats/mkl/routines")["routines"]
        for prefix in prefixes.replace("-", "").split(",")
    }


def stems() -> frozenset[str]:
    """Return the names of all routines, without the letters of their precision."""
    return frozenset(stem for stem, _, _ in _routines().values())


def routine(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Return a routine's stem, the letters of its precision and the names of its arguments.

    name: as printed, or with what interfaces add, such as cblas_. ("", "", ()) for an unknown routine.
    """
    name = name.lower().rstrip("_").removeprefix("cblas_")
    if name.startswith("lapacke_"):
        name = name[8:].removesuffix("_work")
    return _routines().get(name, ("", "", ()))


def element_type(stem: str, prefix: str) -> str:
    """Return the type of a routine's elements: c64 is a pair of f32; "" if unknown."""
    found: str = table("tracing/formats/mkl/routines")["types_of_routines"].get(stem) or table(
        "tracing/formats/mkl/routines"
    )["types"].get(prefix.removeprefix("mkl_"), "")
    return found


@lru_cache(maxsize=20_000)
def split_arguments(text: str, count: int) -> list[str]:
    """Split at commas, but not inside braces; put decimal commas back where that makes `count` of them.

    count: how many there should be, 0 if not known.
    """
    if ", " in text:
        return text.split(", ")
    values: list[str] = []
    depth = 0
    for part in text.split(",") if text else ():
        if depth:
            values[-1] += "," + part
        else:
            values.append(part)
        depth += part.count("{") - part.count("}")
    if count and len(values) > count:

        def have_six_decimals(values: list[str]) -> bool:
            """Return whether joined values have one comma and the six decimals of MKL's reals."""
            joined = [value.split(",") for value in values if "," in value and "{" not in value]
            return all(len(parts) == 2 and len(parts[1]) == 6 for parts in joined)

        return rejoined(values, count, have_six_decimals) or values
    return values
