"""The devices of the driver: how many devices there are, which one is current."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("variables", "count"),
    [({}, 1), ({"FAKE_GPUS": "3"}, 3), ({"FAKE_GPUS": "0"}, 0), ({"FAKE_INIT": "803"}, 0)],
)
def test_the_driver_counts_the_devices(on_fake_cuda: Any, variables: dict[str, str], count: int) -> None:
    output = on_fake_cuda(
        """
from mlbackends_kernels.cuda.devices import device_count
report(device_count())
import sys
report("torch" in sys.modules)
""",
        **variables,
    )
    assert output.values == [count, False]


def test_a_block_on_another_device_puts_back_the_one_that_was_current(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
from mlbackends_kernels.cuda import devices
with devices.on_device(2):
    with devices.on_device(1):
        report(devices.current_device())
    report(devices.current_device())
    report(error_of(lambda: devices.on_device(7).__enter__()))
report(devices.current_device())
""",
        FAKE_GPUS="3",
    )
    assert output.values == [
        1,
        2,
        ["CudaUnavailable", "there is no cuda:7: device_id must be within [0, 3), got 7"],
        0,
    ]


def test_the_manager_of_plans_follows_the_current_device(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
from mlbackends_kernels.cuda import devices
cache = mlbackends.cuda.cufft_plan_cache
with devices.on_device(1):
    cache.max_size = 3
report([cache.max_size, cache[1].max_size])
""",
        FAKE_GPUS="2",
    )
    assert output.values == [[4096, 3]]


def test_workspace_sizes_are_those_of_the_current_device(on_fake_cuda: Any) -> None:
    program = "c = mlbackends.cuda; report([c.cublas_workspace_size(), c.cublaslt_workspace_size()])"
    assert on_fake_cuda(program).values == [[32 << 20, 1 << 20]]
    assert on_fake_cuda(program, FAKE_CAPABILITY="86").values == [[8519680, 1 << 20]]
    assert on_fake_cuda(program, FAKE_GPUS="0").values == [[8519680, 1 << 20]]
