"""On a machine with an NVIDIA GPU: efficient_cuda computes what tests/kernels/attention_cuda emulates."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytestmark = [pytest.mark.gpu, pytest.mark.slow]

FILE = Path(__file__).parents[1] / "kernels" / "attention_cuda" / "cases.py"
_spec = spec_from_file_location("attention_cases", FILE)
assert _spec is not None and _spec.loader is not None
of = sys.modules[_spec.name] = module_from_spec(_spec)
_spec.loader.exec_module(of)
CASES = {**of.CASES, **of.WIDE_CASES}


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
    tensors, backend = of.Tensors(case), EfficientCuda()
    expected, limit = of.answer(tensors), of.LIMITS[case.dtype] * case.slack
    arrays = [
        on_device(tensors.named[name], tensors.dtype_of(name)) if name in tensors.named else None
        for name in ("query", "key", "value", "mask")
    ]
    device = device_of(arrays[0], describe(arrays[0]))
    problem = replace(tensors.problem(), device=device)
    if reasons := backend.missing_parts():
        pytest.skip(reasons[0].message)
    with store.applied({"cuda.matmul.fp32_precision": case.precision}):
        out, logsumexp = backend.run_with_logsumexp(problem, *arrays)
        coming = on_device(tensors.grad_out, case.dtype)
        found = backend.run_backward(problem, coming, *arrays, out, logsumexp)
        again = backend.run_backward(problem, coming, *arrays, out, logsumexp)
    assert of.worst(out.numpy(), expected.out) < limit
    assert of.worst(logsumexp.numpy(), expected.logsumexp) < 1e-5
    largest = max(float(np.abs(each).max(initial=1e-3)) for each in expected.gradients.values())
    for gradient, second, each in zip(found, again, expected.gradients.values(), strict=False):
        assert of.worst(gradient.numpy(), each, largest) < 4 * limit
        assert np.array_equal(gradient.numpy(), second.numpy(), equal_nan=True)
