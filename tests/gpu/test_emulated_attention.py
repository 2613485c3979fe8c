"""On an NVIDIA GPU: our kernels compute the problems that tests/kernels/attention_cuda emulates."""

from __future__ import annotations

from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytestmark = [pytest.mark.gpu, pytest.mark.slow]

import cases  # noqa: E402

CASES = {**cases.CASES, **cases.WIDE_CASES}


def on_device(array: Any, dtype: str) -> Any:
    """Return an array in a device's memory, with the strides and the alignment that it has here."""
    from mlbackends_kernels.cuda.device_array import to_device

    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    is_bfloat16 = dtype == "bfloat16"  # which NumPy lacks
    flat = to_device(base.reshape(-1).view("float16" if is_bfloat16 else array.dtype))
    flat = flat.as_type("bfloat16") if is_bfloat16 else flat
    strides = [step // array.itemsize for step in array.strides]
    offset = (array.ctypes.data - base.ctypes.data) // array.itemsize
    return flat.viewed(array.shape, strides, offset)


@pytest.mark.parametrize("name", CASES)
def test_attention_on_a_device_agrees_with_float64(name: str) -> None:
    from msgspec.structs import replace

    from mlbackends.sdpa.describe import describe, device_of
    from mlbackends.switches import store
    from mlbackends_kernels.efficient_cuda import EfficientCuda

    case = CASES[name]
    tensors, chosen = cases.Tensors(case), EfficientCuda()
    expected, limit = cases.answer(tensors), cases.LIMITS[case.dtype] * case.slack
    arrays = {name: on_device(array, tensors.dtype_of(name)) for name, array in tensors.named.items()}
    more = {name: arrays.pop(name) for name in ("sinks",) if name in arrays}
    inputs = [arrays.get(name) for name in ("query", "key", "value", "mask")]
    problem = tensors.problem()
    if problem.sinks is not None:
        problem = replace(problem, sinks=replace(problem.sinks, requires_grad=True))
    problem = replace(problem, device=device_of(inputs[0], describe(inputs[0])))
    if reasons := chosen.missing_parts():
        pytest.skip(reasons[0].message)
    with store.applied({"cuda.matmul.fp32_precision": case.precision}):
        out, logsumexp = chosen.run_with_logsumexp(problem, *inputs, **more)
        assert cases.worst(out.numpy(), expected.out) < limit
        assert cases.worst(logsumexp.numpy(), expected.logsumexp) < 1e-5
        if chosen.unsupported_reasons(replace(problem, query=replace(problem.query, requires_grad=True))):
            return
        coming = on_device(tensors.grad_out, case.dtype)
        results = (*inputs, out, logsumexp)
        found = chosen.run_backward(problem, coming, *results, **more)._asdict()
        again = chosen.run_backward(problem, coming, *results, **more)._asdict()
    largest = max(float(np.abs(gradient).max(initial=1e-3)) for gradient in expected.gradients.values())
    for tensor, gradient in expected.gradients.items():
        assert cases.worst(found[tensor].numpy(), gradient, largest) < 4 * limit
        assert np.array_equal(found[tensor].numpy(), again[tensor].numpy(), equal_nan=True)
