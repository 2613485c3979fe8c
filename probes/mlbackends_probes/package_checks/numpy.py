"""Multiply two matrices, and list which instruction sets NumPy uses."""

import importlib
from typing import Any

import numpy as np

COMPUTES = True


def check(child: Any) -> None:
    left = np.arange(6.0).reshape(2, 3)
    got = (left @ left.T).tolist()
    child.judge(got == [[5.0, 14.0], [14.0, 50.0]], f"a product of matrices gave {got}")
    try:
        core = importlib.import_module("numpy._core._multiarray_umath")
    except ImportError:
        core = importlib.import_module("numpy.core._multiarray_umath")
    child.facts["simd_baseline"] = list(core.__cpu_baseline__)
    for feature in core.__cpu_dispatch__:
        fact = "simd_found" if core.__cpu_features__[feature] else "simd_not_found"
        child.facts.setdefault(fact, []).append(feature)
