"""Tests of this folder need a CUDA device that computes; without one they are skipped, with the reason."""

from __future__ import annotations

from functools import cache

import pytest


@cache
def _why_not() -> str:
    from mlbackends.libraries.cuda import in_process

    return "" if in_process.device_count() else "the driver is missing or shows no device"


def pytest_runtest_setup() -> None:
    if why := _why_not():
        pytest.skip(f"no CUDA device: {why}")
