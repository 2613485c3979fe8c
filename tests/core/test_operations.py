"""The public operations: loaded by name at their first call, from a folder that is a registry."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mlbackends
from mlbackends import operations
from mlbackends.model import registry
from mlbackends.model.errors import UnknownName


def test_the_folder_of_operations_is_a_registry() -> None:
    names = registry.names("kernels.operations")
    assert {"einsum", "fft", "matmul", "multi_head_attention"} <= set(names)
    assert not [name for name in names if name.startswith("_")]
    with pytest.raises(UnknownName, match="there is no operation named 'matmull'") as caught:
        registry.load("kernels.operations", "matmull")
    assert caught.value.hint == "did you mean 'matmul'?"


@pytest.mark.parametrize("name", ["einsum", "fft", "matmul", "multi_head_attention"])
def test_an_operation_is_a_file_with_a_function_that_runs_it(name: str) -> None:
    module = registry.load("kernels.operations", name)
    assert module.__name__ == f"mlbackends.kernels.operations.{name}"
    assert callable(module.run)


@pytest.mark.parametrize("name", operations.__all__)
def test_an_operation_is_reached_from_the_package(name: str) -> None:
    assert getattr(mlbackends, name) is getattr(operations, name)


def test_the_public_function_takes_what_the_operation_takes() -> None:
    ours = inspect.signature(operations.multi_head_attention).parameters.values()
    theirs = inspect.signature(
        registry.load("kernels.operations", "multi_head_attention").run
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
    assert not [name for name in modules if name.startswith("mlbackends.kernels")]


def test_a_product_in_memory_opens_nothing_of_cuda() -> None:
    modules = loaded_by("import numpy as np; mlbackends.matmul(np.eye(2), np.eye(2))")
    assert "mlbackends.kernels.operations.matmul" in modules
    assert not modules & {"mlbackends.kernels.cuda.cublas", "mlbackends.probing.search", "torch"}


def test_results_are_of_the_operands_kind() -> None:
    a: Any = np.arange(6.0).reshape(2, 3)
    for result in (
        mlbackends.matmul(a, a.T),
        mlbackends.einsum("ij->ji", a),
        mlbackends.fft.fft(a),
    ):
        assert type(result) is np.ndarray
