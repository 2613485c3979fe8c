"""How much a routine of BLAS or LAPACK computes, and how much memory it cannot but touch.

Multiplications and additions are counted apart, since on complex numbers they cost 6 and 2 real
operations. What depends on the values (eigenvalues, singular values, pivots' swaps) has no count here.
Traffic is each matrix once, twice if it is changed in place, and half of it where it is symmetric or
triangular.

Source: LAPACK Working Note 41, appendix C (operation counts of the BLAS and LAPACK); for getrs, getri,
potrs and their kin its tables of the same note.
"""

from collections.abc import Callable, Mapping

Sizes = Mapping[str, int]
Counts = tuple[float, float]
_TYPES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128", "h": "f16", "v": ""}
ELEMENT_BYTES = {"f16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16}
_MIXED = {
    "gemm_bf16bf16f32": "bf16:bf16:f32",
    "gemm_f16f16f32": "f16:f16:f32",
    "gemm_s8u8s32": "s8:u8:s32",
    "gemm_s16s16s32": "s16:s16:s32",
    "sdsdot": "f32",
    "dsdot": "f32",
}
_PREFIXES = {"sc": "c64", "dz": "c128", "cs": "c64", "zd": "c128", "is": "f32", "id": "f64"}
_PREFIXES |= {"ic": "c64", "iz": "c128", "vs": "f32", "vd": "f64", "vi": "s32"}


def element_type(stem: str, prefix: str) -> str:
    """Return the type of a routine's elements: c64 is a pair of f32; "" where it has none."""
    if stem in _MIXED:
        return _MIXED[stem]
    prefix = prefix.removeprefix("mkl_")
    return _PREFIXES.get(prefix) or _TYPES.get(prefix, "")


def work(
    stem: str, dtype: str, sizes: Sizes, words: Mapping[str, str]
) -> tuple[float | None, float | None]:
    """Return operations and bytes of one call; None for what is not known.

    words: the arguments that are characters, such as side.
    """
    left = words.get("side", "L").upper() == "L"
    full = {**sizes, "left": int(left)}
    counted = _WORK.get(stem)
    touched = _TRAFFIC.get(stem)
    flops = elements = None
    try:
        if counted is not None:
            products, sums = counted(full)
            complex_ = dtype in {"c64", "c128"}
            flops = float(max(round(6 * products + 2 * sums if complex_ else products + sums), 0))
        if touched is not None:
            elements = touched(full)
    except KeyError:  # a size that is behind an address, as in gemm_batch
        return None, None
    size = ELEMENT_BYTES.get(dtype)
    return flops, None if elements is None or size is None else float(elements * size)


def _gemm(s: Sizes) -> Counts:
    amount = float(s["m"] * s["n"] * s["k"])
    return amount, amount


def _strided(s: Sizes) -> Counts:
    amount = float(s["m"] * s["n"] * s["k"] * s["batch_size"])
    return amount, amount


def _side(s: Sizes) -> tuple[int, int]:
    """Return the order of the matrix that is symmetric or triangular, and the other size."""
    return (s["m"], s["n"]) if s["left"] else (s["n"], s["m"])


def _symm(s: Sizes) -> Counts:
    order, other = _side(s)
    return float(order * order * other), float(order * order * other)


def _trsm(s: Sizes) -> Counts:
    order, other = _side(s)
    return other * order * (order + 1) / 2, other * order * (order - 1) / 2


def _syrk(s: Sizes) -> Counts:
    amount = s["k"] * s["n"] * (s["n"] + 1) / 2
    return amount, amount


def _syr2k(s: Sizes) -> Counts:
    amount = float(s["k"] * s["n"] * s["n"])
    return amount, amount + s["n"]


def _trmv(s: Sizes) -> Counts:
    n = s["n"]
    return n * (n + 1) / 2, n * (n - 1) / 2


def _getrf(s: Sizes) -> Counts:
    m, n = max(s["m"], s["n"]), min(s["m"], s["n"])
    shared = m * n * n / 2 - n**3 / 6
    return shared + m * n / 2 - n * n / 2 + 2 * n / 3, shared - m * n / 2 + n / 6


def _getrs(s: Sizes) -> Counts:
    n, right = s["n"], s["nrhs"]
    return float(right * n * n), float(right * n * (n - 1))


def _getri(s: Sizes) -> Counts:
    n = s["n"]
    return 2 * n**3 / 3 + n * n / 2 + 5 * n / 6, 2 * n**3 / 3 - 3 * n * n / 2 + 5 * n / 6


def _potrf(s: Sizes) -> Counts:
    n = s["n"]
    return n**3 / 6 + n * n / 2 + n / 3, n**3 / 6 - n / 6


def _potrs(s: Sizes) -> Counts:
    n, right = s["n"], s["nrhs"]
    return float(right * n * (n + 1)), float(right * n * (n - 1))


def _potri(s: Sizes) -> Counts:
    n = s["n"]
    return n**3 / 3 + n * n + 2 * n / 3, n**3 / 3 - n * n / 2 + n / 6


def _sytrf(s: Sizes) -> Counts:
    n = s["n"]
    return n**3 / 6 + n * n / 2 + 10 * n / 3, n**3 / 6 - n / 6


def _trtri(s: Sizes) -> Counts:
    n = s["n"]
    return n**3 / 6 + n * n / 2 + n / 3, n**3 / 6 - n * n / 2 + n / 3


def _trtrs(s: Sizes) -> Counts:
    n, right = s["n"], s["nrhs"]
    return right * n * (n + 1) / 2, right * n * (n - 1) / 2


def _geqrf(s: Sizes) -> Counts:
    m, n = s["m"], s["n"]
    if m >= n:
        shared = m * n * n - n**3 / 3
        return shared + m * n + n * n / 2 + 23 * n / 6, shared + n * n / 2 + 5 * n / 6
    shared = n * m * m - m**3 / 3
    return shared + 2 * n * m - m * m / 2 + 23 * m / 6, shared + n * m - m * m / 2 + 5 * m / 6


def _orgqr(s: Sizes) -> Counts:
    m, n, k = s["m"], s["n"], s["k"]
    shared = 2 * m * n * k - (m + n) * k * k + 2 * k**3 / 3
    return shared + 2 * n * k - k * k - 5 * k / 3, shared + n * k - m * k + k / 3


def _ormqr(s: Sizes) -> Counts:
    m, n, k = s["m"], s["n"], s["k"]
    if s["left"]:
        shared = 2 * n * m * k - n * k * k
        return float(shared + 2 * n * k), float(shared + n * k)
    shared = 2 * n * m * k - m * k * k
    return shared + m * k + n * k - k * k / 2 + k / 2, float(shared + m * k)


def _together(*parts: Callable[[Sizes], Counts]) -> Callable[[Sizes], Counts]:
    """Return the counts of a driver, which is its parts one after the other."""

    def total(s: Sizes) -> Counts:
        full = {**s, "m": s["n"]}
        counts = [part(full) for part in parts]
        return sum(each[0] for each in counts), sum(each[1] for each in counts)

    return total


def _vector(products: int, sums: int) -> Callable[[Sizes], Counts]:
    return lambda s: (float(products * s["n"]), float(sums * s["n"]))


def _matrix_vector(s: Sizes) -> Counts:
    return float(s["m"] * s["n"]), float(s["m"] * s["n"])


def _square_vector(s: Sizes) -> Counts:
    return float(s["n"] ** 2), float(s["n"] ** 2)


def _rank_one(s: Sizes) -> Counts:
    amount = s["n"] * (s["n"] + 1) / 2
    return amount + s["n"], amount


def _rank_two(s: Sizes) -> Counts:
    amount = float(s["n"] * (s["n"] + 1))
    return amount + 2 * s["n"], amount


def _none(s: Sizes) -> Counts:
    del s
    return 0.0, 0.0


_WORK: dict[str, Callable[[Sizes], Counts]] = {
    "axpy": _vector(1, 1),
    "axpby": _vector(2, 1),
    "scal": _vector(1, 0),
    "asum": _vector(0, 1),
    **dict.fromkeys(("dot", "dotc", "dotu", "dsdot", "sdsdot", "nrm2"), _vector(1, 1)),
    "rot": _vector(4, 2),
    **dict.fromkeys(("copy", "swap", "omatcopy", "imatcopy", "omatcopy2", "lacpy"), _none),
    **dict.fromkeys(("gemv", "ger", "gerc", "geru"), _matrix_vector),
    **dict.fromkeys(("symv", "hemv", "spmv", "hpmv"), _square_vector),
    **dict.fromkeys(("trmv", "trsv", "tpmv", "tpsv"), _trmv),
    **dict.fromkeys(("syr", "her", "spr", "hpr"), _rank_one),
    **dict.fromkeys(("syr2", "her2", "spr2", "hpr2"), _rank_two),
    **dict.fromkeys(("gemm", "gemm3m", "gemm_compute"), _gemm),
    **dict.fromkeys(("gemm_bf16bf16f32", "gemm_f16f16f32"), _gemm),
    **dict.fromkeys(("gemm_s8u8s32", "gemm_s16s16s32"), _gemm),
    "gemm_batch_strided": _strided,
    **dict.fromkeys(("symm", "hemm"), _symm),
    **dict.fromkeys(("trmm", "trsm"), _trsm),
    **dict.fromkeys(("syrk", "herk", "gemmt"), _syrk),
    **dict.fromkeys(("syr2k", "her2k"), _syr2k),
    **dict.fromkeys(("getrf", "getrf2", "getf2"), _getrf),
    "getrs": _getrs,
    "getri": _getri,
    "gesv": _together(_getrf, _getrs),
    **dict.fromkeys(("potrf", "potrf2", "pptrf"), _potrf),
    **dict.fromkeys(("potrs", "pptrs"), _potrs),
    "potri": _potri,
    **dict.fromkeys(("posv", "ppsv"), _together(_potrf, _potrs)),
    **dict.fromkeys(("sytrf", "hetrf"), _sytrf),
    "trtri": _trtri,
    "trtrs": _trtrs,
    **dict.fromkeys(("geqrf", "geqr2"), _geqrf),
    **dict.fromkeys(("orgqr", "ungqr"), _orgqr),
    **dict.fromkeys(("ormqr", "unmqr"), _ormqr),
}
"""Multiplications and additions of a call, by the routine's stem."""


def _product_elements(s: Sizes) -> float:
    return float(s["m"] * s["k"] + s["k"] * s["n"] + s["m"] * s["n"])


def _side_elements(s: Sizes) -> float:
    order, other = _side(s)
    return order * (order + 1) / 2 + 2 * order * other


def _half(s: Sizes) -> float:
    return s["n"] * (s["n"] + 1) / 2


_TRAFFIC: dict[str, Callable[[Sizes], float]] = {
    **dict.fromkeys(("dot", "dotc", "dotu", "dsdot", "sdsdot", "copy"), lambda s: 2.0 * s["n"]),
    **dict.fromkeys(("scal",), lambda s: 2.0 * s["n"]),
    **dict.fromkeys(("nrm2", "asum", "amax", "amin"), lambda s: float(s["n"])),
    **dict.fromkeys(("axpy", "axpby"), lambda s: 3.0 * s["n"]),
    **dict.fromkeys(("swap", "rot"), lambda s: 4.0 * s["n"]),
    "gemv": lambda s: float(s["m"] * s["n"] + s["m"] + s["n"]),
    **dict.fromkeys(
        ("ger", "gerc", "geru"), lambda s: float(2 * s["m"] * s["n"] + s["m"] + s["n"])
    ),
    **dict.fromkeys(("symv", "hemv", "spmv", "hpmv"), lambda s: _half(s) + 2 * s["n"]),
    **dict.fromkeys(("trmv", "trsv", "tpmv", "tpsv"), lambda s: _half(s) + 2 * s["n"]),
    **dict.fromkeys(("syr", "her", "spr", "hpr"), lambda s: 2 * _half(s) + s["n"]),
    **dict.fromkeys(("syr2", "her2", "spr2", "hpr2"), lambda s: 2 * _half(s) + 2 * s["n"]),
    **dict.fromkeys(("gemm", "gemm3m"), _product_elements),
    "gemm_batch_strided": lambda s: s["batch_size"] * _product_elements(s),
    **dict.fromkeys(("symm", "hemm", "trmm", "trsm"), _side_elements),
    **dict.fromkeys(("syrk", "herk"), lambda s: s["n"] * s["k"] + _half(s)),
    **dict.fromkeys(("syr2k", "her2k"), lambda s: 2 * s["n"] * s["k"] + _half(s)),
    **dict.fromkeys(("omatcopy", "imatcopy", "omatcopy2"), lambda s: 2.0 * s["rows"] * s["cols"]),
    "omatadd": lambda s: 3.0 * s["rows"] * s["cols"],
    "lacpy": lambda s: 2.0 * s["m"] * s["n"],
    **dict.fromkeys(("lange", "laset"), lambda s: float(s["m"] * s["n"])),
    **dict.fromkeys(("getrf", "getrf2", "getf2", "geqrf"), lambda s: 2.0 * s["m"] * s["n"]),
    **dict.fromkeys(("potrf", "potrf2", "pptrf", "potri", "trtri"), lambda s: 2 * _half(s)),
    "getri": lambda s: 2.0 * s["n"] ** 2,
    "getrs": lambda s: float(s["n"] ** 2 + 2 * s["n"] * s["nrhs"]),
    **dict.fromkeys(("potrs", "pptrs", "trtrs"), lambda s: _half(s) + 2 * s["n"] * s["nrhs"]),
}
"""Elements read and written by a call, by the routine's stem."""
