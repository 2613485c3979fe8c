"""SciPy: its own BLAS, special functions and FFT."""

import os
import runpy
from functools import partial
from typing import Any

import scipy
import scipy.fft
import scipy.special
from scipy.linalg import blas

VERSION = scipy.__version__
TYPES = ("float64", "float32", "complex128", "complex64")
laid_out = runpy.run_path(os.path.join(os.path.dirname(__file__), "numpy.py"))["laid_out"]


def _gemm(a: Any, b: Any) -> Any:
    return blas.get_blas_funcs("gemm", (a, b))(1, a, b)


OPERATIONS = {
    "gemm": _gemm,
    "softmax": partial(scipy.special.softmax, axis=-1),
    "erf": scipy.special.erf,
    "fft": scipy.fft.fft,
}
