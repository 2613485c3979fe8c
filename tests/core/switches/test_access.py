"""How each switch is set and read, told in Python that works."""

from __future__ import annotations

import importlib

import pytest

import mlbackends


@pytest.mark.parametrize(
    ("module", "name", "way"),
    [
        ("mlbackends.nnpack", "enabled", "use mlbackends.nnpack.set_flags() or mlbackends.nnpack.flags()"),
        ("mlbackends.mkl", "num_threads", "MKL_NUM_THREADS is read when a library is loaded"),
        ("mlbackends.openmp", "num_threads", "`backends run --set openmp.num_threads=VALUE`"),
        ("mlbackends.cuda", "flash_sdp", "use mlbackends.cuda.enable_flash_sdp()"),
        ("mlbackends.cuda", "sdp_priority_order", "sdpa_kernel([...], set_priority=True)"),
        ("mlbackends", "float32_matmul_precision", "mlbackends.set_float32_matmul_precision()"),
    ],
)  # fmt: skip
def test_a_switch_that_is_no_attribute_says_how_it_is_set(module: str, name: str, way: str) -> None:
    held = importlib.import_module(module)

    with pytest.raises(AttributeError) as setting:
        setattr(held, name, False)
    with pytest.raises(AttributeError) as reading:
        getattr(held, name)

    assert way in str(setting.value)
    assert way in str(reading.value)


def test_a_function_is_not_lost_to_a_value() -> None:
    with pytest.raises(AttributeError, match=r"use mlbackends.cuda.preferred_blas_library\(\)$"):
        mlbackends.cuda.preferred_blas_library = "cublaslt"  # type: ignore[assignment]

    assert callable(mlbackends.cuda.preferred_blas_library)
    with pytest.raises(AttributeError, match=r"'is_available'; it is a function$"):
        mlbackends.cudnn.is_available = False  # type: ignore[assignment]
