"""The Triton kernels on a real device, against float64, and beside each other's switch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import numpy as np

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

LIMITS = {"float16": 4e-3, "float32": 1e-5}


@pytest.fixture(autouse=True)
def _device() -> None:
    pytest.importorskip("triton")
    from mlbackends_kernels.flash_triton import FlashTriton

    if reasons := FlashTriton().missing_parts():
        pytest.skip(reasons[0].message)


def attended(query: Any, key: Any, value: Any, shift: int | None) -> np.ndarray[Any, Any]:
    """Return attention in float64; shift: row i sees key j if j <= i + shift, None for all."""
    import numpy as np

    query, key, value = (each.astype(np.float64) for each in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    key, value = (np.repeat(each, groups, axis=1) for each in (key, value))
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    if shift is not None:
        seen = np.tri(scores.shape[-2], scores.shape[-1], shift, dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("width", [40, 64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_on_a_device_agrees_with_float64(dtype: str, width: int, causal: bool) -> None:
    import numpy as np

    from mlbackends.model.problem import AttentionProblem
    from mlbackends.sdpa.describe import describe, device_of
    from mlbackends_kernels.cuda.device_array import to_device
    from mlbackends_kernels.flash_triton import FlashTriton

    rng = np.random.default_rng(1)
    rows = rng.standard_normal((2, 6, 333, width)).astype(dtype)
    keys, values = (rng.standard_normal((2, 2, 500, width)).astype(dtype) for _ in range(2))
    arrays = [to_device(each) for each in (rows, keys, values)]
    query, key, value = (describe(each) for each in arrays)
    problem = AttentionProblem(
        query=query, key=key, value=value, device=device_of(arrays[0], query),
        enable_gqa=True, is_causal=causal, lower_right=causal,
    )  # fmt: skip
    found = FlashTriton().run(problem, *arrays).numpy()
    expected = attended(rows, keys, values, 500 - 333 if causal else None)
    assert np.abs(found - expected).max() < LIMITS[dtype]


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
    assert np.abs(found - expected).max() < 20 * LIMITS[dtype]
