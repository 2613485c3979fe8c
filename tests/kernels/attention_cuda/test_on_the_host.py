"""What attention.cu computes, run on the CPU by fibers that stand for a GPU's threads, against float64.

Not seen here: races between warps, the limits of a GPU, how its units round, and asynchronous copies.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

np = pytest.importorskip("numpy")

from mlbackends_kernels.attention_cuda import launches  # noqa: E402

if TYPE_CHECKING:
    from tests.kernels.attention_cuda.conftest import HostKernels

_spec = spec_from_file_location("attention_cases", Path(__file__).with_name("cases.py"))
assert _spec is not None and _spec.loader is not None
of = sys.modules[_spec.name] = module_from_spec(_spec)
_spec.loader.exec_module(of)


def attended(host_kernels: HostKernels, tensors: Any) -> tuple[Any, Any]:
    case, dtype = tensors.case, tensors.dtype
    out = of.stored(np.full(tensors.output_shape, 7.0), dtype)
    logsumexp = np.full(tensors.output_shape[:-1], 7, "float32")
    operands = tensors.operands()
    operands |= {"out": of.operand(out, dtype), "logsumexp": of.operand(logsumexp, "float32")}
    for launch in launches.forward(tensors.problem(), operands, case.precision):
        host_kernels.launch(launch)
    return of.numbers(out, dtype), logsumexp


def check(host_kernels: HostKernels, case: Any) -> None:
    tensors = of.Tensors(case)
    expected, limit = of.answer(tensors), of.LIMITS[case.dtype] * case.slack
    out, logsumexp = attended(host_kernels, tensors)
    assert of.worst(out, expected.out) < limit
    assert of.worst(logsumexp, expected.logsumexp) < 2e-6


@pytest.mark.parametrize("name", of.CASES)
def test_attention_agrees_with_float64(name: str, host_kernels: HostKernels) -> None:
    check(host_kernels, of.CASES[name])


@pytest.mark.parametrize("name", of.WIDE_CASES)
def test_wide_rows_agree_with_float64(name: str, host_kernels: HostKernels) -> None:
    check(host_kernels, of.WIDE_CASES[name])
