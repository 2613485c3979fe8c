"""Tests of this folder need a CUDA device that computes; without one they are skipped, with the reason."""

from __future__ import annotations

from functools import cache

import pytest


@cache
def _why_not() -> str:
    from mlbackends_kernels.cuda import devices
    from mlbackends_kernels.cuda.devices import CudaUnavailable

    try:
        devices.driver()
    except CudaUnavailable as error:
        return str(error)
    return "" if devices.device_count() else "the driver shows no device"


def pytest_runtest_setup() -> None:
    if why := _why_not():
        pytest.skip(f"no CUDA device: {why}")
