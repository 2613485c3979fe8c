"""On a Hopper GPU: hopper.cu computes what the emulation computes, and is what flash_cuda runs."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytestmark = [pytest.mark.gpu, pytest.mark.slow]

FOLDER = Path(__file__).parents[1]


def module(name: str, path: str) -> Any:
    spec = spec_from_file_location(name, FOLDER / path)
    assert spec is not None and spec.loader is not None
    found = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


emulated = module("hopper_cases", "kernels/attention_cuda/test_hopper_on_the_host.py")
of = emulated.of
FORWARD = {**emulated.CASES, **emulated.WIDE_CASES}


@pytest.fixture(autouse=True)
def hopper_kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the kernels of hopper.cu that are launched."""
    from mlbackends_kernels.attention_flash import device
    from mlbackends_kernels.cuda.devices import capability, device_count

    if not device_count() or capability(0) != (9, 0):
        pytest.skip("device 0 is no Hopper")
    names: list[str] = []
    launched = device._on_hopper

    def noted(problem: Any, launch: Any) -> Any:
        names.append(launch.kernel)
        return launched(problem, launch)

    monkeypatch.setattr(device, "_on_hopper", noted)
    return names


def on_device(array: Any, dtype: str) -> Any:
    """Return an array in a device's memory, with the strides that it has here."""
    from mlbackends_kernels.cuda.device_array import to_device

    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if base.dtype == np.uint8:  # room to align what lies in it
        base = array
    is_bfloat16 = dtype == "bfloat16"  # which NumPy lacks
    flat = to_device(
        np.ascontiguousarray(base).reshape(-1).view("f2" if is_bfloat16 else array.dtype)
    )
    flat = flat.as_type("bfloat16") if is_bfloat16 else flat
    strides = [step // array.itemsize for step in array.strides]
    offset = (array.ctypes.data - base.ctypes.data) // array.itemsize
    return flat.viewed(array.shape, strides, offset)


def problem_and_arrays(case: Any) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    from msgspec.structs import replace

    from mlbackends.sdpa.describe import describe, device_of

    tensors = of.Tensors(case)
    arrays = {name: on_device(each, tensors.dtype_of(name)) for name, each in tensors.named.items()}
    device = device_of(arrays["query"], describe(arrays["query"]))
    more = {"sinks": arrays.pop("sinks")} if "sinks" in arrays else {}
    return tensors, replace(tensors.problem(), device=device), arrays, more


@pytest.mark.parametrize("name", FORWARD)
def test_the_forward_agrees_with_float64(name: str, hopper_kernels: list[str]) -> None:
    from mlbackends_kernels.flash_cuda import FlashCuda

    case = FORWARD[name]
    tensors, problem, arrays, more = problem_and_arrays(case)
    expected, limit = of.answer(tensors), of.LIMITS[case.dtype] * case.slack
    given = (arrays["query"], arrays["key"], arrays["value"], None)
    out, logsumexp = FlashCuda().run_with_logsumexp(problem, *given, **more)
    again = FlashCuda().run(problem, *given, **more)
    assert of.worst(out.numpy().astype("f8"), expected.out) < limit
    assert of.worst(logsumexp.numpy(), expected.logsumexp) < 1e-5
    assert np.array_equal(out.numpy(), again.numpy(), equal_nan=True)
    assert len(hopper_kernels) == 2


@pytest.mark.parametrize("name", emulated.GRADIENT_CASES)
def test_gradients_agree_with_float64(name: str, hopper_kernels: list[str]) -> None:
    from mlbackends_kernels.flash_cuda import FlashCuda

    case = emulated.GRADIENT_CASES[name]
    tensors, problem, arrays, more = problem_and_arrays(case)
    expected = of.answer(tensors)
    given = (arrays["query"], arrays["key"], arrays["value"], None)
    out, logsumexp = FlashCuda().run_with_logsumexp(problem, *given, **more)
    coming = on_device(tensors.grad_out, case.dtype)
    found, again = (
        FlashCuda().run_backward(problem, coming, *given, out, logsumexp, **more) for _ in range(2)
    )
    names = ("query", "key", "value")
    largest = max(float(np.abs(expected.gradients[each]).max()) for each in names)
    for each, gradient, second in zip(names, found, again, strict=False):
        numbers = gradient.numpy().astype("f8")
        assert of.worst(numbers, expected.gradients[each], largest) < 4 * of.LIMITS[case.dtype]
        assert np.array_equal(gradient.numpy(), second.numpy(), equal_nan=True)
    assert set(hopper_kernels[1:]) == {"hopper_query", "hopper_both"}
