"""attention.cu on the CPU, where fibers replace a GPU's threads, compared with float64.

This does not show other orders of warps, the limits of a GPU, or how its units round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

np = pytest.importorskip("numpy")

import cases  # noqa: E402

from mlbackends_kernels.attention_cuda import launches  # noqa: E402

if TYPE_CHECKING:
    from host_kernels import HostKernels


def check(host_kernels: HostKernels, case: Any) -> None:
    """Run the passes as on a device, and compare the result, the logarithms and the gradients."""
    tensors = cases.Tensors(case)
    expected, limit, dtype = (
        cases.answer(tensors),
        cases.LIMITS[case.dtype] * case.slack,
        case.dtype,
    )
    problem, given = tensors.problem(), tensors.operands()
    made = {
        "out": cases.guarded(tensors.output_shape, dtype),
        "logsumexp": cases.guarded(tensors.output_shape[:-1], "float32"),
    }
    given |= {name: cases.operand(array, cases.kind_of(name, dtype)) for name, array in made.items()}
    for launch in launches.forward(problem, given, case.precision):
        host_kernels.launch(launch)
    assert cases.worst(cases.numbers(made["out"], dtype), expected.out) < limit
    assert cases.worst(made["logsumexp"], expected.logsumexp) < 2e-6

    summary = cases.guarded((*tensors.output_shape[:-1], 4), "float32")
    gradients = {
        f"grad_{name}": cases.guarded(gradient.shape, tensors.dtype_of(name))
        for name, gradient in expected.gradients.items()
    }
    more = {"summary": summary, "grad_out": tensors.grad_out}
    given |= {name: cases.operand(array, cases.kind_of(name, dtype)) for name, array in more.items()}
    given |= {
        name: cases.operand(gradient, tensors.dtype_of(name.removeprefix("grad_")))
        for name, gradient in gradients.items()
    }
    for launch in launches.backward(problem, given, case.precision):
        host_kernels.launch(launch)
    largest = max(float(np.abs(gradient).max(initial=1e-3)) for gradient in expected.gradients.values())
    for name, gradient in expected.gradients.items():
        found = cases.numbers(gradients[f"grad_{name}"], tensors.dtype_of(name))
        assert cases.worst(found, gradient, largest) < 4 * limit, name
    assert all(map(cases.is_guarded, (*made.values(), *gradients.values(), summary)))


@pytest.mark.parametrize("name", cases.CASES)
def test_attention_agrees_with_float64(name: str, host_kernels: HostKernels) -> None:
    check(host_kernels, cases.CASES[name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", cases.WIDE_CASES)
def test_wide_rows_agree_with_float64(name: str, host_kernels: HostKernels) -> None:
    check(host_kernels, cases.WIDE_CASES[name])
