"""What flash.cu computes, run on the CPU by fibers that stand for a GPU's threads, against float64.

Not seen here: orders of warps that are not tried, the limits of a GPU, and how its units round.
"""

from __future__ import annotations

import ctypes
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

np = pytest.importorskip("numpy")

from mlbackends_kernels.attention_flash import launches  # noqa: E402
from mlbackends_kernels.attention_flash.chips import chip_of  # noqa: E402

if TYPE_CHECKING:
    from tests.kernels.attention_cuda.conftest import HostKernels

_spec = spec_from_file_location("attention_cases", Path(__file__).with_name("cases.py"))
assert _spec is not None and _spec.loader is not None
of = sys.modules[_spec.name] = module_from_spec(_spec)
_spec.loader.exec_module(of)


def check(host_kernels: HostKernels, case: Any, multiprocessors: int = 1) -> Any:
    """Run the passes as on a device of one multiprocessor, and compare all that they give."""
    tensors = of.Tensors(case)
    expected, limit, dtype = of.answer(tensors), of.LIMITS[case.dtype] * case.slack, case.dtype
    problem, given = tensors.problem(), tensors.operands()
    chip = chip_of(problem.capability)

    def run(what: Any) -> None:
        for launch in what:
            if launch.grid:
                host_kernels.launch_flash(launch, dtype, chip)

    plan = launches.plan(problem, multiprocessors)
    made = {
        "out": of.guarded(tensors.output_shape, dtype),
        "logsumexp": of.guarded(tensors.output_shape[:-1], "float32"),
    }
    rooms = launches.rooms(problem, plan)
    made |= {name: of.guarded(*room) for name, room in rooms.items()}
    spans = np.array(launches.spans(problem), "int32")
    if problem.key_lengths:
        given["spans"] = of.operand(spans, "int32")
    given |= {name: of.operand(each, of.kind_of(name, dtype)) for name, each in made.items()}
    run(launches.forward(problem, given, plan))
    assert of.worst(of.numbers(made["out"], dtype), expected.out) < limit
    assert of.worst(made["logsumexp"], expected.logsumexp) < 2e-6
    assert all(map(of.is_guarded, made.values()))
    if problem.key_lengths or problem.key.shape[1] != problem.value.shape[1]:
        return plan  # these have no gradients

    for name in rooms:
        del given[name]
    summary = of.guarded((*tensors.output_shape[:-1], 4), "float32")
    gradients = {
        f"grad_{name}": of.guarded(each.shape, tensors.dtype_of(name))
        for name, each in expected.gradients.items()
    }
    more = {"summary": summary, "grad_out": tensors.grad_out, **gradients}
    given |= {name: of.operand(each, of.kind_of(name, dtype)) for name, each in more.items()}
    run(launches.backward(problem, given))
    largest = max(float(np.abs(each).max(initial=1e-3)) for each in expected.gradients.values())
    for name, each in expected.gradients.items():
        found = of.numbers(gradients[f"grad_{name}"], tensors.dtype_of(name))
        assert of.worst(found, each, largest) < 4 * limit, name
    assert all(map(of.is_guarded, (*gradients.values(), summary)))
    return plan


@pytest.mark.parametrize("name", of.FLASH_CASES)
def test_flash_agrees_with_float64(name: str, host_kernels: HostKernels) -> None:
    check(host_kernels, of.FLASH_CASES[name])


@pytest.mark.parametrize("name", of.FLASH_WIDE_CASES)
def test_wide_rows_agree_with_float64(name: str, host_kernels: HostKernels) -> None:
    check(host_kernels, of.FLASH_WIDE_CASES[name])


@pytest.mark.parametrize("name", of.FLASH_PART_CASES)
def test_keys_in_parts_agree_with_float64(name: str, host_kernels: HostKernels) -> None:
    assert check(host_kernels, of.FLASH_PART_CASES[name], 40).parts > 1


UNGUARDED = """
#include "cuda_on_host.h"
extern "C" void exchange(unsigned* to, unsigned grid) {
  host::launch(grid, 64, shared_memory, 256, [=] {
    unsigned* shared = (unsigned*)shared_memory;
    shared[threadIdx.x] = threadIdx.x;
    __syncwarp();
    __syncwarp();
    to[64 * blockIdx.x + threadIdx.x] = shared[threadIdx.x ^ 32];
  });
}
"""


def test_a_warp_that_runs_ahead_of_another_shows(host_kernels: HostKernels) -> None:
    """What another warp has not written yet is not read as if it had."""
    found = np.zeros((8, 64), "uint32")
    exchange = ctypes.CDLL(str(host_kernels.library(UNGUARDED))).exchange
    exchange(ctypes.c_void_p(found.ctypes.data), len(found))
    assert (found == 2**32 - 1).any()
