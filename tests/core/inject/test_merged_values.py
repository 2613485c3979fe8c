"""One run inside another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import BadInput
from mlbackends.inject.start import environment_with
from mlbackends.inject.steps import plan
from mlbackends.inject.values import merged, without_contradicting

if TYPE_CHECKING:
    from pathlib import Path


def around(**values: object) -> dict[str, str]:
    return environment_with(plan({name.replace("__", "."): value for name, value in values.items()}), {})


def test_both_are_carried() -> None:
    outer = around(cudnn__benchmark=True)
    assert merged({"cudnn.enabled": False}, outer) == {
        "cudnn.enabled": False,
        "cudnn.benchmark": True,
    }


def test_the_inner_one_goes_before() -> None:
    assert merged({"cudnn.benchmark": False}, around(cudnn__benchmark=True)) == {"cudnn.benchmark": False}


def test_what_contradicts_the_inner_one_is_left_out() -> None:
    outer = around(cuda__matmul__allow_tf32=True, cudnn__benchmark=True)
    assert merged({"cuda.matmul.fp32_precision": "ieee"}, outer) == {
        "cuda.matmul.fp32_precision": "ieee",
        "cudnn.benchmark": True,
    }


def test_none_takes_an_outer_switch_away() -> None:
    assert merged({"cudnn.benchmark_limit": None}, around(cudnn__benchmark_limit=4)) == {
        "cudnn.benchmark_limit": None
    }


def test_an_order_and_a_pair_come_back_as_they_were() -> None:
    values = {
        "cuda.sdp_priority_order": (4, 3, 2, 1, 0),
        "cuda.matmul.allow_bf16_reduced_precision_reduction": (False, False),
    }
    assert merged({}, environment_with(plan(values), {})) == values


@pytest.mark.parametrize(
    "text",
    ["x", "{}", "[1]", '[{"name": "cudnn.nosuch", "value": 1}]', "[" * 9999, "\udcff",
     '[{"name": "cudnn.benchmark", "value": "maybe"}]'],
)  # fmt: skip
def test_a_variable_that_holds_something_else_is_an_error(text: str) -> None:
    with pytest.raises(BadInput, match="MLBACKENDS_CARRIED"):
        merged({}, {"MLBACKENDS_CARRIED": text})


def test_variables_of_ours_are_carried_and_those_of_torch_left_to_it() -> None:
    environment = {"MLBACKENDS_CUDNN_BENCHMARK": "1", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}

    assert merged({"cudnn.enabled": False}, environment) == {
        "cudnn.enabled": False,
        "cudnn.benchmark": True,
    }


def test_the_file_of_the_environment_comes_last(tmp_path: Path) -> None:
    file = tmp_path / "flags.toml"
    file.write_text(
        "fp32_precision = 'ieee'\nnnpack.enabled = false\n"
        "[cudnn]\nbenchmark = true\nenabled = false\n[cuda.matmul]\nfp32_precision = 'ieee'\n"
    )
    environment = {
        **around(cudnn__enabled=True),
        "MLBACKENDS_FLAGS": str(file),
        "MLBACKENDS_CUDNN_BENCHMARK": "0",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
    }

    assert merged({"fp32_precision": "tf32"}, environment) == {
        "fp32_precision": "tf32",
        "cudnn.benchmark": False,
        "cudnn.enabled": True,
        "nnpack.enabled": False,
    }


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("MLBACKENDS_CUDNN_BENCHMARK", "yes", "MLBACKENDS_CUDNN_BENCHMARK: yes; valid values are 0"),
        ("MLBACKENDS_CUDNN_BENCHMRAK", "1", "did you mean MLBACKENDS_CUDNN_BENCHMARK"),
        ("MLBACKENDS_XNNPACK_ENABLED", "1", "xnnpack.enabled is read-only"),
        ("MLBACKENDS_FLAGS", "/nonexistent", "the file that MLBACKENDS_FLAGS names: /nonexistent"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_environment_is_an_error(variable: str, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        merged({}, {variable: text})


def test_variables_that_contradict_what_is_asked_are_taken_away() -> None:
    environment = {
        "MLBACKENDS_FLOAT32_MATMUL_PRECISION": "highest",
        "MLBACKENDS_CUDNN_BENCHMARK": "1",
        "OTHER": "1",
    }

    assert without_contradicting({"cuda.matmul.fp32_precision": "tf32"}, environment) == {
        "MLBACKENDS_CUDNN_BENCHMARK": "1",
        "OTHER": "1",
    }
