"""The public operations: loaded by name at their first call, from a folder that is a registry."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mlbackends
from mlbackends.base import registry
from mlbackends.base.errors import UnknownName
from mlbackends_kernels.operations import _call


def test_the_folder_of_operations_is_a_registry() -> None:
    names = registry.names("mlbackends_kernels.operations")
    assert {"einsum", "fft", "matmul", "multi_head_attention"} <= set(names)
    assert not [name for name in names if name.startswith("_")]
    with pytest.raises(UnknownName, match="there is no operation named 'matmull'") as caught:
        registry.load("mlbackends_kernels.operations", "matmull")
    assert caught.value.hint == "did you mean 'matmul'?"


@pytest.mark.parametrize("name", ["einsum", "fft", "matmul", "multi_head_attention"])
def test_an_operation_is_a_file_with_a_function_that_runs_it(name: str) -> None:
    module = registry.load("mlbackends_kernels.operations", name)
    assert module.__name__ == f"mlbackends_kernels.operations.{name}"
    assert callable(module.run)


@pytest.mark.parametrize("name", _call.__all__)
def test_an_operation_is_reached_from_the_package(name: str) -> None:
    assert getattr(mlbackends, name) is getattr(_call, name)


def test_the_public_function_takes_what_the_operation_takes() -> None:
    ours = inspect.signature(_call.multi_head_attention).parameters.values()
    theirs = inspect.signature(
        registry.load("mlbackends_kernels.operations", "multi_head_attention").run
    ).parameters.values()
    assert [(each.name, each.kind, each.default) for each in ours] == [
        (each.name, each.kind, each.default) for each in theirs
    ]


def loaded_by(program: str) -> set[str]:
    """Return the modules that a clean interpreter has loaded after a program."""
    code = f"import sys; import mlbackends\n{program}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "program",
    [
        "mlbackends.matmul, mlbackends.einsum, mlbackends.multi_head_attention",
        "mlbackends.fft.fft",
        "mlbackends.cuda.preferred_blas_library()",
        "mlbackends.cuda.cufft_plan_cache",
    ],
)
def test_touching_a_name_loads_no_numpy_and_no_kernel(program: str) -> None:
    modules = loaded_by(program)
    assert not modules & {"numpy", "typing", "re", "inspect", "msgspec"}
    kernels = {name for name in modules if name.startswith("mlbackends_kernels.")}
    assert kernels <= {"mlbackends_kernels.operations", "mlbackends_kernels.operations._call"}


def test_a_product_in_memory_opens_nothing_of_cuda() -> None:
    modules = loaded_by("import numpy as np; mlbackends.matmul(np.eye(2), np.eye(2))")
    assert "mlbackends_kernels.operations.matmul" in modules
    assert not modules & {"mlbackends_kernels.cuda.cublas", "mlbackends.libraries.search", "torch"}


def test_results_are_of_the_operands_kind() -> None:
    a: Any = np.arange(6.0).reshape(2, 3)
    for result in (
        mlbackends.matmul(a, a.T),
        mlbackends.einsum("ij->ji", a),
        mlbackends.fft.fft(a),
    ):
        assert type(result) is np.ndarray


QUIET = """
import warnings
import numpy as np
warnings.simplefilter("error")
large, odd = np.full((4, 4), 3e38, "f4"), np.full((4, 4), np.nan, "f4")
odd[0] = np.inf
half = np.full((4, 4), 6e4, "f2")
for a in (large, odd, half, -odd, np.full((4, 4), 1e308)):
    mlbackends.matmul(a, a)
    for equation in ("ij,jk->ik", "ij,jk", "ij,ij->ij"):
        mlbackends.einsum(equation, a, a)
    mlbackends.einsum("ij->", a)
    mlbackends.scaled_dot_product_attention(a, a, a)
    w, b = np.concatenate([a, a, a]), np.concatenate([a[0], a[0], a[0]])
    for weights in (True, False):
        mlbackends.multi_head_attention(a, a, a, 2, w, b, a, a[0], need_weights=weights)
    if a.dtype != np.float16:
        mlbackends.fft.fft(a), mlbackends.fft.irfftn(a), mlbackends.fft.fft2(a.astype("c16"))
"""


def test_numpy_s_warnings_of_odd_numbers_stay_inside() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import mlbackends\nimport mlbackends.fft\n{QUIET}"],
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import mlbackends
from mlbackends import fft
x = memoryview(bytes(64)).cast("f", (4, 4))
for call in (
    lambda: fft.fft(3), lambda: fft.fftshift(x), lambda: fft.fftfreq(3), lambda: fft.irfft2(x),
    lambda: mlbackends.matmul(x, x), lambda: mlbackends.einsum("ij->ji", x),
    lambda: mlbackends.multi_head_attention(x, x, x, 1, x, None, x, None),
):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error, error.hint, sep=" | ")
"""


def test_every_operation_says_alike_that_numpy_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY], capture_output=True, text=True, check=True, cwd="/"
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 7
    assert len(set(lines)) == 1
    kind, said, hint = lines[0].split(" | ")
    assert kind == "MlBackendsError"
    assert said.startswith("this computes with numpy, and it cannot be imported (")
    assert said.endswith(hint) and hint == "pip install 'mlbackends[kernels]'"


@pytest.mark.parametrize("elements", ["object", "U1", "S1", "M8[s]"])
@pytest.mark.parametrize(
    ("call", "start"),
    [
        (lambda x: mlbackends.matmul(x, x), r"matmul\(\): a: "),
        (lambda x: mlbackends.einsum("ij->ji", x), r"einsum\(\): operand 0: "),
        (lambda x: mlbackends.fft.fftshift(x), r"fftshift\(\): x: "),  # noqa: PLW0108
        (lambda x: mlbackends.multi_head_attention(x, x, x, 1, x, None, x, None),
         r"multi_head_attention\(\): query: "),
        (lambda x: mlbackends.scaled_dot_product_attention(x, x, x),
         r"scaled_dot_product_attention\(\): query: "),
    ],
)  # fmt: skip
def test_elements_that_are_no_numbers_are_refused_by_the_operation_s_name(
    call: Any, start: str, elements: str
) -> None:
    with pytest.raises(TypeError, match=f"^{start}elements of type .* are none"):
        call(np.zeros((2, 2), elements))


def test_there_is_no_product_of_booleans() -> None:
    a = np.ones((2, 2), bool)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        mlbackends.matmul(a, a)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        mlbackends.einsum("ij,jk", a, a)
    assert np.array_equal(mlbackends.einsum("ij,ij->ij", a, a), a)
    assert mlbackends.einsum("ij->", a) == 4
