"""A few routines of MKL: products, a dot product, two factorizations.

Source: oneMKL developer reference, cblas_?gemm, cblas_ddot, ?getrf, ?potrf.
"""

import ctypes

_ROWS, _PLAIN = 101, 111
_TIMES = 5


def main(path: str) -> None:
    """Run all of them. Raises OSError where the file cannot be loaded."""
    mkl = ctypes.CDLL(path)
    for size in (64, 256, 512):
        for function, real in (("cblas_sgemm", ctypes.c_float), ("cblas_dgemm", ctypes.c_double)):
            _product(mkl, function, real, size)
    length = 100_000
    numbers = (ctypes.c_double * length)()
    mkl.cblas_ddot.restype = ctypes.c_double
    for _ in range(_TIMES):
        mkl.cblas_ddot(length, numbers, 1, numbers, 1)
    for routine in ("dgetrf_", "dpotrf_"):
        if hasattr(mkl, routine):  # those of Fortran have other names on Windows
            _factorization(mkl, routine, 256)


def _product(
    mkl: ctypes.CDLL, function: str, real: "type[ctypes.c_float | ctypes.c_double]", size: int
) -> None:
    left, right, result = ((real * size**2)() for _ in range(3))
    for _ in range(_TIMES):
        getattr(mkl, function)(
            *(_ROWS, _PLAIN, _PLAIN, size, size, size),
            *(real(1.0), left, size, right, size, real(0.0), result, size),
        )


def _factorization(mkl: ctypes.CDLL, routine: str, size: int) -> None:
    order, info = ctypes.c_int(size), ctypes.c_int()
    for _ in range(_TIMES):
        matrix = (ctypes.c_double * size**2)()
        for place in range(size):
            matrix[place * (size + 1)] = 1.0
        at = ctypes.byref(order)
        if routine == "dgetrf_":
            pivots = (ctypes.c_int * size)()
            mkl.dgetrf_(at, at, matrix, at, pivots, ctypes.byref(info))
        else:
            mkl.dpotrf_(b"L", at, matrix, at, ctypes.byref(info))
