"""What attention.cu computes, run on the CPU by fibers that stand for a GPU's threads, against float64.

Not seen here: orders of warps that are not tried, the limits of a GPU, and how its units round.
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
    from tests.kernels.attention_cuda.host_kernels import HostKernels

_spec = spec_from_file_location("attention_cases", Path(__file__).with_name("cases.py"))
assert _spec is not None and _spec.loader is not None
of = sys.modules[_spec.name] = module_from_spec(_spec)
_spec.loader.exec_module(of)


def check(host_kernels: HostKernels, case: Any) -> None:
    """Run the passes as on a device, and compare the result, the logarithms and the gradients."""
    tensors = of.Tensors(case)
    expected, limit, dtype = of.answer(tensors), of.LIMITS[case.dtype] * case.slack, case.dtype
    problem, given = tensors.problem(), tensors.operands()
    made = {
        "out": of.guarded(tensors.output_shape, dtype),
        "logsumexp": of.guarded(tensors.output_shape[:-1], "float32"),
    }
    given |= {name: of.operand(each, of.kind_of(name, dtype)) for name, each in made.items()}
    for launch in launches.forward(problem, given, case.precision):
        host_kernels.launch(launch)
    assert of.worst(of.numbers(made["out"], dtype), expected.out) < limit
    assert of.worst(made["logsumexp"], expected.logsumexp) < 2e-6

    summary = of.guarded((*tensors.output_shape[:-1], 4), "float32")
    gradients = {
        f"grad_{name}": of.guarded(each.shape, tensors.dtype_of(name))
        for name, each in expected.gradients.items()
    }
    more = {"summary": summary, "grad_out": tensors.grad_out}
    given |= {name: of.operand(each, of.kind_of(name, dtype)) for name, each in more.items()}
    given |= {
        name: of.operand(each, tensors.dtype_of(name.removeprefix("grad_")))
        for name, each in gradients.items()
    }
    for launch in launches.backward(problem, given, case.precision):
        host_kernels.launch(launch)
    largest = max(float(np.abs(each).max(initial=1e-3)) for each in expected.gradients.values())
    for name, each in expected.gradients.items():
        found = of.numbers(gradients[f"grad_{name}"], tensors.dtype_of(name))
        assert of.worst(found, each, largest) < 4 * limit, name
    assert all(map(of.is_guarded, (*made.values(), *gradients.values(), summary)))


@pytest.mark.parametrize("name", of.CASES)
def test_attention_agrees_with_float64(name: str, host_kernels: HostKernels) -> None:
    check(host_kernels, of.CASES[name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", of.WIDE_CASES)
def test_wide_rows_agree_with_float64(name: str, host_kernels: HostKernels) -> None:
    check(host_kernels, of.WIDE_CASES[name])
