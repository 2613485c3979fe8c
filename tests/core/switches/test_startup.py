"""The variables that reproduce a state do reproduce it."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends.switches.cells import PARENTS, put, untouched
from mlbackends.switches.startup import FILE_VARIABLE, as_error, first_cells, variables
from mlbackends.switches.table import SWITCHES

WORDS: dict[str, list[Any]] = {
    **{name: ["none", "ieee", "tf32"] for name in PARENTS},
    "fp32_precision": ["none", "ieee", "tf32", "bf16"],
    "float32_matmul_precision": ["highest", "high", "medium"],
    "cuda.preferred_linalg_library": ["default", "cusolver", "magma"],
    "cuda.preferred_blas_library": ["cublas", "cublaslt", "ck"],
    "cuda.preferred_rocm_fa_library": ["default", "aotriton", "ck"],
    "cuda.matmul.allow_fp16_reduced_precision_reduction": [(True, True), (False, True), (False, False)],
    "openmp.num_threads": ["8", "4,2"],
    "mkldnn.verbose_level": ["0", "profile,dispatch"],
    "opt_einsum.strategy": ["auto", "greedy"],
}  # fmt: skip
OTHER = {
    "cuda.cublas_workspace_size": st.integers(0, 2**20).map(lambda kibibytes: kibibytes * 1024),
    "cuda.cublaslt_workspace_size": st.integers(0, 2**20).map(lambda kibibytes: kibibytes * 1024),
    "cudnn.benchmark_limit": st.integers(0, 1000),
    "cuda.sdp_priority_order": st.permutations(range(5)).map(tuple),
    "mkl.num_threads": st.integers(1, 1024),
}
BOOLEANS = [
    name
    for name, flag in SWITCHES.items()
    if flag.kind.name == "bool" and not flag.read_only and name != "mkldnn.allow_tf32"
]
STEPS = st.lists(
    st.one_of(
        *(st.tuples(st.just(name), st.sampled_from(words)) for name, words in WORDS.items()),
        *(st.tuples(st.just(name), values) for name, values in OTHER.items()),
        st.tuples(st.sampled_from(BOOLEANS), st.booleans()),
    ),
    max_size=9,
)


@settings(max_examples=300)
@given(STEPS)
def test_any_state_comes_back_from_its_variables(steps: list[tuple[str, Any]]) -> None:
    wanted = untouched()
    for name, value in steps:
        put(wanted, SWITCHES[name], value, "set")

    with mock.patch.dict(os.environ, variables(wanted), clear=True):
        cells, problems = first_cells()

    assert problems == []
    assert {cell: value for cell, (value, _) in cells.items()} == {
        cell: value for cell, (value, _) in wanted.items()
    }


def test_nothing_is_said_of_what_is_at_its_default() -> None:
    assert variables(untouched()) == {}


def test_torchs_own_variable_is_used_where_it_can_say_the_value() -> None:
    wanted = untouched()
    put(wanted, SWITCHES["cuda.matmul.allow_tf32"], True, "set")
    put(wanted, SWITCHES["cuda.preferred_blas_library"], "cublaslt", "set")
    put(wanted, SWITCHES["cuda.preferred_linalg_library"], "magma", "set")

    assert variables(wanted) == {
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
        "TORCH_BLAS_PREFER_CUBLASLT": "1",
        "MLBACKENDS_CUDA_PREFERRED_LINALG_LIBRARY": "magma",
    }


def test_the_environment_comes_before_the_file(tmp_path: Any) -> None:
    file = tmp_path / "flags.toml"
    file.write_text("fp32_precision = 'tf32'\n[cudnn]\nbenchmark = true\n")
    environment = {FILE_VARIABLE: str(file), "MLBACKENDS_FP32_PRECISION": "ieee"}

    with mock.patch.dict(os.environ, environment, clear=True):
        cells, problems = first_cells()

    assert problems == []
    assert cells["fp32_precision"] == ("ieee", "environment")
    assert cells["cudnn.benchmark"] == (True, "file")


def test_a_variable_with_nonsense_is_ignored_and_told() -> None:
    nonsense = {"TORCH_LINALG_PREFER_CUSOLVER": "https://joe:hunter2@x"}
    with mock.patch.dict(os.environ, nonsense, clear=True):
        cells, problems = first_cells()

    assert cells == untouched()
    said = "Ignoring invalid value for boolean flag TORCH_LINALG_PREFER_CUSOLVER"
    assert problems == [f"{said}: https://redacted@x; valid values are 0 or 1."]


def test_a_variable_of_ours_that_no_switch_has_is_told_with_the_nearest() -> None:
    strange = {
        "MLBACKENDS_CUDNN_BENCHMRAK": "1",
        "MLBACKENDS_XNNPACK_ENABLED": "1",
        "MLBACKENDS_QUANTIZED_ENGINE": "fbgem",
        "MLBACKENDS_TRACE_FILE": "/tmp/x",
        "MLBACKENDS_NATIVE": "off",
        "MLBACKENDS_OBJECTS": "/tmp/objects",
    }
    with mock.patch.dict(os.environ, strange, clear=True):
        cells, problems = first_cells()

    assert cells == untouched()
    engine, xnnpack, unknown = problems
    assert engine.endswith(": fbgem; it is one of fbgemm, qnnpack, onednn, x86; did you mean 'fbgemm'?")
    assert xnnpack.endswith("MLBACKENDS_XNNPACK_ENABLED: 1; xnnpack.enabled is read-only.")
    assert unknown == (
        "Ignoring the variable MLBACKENDS_CUDNN_BENCHMRAK: no switch has it;"
        " did you mean MLBACKENDS_CUDNN_BENCHMARK?"
    )


def test_of_many_problems_an_error_tells_the_first() -> None:
    said = as_error([f"Ignoring the variable X{number}." for number in range(5)])

    assert said == "the variable X0. the variable X1. the variable X2. And 2 more."
