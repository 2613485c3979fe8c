"""How much a routine of BLAS or LAPACK computes, and how much memory it cannot but touch.

Multiplications and additions are counted apart, since on complex numbers they cost 6 and 2 real
operations. What depends on the values (eigenvalues, singular values, swaps of pivots) has no count.
Traffic is each matrix once, twice if it is changed in place, and half of it where it is symmetric or
triangular.

Source: LAPACK Working Note 41, appendix C (operation counts of the BLAS and LAPACK); for getrs, getri,
potrs and their kin its tables of the same note.
"""

from collections.abc import Callable, Mapping
from typing import Any

ELEMENT_BYTES = {"f16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16}
_PRODUCTS = "gemm gemm3m gemm_compute gemm_bf16bf16f32 gemm_f16f16f32 gemm_s8u8s32 gemm_s16s16s32"


def work(
    stem: str, dtype: str, sizes: Mapping[str, int], words: Mapping[str, str]
) -> tuple[float | None, float | None]:
    """Return operations and bytes of one call; None for what is not known.

    words: the arguments that are characters, such as side.
    """
    left = words.get("side", "L").upper() == "L"
    # The order of the matrix that is symmetric or triangular, and the other size.
    order, other = ("m", "n") if left else ("n", "m")
    named = {"left": left, "order": sizes.get(order), "other": sizes.get(other), **sizes}
    flops = elements = None
    try:
        if stem in OPERATIONS:
            products, sums = OPERATIONS[stem](**named)
            weights = (6, 2) if dtype in {"c64", "c128"} else (1, 1)
            flops = float(max(round(weights[0] * products + weights[1] * sums), 0))
        if stem in ELEMENTS:
            elements = ELEMENTS[stem](**named)
    except TypeError:  # a size that is behind an address, as in gemm_batch
        return None, None
    size = ELEMENT_BYTES.get(dtype)
    return flops, None if elements is None or size is None else float(elements * size)


def _by_stem(rows: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {stem: formula for stems, formula in rows for stem in stems.split()}


def _getrf(*, m: int, n: int, **_: Any) -> tuple[float, float]:
    m, n = max(m, n), min(m, n)
    shared = m * n * n / 2 - n**3 / 6
    return shared + m * n / 2 - n * n / 2 + 2 * n / 3, shared - m * n / 2 + n / 6


def _getrs(*, n: int, nrhs: int, **_: Any) -> tuple[float, float]:
    return nrhs * n * n, nrhs * n * (n - 1)


def _potrf(*, n: int, **_: Any) -> tuple[float, float]:
    return n**3 / 6 + n * n / 2 + n / 3, n**3 / 6 - n / 6


def _potrs(*, n: int, nrhs: int, **_: Any) -> tuple[float, float]:
    return nrhs * n * (n + 1), nrhs * n * (n - 1)


def _geqrf(*, m: int, n: int, **_: Any) -> tuple[float, float]:
    if m >= n:
        shared = m * n * n - n**3 / 3
        return shared + m * n + n * n / 2 + 23 * n / 6, shared + n * n / 2 + 5 * n / 6
    shared = n * m * m - m**3 / 3
    return shared + 2 * n * m - m * m / 2 + 23 * m / 6, shared + n * m - m * m / 2 + 5 * m / 6


def _orgqr(*, m: int, n: int, k: int, **_: Any) -> tuple[float, float]:
    shared = 2 * m * n * k - (m + n) * k * k + 2 * k**3 / 3
    return shared + 2 * n * k - k * k - 5 * k / 3, shared + n * k - m * k + k / 3


def _ormqr(*, m: int, n: int, k: int, left: bool, **_: Any) -> tuple[float, float]:
    if left:
        shared = 2 * n * m * k - n * k * k
        return shared + 2 * n * k, shared + n * k
    shared = 2 * n * m * k - m * k * k
    return shared + m * k + n * k - k * k / 2 + k / 2, shared + m * k


def _driver(
    factor: Callable[..., tuple[float, float]], solve: Callable[..., tuple[float, float]]
) -> Callable[..., tuple[float, float]]:
    """Return the counts of a factorization of a square and what solves by it, one after the other."""

    def total(*, n: int, nrhs: int, **_: Any) -> tuple[float, float]:
        factored, solved = factor(m=n, n=n), solve(n=n, nrhs=nrhs)
        return factored[0] + solved[0], factored[1] + solved[1]

    return total


#: Multiplications and additions of a call, by the routine's stem.
OPERATIONS: dict[str, Callable[..., tuple[float, float]]] = _by_stem((
    ("axpy dot dotc dotu dsdot sdsdot nrm2", lambda *, n, **_: (n, n)),
    ("axpby", lambda *, n, **_: (2 * n, n)),
    ("scal", lambda *, n, **_: (n, 0)),
    ("asum", lambda *, n, **_: (0, n)),
    ("rot", lambda *, n, **_: (4 * n, 2 * n)),
    ("copy swap omatcopy imatcopy omatcopy2 lacpy", lambda **_: (0, 0)),
    ("gemv ger gerc geru", lambda *, m, n, **_: (m * n, m * n)),
    ("symv hemv spmv hpmv", lambda *, n, **_: (n * n, n * n)),
    ("trmv trsv tpmv tpsv", lambda *, n, **_: (n * (n + 1) / 2, n * (n - 1) / 2)),
    ("syr her spr hpr", lambda *, n, **_: (n * (n + 1) / 2 + n, n * (n + 1) / 2)),
    ("syr2 her2 spr2 hpr2", lambda *, n, **_: (n * (n + 1) + 2 * n, n * (n + 1))),
    (_PRODUCTS, lambda *, m, n, k, **_: (m * n * k, m * n * k)),
    ("gemm_batch_strided", lambda *, m, n, k, batch_size, **_: (m * n * k * batch_size,) * 2),
    ("symm hemm", lambda *, order, other, **_: (order * order * other,) * 2),
    (
        "trmm trsm",
        lambda *, order, other, **_: (
            other * order * (order + 1) / 2,
            other * order * (order - 1) / 2,
        ),
    ),
    ("syrk herk gemmt", lambda *, n, k, **_: (k * n * (n + 1) / 2,) * 2),
    ("syr2k her2k", lambda *, n, k, **_: (k * n * n, k * n * n + n)),
    ("getrf getrf2 getf2", _getrf),
    ("getrs", _getrs),
    (
        "getri",
        lambda *, n, **_: (
            2 * n**3 / 3 + n * n / 2 + 5 * n / 6,
            2 * n**3 / 3 - 3 * n * n / 2 + 5 * n / 6,
        ),
    ),
    ("gesv", _driver(_getrf, _getrs)),
    ("potrf potrf2 pptrf", _potrf),
    ("potrs pptrs", _potrs),
    (
        "potri",
        lambda *, n, **_: (n**3 / 3 + n * n + 2 * n / 3, n**3 / 3 - n * n / 2 + n / 6),
    ),
    ("posv ppsv", _driver(_potrf, _potrs)),
    ("sytrf hetrf", lambda *, n, **_: (n**3 / 6 + n * n / 2 + 10 * n / 3, n**3 / 6 - n / 6)),
    (
        "trtri",
        lambda *, n, **_: (n**3 / 6 + n * n / 2 + n / 3, n**3 / 6 - n * n / 2 + n / 3),
    ),
    ("trtrs", lambda *, n, nrhs, **_: (nrhs * n * (n + 1) / 2, nrhs * n * (n - 1) / 2)),
    ("geqrf geqr2", _geqrf),
    ("orgqr ungqr", _orgqr),
    ("ormqr unmqr", _ormqr),
))  # fmt: skip

#: Elements read and written by a call, by the routine's stem.
ELEMENTS: dict[str, Callable[..., float]] = _by_stem((
    ("dot dotc dotu dsdot sdsdot copy scal", lambda *, n, **_: 2 * n),
    ("nrm2 asum amax amin", lambda *, n, **_: n),
    ("axpy axpby", lambda *, n, **_: 3 * n),
    ("swap rot", lambda *, n, **_: 4 * n),
    ("gemv", lambda *, m, n, **_: m * n + m + n),
    ("ger gerc geru", lambda *, m, n, **_: 2 * m * n + m + n),
    ("symv hemv spmv hpmv trmv trsv tpmv tpsv", lambda *, n, **_: n * (n + 1) / 2 + 2 * n),
    ("syr her spr hpr", lambda *, n, **_: n * (n + 1) + n),
    ("syr2 her2 spr2 hpr2", lambda *, n, **_: n * (n + 1) + 2 * n),
    ("gemm gemm3m", lambda *, m, n, k, **_: m * k + k * n + m * n),
    (
        "gemm_batch_strided",
        lambda *, m, n, k, batch_size, **_: batch_size * (m * k + k * n + m * n),
    ),
    (
        "symm hemm trmm trsm",
        lambda *, order, other, **_: order * (order + 1) / 2 + 2 * order * other,
    ),
    ("syrk herk", lambda *, n, k, **_: n * k + n * (n + 1) / 2),
    ("syr2k her2k", lambda *, n, k, **_: 2 * n * k + n * (n + 1) / 2),
    ("omatcopy imatcopy omatcopy2", lambda *, rows, cols, **_: 2 * rows * cols),
    ("omatadd", lambda *, rows, cols, **_: 3 * rows * cols),
    ("lacpy getrf getrf2 getf2 geqrf", lambda *, m, n, **_: 2 * m * n),
    ("lange laset", lambda *, m, n, **_: m * n),
    ("potrf potrf2 pptrf potri trtri", lambda *, n, **_: n * (n + 1)),
    ("getri", lambda *, n, **_: 2 * n * n),
    ("getrs", lambda *, n, nrhs, **_: n * n + 2 * n * nrhs),
    ("potrs pptrs trtrs", lambda *, n, nrhs, **_: n * (n + 1) / 2 + 2 * n * nrhs),
))  # fmt: skip
