"""The Triton kernel on a real device, against float64."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

LIMITS = {"float16": 8e-2, "float32": 2e-4}


@pytest.fixture(autouse=True)
def _device() -> None:
    pytest.importorskip("triton")
    from mlbackends.python_native import dsls

    if reason := dsls.unavailable_reason("triton"):
        pytest.skip(reason)


@pytest.mark.parametrize("dtype", LIMITS)
def test_a_product_on_a_device_agrees_with_float64(dtype: str) -> None:
    import numpy as np

    from mlbackends_kernels.cuda.device_array import to_device
    from mlbackends_kernels.operations import bmm

    rng = np.random.default_rng(1)
    left = rng.standard_normal((5, 300, 70)).astype(dtype)
    right = rng.standard_normal((5, 70, 200)).astype(dtype)
    found = bmm.by_triton(to_device(left), to_device(right)).numpy()
    expected = left.astype(np.float64) @ right.astype(np.float64)
    assert np.abs(found - expected).max() < LIMITS[dtype]
