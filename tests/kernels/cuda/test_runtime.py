"""The CUDA runtime: how many devices there are, which one is current."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("variables", "count"),
    [({}, 1), ({"FAKE_GPUS": "3"}, 3), ({"FAKE_GPUS": "0"}, 0), ({"FAKE_INIT": "803"}, 0)],
)
def test_the_driver_counts_the_devices(
    on_fake_cuda: Any, variables: dict[str, str], count: int
) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda.runtime import device_count
tell(device_count())
import sys
tell("torch" in sys.modules)
""",
        **variables,
    )
    assert told.values == [count, False]


def test_a_file_that_is_no_driver_counts_none(fake_library: Any, on_fake_cuda: Any) -> None:
    other = fake_library("no_driver", "libcuda.so.1", source="int nothing;")
    told = on_fake_cuda(
        "from mlbackends_kernels.cuda.runtime import device_count; tell(device_count())",
        without=("libcuda.so.1",),
        LD_PRELOAD=str(other),
    )
    assert told.values == [0]


def test_a_block_on_another_device_puts_back_the_one_that_was_current(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda import runtime
with runtime.on_device(2):
    with runtime.on_device(1):
        tell(runtime.current_device())
    tell(runtime.current_device())
    tell(error_of(lambda: runtime.on_device(7).__enter__()))
tell(runtime.current_device())
""",
        FAKE_GPUS="3",
    )
    assert told.values == [
        1,
        2,
        ["CudaError", "cudaSetDevice returned 101 (cudaErrorInvalidDevice)"],
        0,
    ]


def test_the_manager_of_plans_follows_the_current_device(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda import runtime
cache = mlbackends.cuda.cufft_plan_cache
with runtime.on_device(1):
    cache.max_size = 3
tell([cache.max_size, cache[1].max_size])
""",
        FAKE_GPUS="2",
    )
    assert told.values == [[4096, 3]]


def test_workspace_sizes_are_those_of_the_current_device(on_fake_cuda: Any) -> None:
    program = "c = mlbackends.cuda; tell([c.cublas_workspace_size(), c.cublaslt_workspace_size()])"
    assert on_fake_cuda(program).values == [[32 << 20, 1 << 20]]
    assert on_fake_cuda(program, FAKE_CAPABILITY="86").values == [[8519680, 1 << 20]]
    assert on_fake_cuda(program, FAKE_GPUS="0").values == [[8519680, 1 << 20]]
