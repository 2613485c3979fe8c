"""The libraries of `backends conform` that are installed here, each with few problems."""

from __future__ import annotations

import importlib.util

import pytest

from mlbackends.conform.problems import parse
from mlbackends.conform.running import LIBRARIES, conform
from mlbackends.model.conformity import Answer

pytestmark = [pytest.mark.torch, pytest.mark.slow]
#: What no library may get wrong: one line for each operation, in the type that all of them have.
LINES = [
    "gemm float32 m=9 n=5 k=40 seed=1",
    "convolution float32 batch=1 channels=3 height=9 width=8 features=2 kernel=3 stride=2 padding=1",
    "softmax float32 rows=3 size=50",
    "layer-norm float32 rows=3 size=50",
    "attention float32 batch=1 heads=2 queries=5 keys=7 width=8",
    "exp float32 rows=3 size=50",
    "log float32 rows=3 size=50",
    "erf float32 rows=3 size=50",
    "sum float32 rows=3 size=500",
    "max float32 rows=3 size=50",
    "cast float16 rows=3 size=50",
    "fft complex64 rows=2 size=48",
]
#: The operations that a library lacks.
LACKS = {
    "numpy": {"convolution", "softmax", "layer-norm", "attention", "erf"},
    "scipy": {"convolution", "layer-norm", "attention", "exp", "log", "sum", "max", "cast"},
    "onnxruntime": {"attention", "fft"},
    "openvino": {"fft"},
    "tensorflow": {"attention"},
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_an_installed_library_computes_each_operation(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    (library,) = conform([name], quick=True, problems=[*map(parse, LINES)]).libraries

    assert library.failure == ""
    refused = {one.operation for one in library.answers if one.answer is Answer.REFUSED}
    assert refused == LACKS.get(name, set())
    # A CPU may make it compute in a shorter type; that is a finding, and not of ours.
    assert not [one for one in library.answers if one.is_wrong and not one.computed_as]
