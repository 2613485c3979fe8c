"""A few routines of MKL: products, a dot product, two factorizations.

Source: oneMKL developer reference, cblas_?gemm, cblas_ddot, ?getrf, ?potrf.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_ROWS, _PLAIN = 101, 111
_TIMES = 5


def main(path: str) -> None:
    """Run all of them. Raises OSError where the file cannot be loaded."""
    mkl = ctypes.CDLL(path)
    reals: tuple[tuple[str, Any], ...] = (
        ("cblas_sgemm", ctypes.c_float),
        ("cblas_dgemm", ctypes.c_double),
    )
    for size in (64, 256, 512):
        for function, real in reals:
            left, right, result = ((real * size**2)() for _ in range(3))
            for _ in range(_TIMES):
                getattr(mkl, function)(
                    *(_ROWS, _PLAIN, _PLAIN, size, size, size),
                    *(real(1.0), left, size, right, size, real(0.0), result, size),
                )
    length = 100_000
    numbers = (ctypes.c_double * length)()
    mkl.cblas_ddot.restype = ctypes.c_double
    for _ in range(_TIMES):
        mkl.cblas_ddot(length, numbers, 1, numbers, 1)
    size = 256
    order, info = ctypes.byref(ctypes.c_int(size)), ctypes.byref(ctypes.c_int())
    pivots = (ctypes.c_int * size)()
    for routine in ("dgetrf_", "dpotrf_"):
        for _ in range(_TIMES if hasattr(mkl, routine) else 0):  # on Windows they have other names
            matrix = (ctypes.c_double * size**2)()
            matrix[:: size + 1] = [1.0] * size
            if routine == "dgetrf_":
                mkl.dgetrf_(order, order, matrix, order, pivots, info)
            else:
                mkl.dpotrf_(b"L", order, matrix, order, info)


if __name__ == "__main__":
    main(sys.argv[1])
