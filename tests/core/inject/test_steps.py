"""What carries each switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.inject.steps import plan
from mlbackends.switches import store
from mlbackends.switches.files import from_data
from mlbackends.switches.table import SWITCHES

if TYPE_CHECKING:
    from mlbackends.switches.table import Switch

SETTABLE = [flag for flag in SWITCHES.values() if not flag.read_only]
# mkldnn.allow_tf32 is None everywhere but in a torch for Intel GPUs.
OURS_TOO = [flag for flag in SETTABLE if flag.name != "mkldnn.allow_tf32"]
SAMPLES = {
    "bool": True,
    "bool or two": (False, False),
    "int": 4096,
    "order": (4, 3, 2, 1, 0),
    "text": "2",
    "counts": "2",
}


def sample(name: str) -> object:
    if name == "cpu.capability":  # the other words are one architecture's each
        return "default"
    kind = SWITCHES[name].kind
    return getattr(kind, "words", ("",))[-1] if kind.name == "word" else SAMPLES[kind.name]


@pytest.mark.parametrize("flag", SETTABLE, ids=lambda flag: flag.name)
def test_every_switch_is_carried_by_a_variable_and_where_torch_has_a_setter_by_it(
    flag: Switch,
) -> None:
    made = plan({flag.name: sample(flag.name)})
    assert [text for text in made.variables.values() if text is not None]
    said_to_torch = [
        name for name, text in made.variables.items() if text and not name.startswith("MLBACKENDS_")
    ]
    if flag.of_torch and not said_to_torch:
        assert made.steps[0].writes
    for step in made.steps:
        assert from_data(flag, step.value) == sample(flag.name)


@pytest.mark.parametrize("flag", OURS_TOO, ids=lambda flag: flag.name)
def test_our_own_library_starts_with_it_and_says_that_the_environment_did(
    flag: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = sample(flag.name)
    for name, text in plan({flag.name: value}).variables.items():
        if text is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, text)
    store.forget()
    try:
        found, origin = store.read(flag.name), store.origin(flag.name)
    finally:
        store.forget()
    assert found == (value[0] if flag.kind.name == "bool or two" else value)  # type: ignore[index]
    assert origin == "environment"


def test_what_a_library_reads_itself_needs_no_hook() -> None:
    made = plan({"mkl.num_threads": 3, "mkldnn.default_fpmath_mode": "BF16", "openmp.num_threads": "4,2"})
    assert made.variables == {
        "MKL_NUM_THREADS": "3",
        "ONEDNN_DEFAULT_FPMATH_MODE": "BF16",
        "OMP_NUM_THREADS": "4,2",
    }
    assert made.steps == ()


def test_a_value_that_torchs_variable_says_is_only_read_back() -> None:
    made = plan({"cuda.preferred_linalg_library": "cusolver"})
    assert made.variables == {
        "TORCH_LINALG_PREFER_CUSOLVER": "1",
        "TORCH_LINALG_PREFER_HIPSOLVER": None,
        "MLBACKENDS_CUDA_PREFERRED_LINALG_LIBRARY": None,
    }
    assert not made.steps[0].writes
    assert made.steps[0].reads


def test_a_value_that_torchs_variable_cannot_say_is_set_by_the_hook() -> None:
    made = plan({"cuda.preferred_linalg_library": "magma"})
    assert made.variables["TORCH_LINALG_PREFER_CUSOLVER"] is None
    assert made.variables["MLBACKENDS_CUDA_PREFERRED_LINALG_LIBRARY"] == "magma"
    assert made.steps[0].call == "torch.backends.cuda.preferred_linalg_library"


def test_the_older_switch_off_is_ieee_which_its_variable_cannot_say() -> None:
    made = plan({"cuda.matmul.allow_tf32": False})
    assert made.variables["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] is None
    assert made.variables["MLBACKENDS_CUDA_MATMUL_FP32_PRECISION"] == "ieee"
    assert made.steps[0].argument is False


def test_variables_of_entries_that_a_switch_bridges_to_are_taken_away() -> None:
    made = plan({"float32_matmul_precision": "high"})
    assert made.variables["MLBACKENDS_CUDA_MATMUL_FP32_PRECISION"] is None
    assert made.variables["MLBACKENDS_MKLDNN_MATMUL_FP32_PRECISION"] is None


def test_older_switches_are_set_before_newer_ones_in_whatever_order_they_are_given() -> None:
    values = {"cuda.matmul.fp32_precision": "tf32", "float32_matmul_precision": "high"}
    names = [step.name for step in plan(values).steps]
    assert names == ["float32_matmul_precision", "cuda.matmul.fp32_precision"]


def test_onednns_own_precision_is_set_where_the_attribute_would_write_everybodys() -> None:
    step = plan({"mkldnn.fp32_precision": "bf16"}).steps[0]
    assert (step.attribute, step.call, step.keyword) == (
        "",
        "torch.backends.mkldnn.set_flags",
        "_fp32_precision",
    )


def test_a_strategy_that_torchs_function_refuses_is_assigned() -> None:
    by_function = plan({"opt_einsum.strategy": "greedy"}).steps[0]
    assigned = plan({"opt_einsum.strategy": "branch-2"}).steps[0]
    assert by_function.call == "torch.backends.opt_einsum.set_flags"
    assert assigned.attribute == "torch.backends.opt_einsum.strategy"


def test_an_order_goes_to_torch_as_numbers_and_stays_as_it_is_set() -> None:
    made = plan({"cuda.sdp_priority_order": (4, 3, 2, 1, 0)})
    assert made.steps[0].argument == [4, 3, 2, 1, 0]
    assert made.variables["TORCH_CUDNN_SDPA_DEPRIORITIZED"] == "1"


def test_who_wants_cudnn_first_after_all_can_say_so() -> None:
    values = {"cuda.sdp_priority_order": (4, 3, 2, 1, 0), "cuda.cudnn_sdp_deprioritized": False}
    assert plan(values).variables["TORCH_CUDNN_SDPA_DEPRIORITIZED"] == "0"


def test_split_k_is_read_back_only_where_it_is_forbidden() -> None:
    name = "cuda.matmul.allow_fp16_reduced_precision_reduction"
    alone, both = plan({name: (False, True)}).steps[0], plan({name: (False, False)}).steps[0]
    assert (alone.argument, len(alone.reads)) == (False, 1)
    assert (both.argument, len(both.reads)) == ([False, False], 2)


def test_none_leaves_a_switch_to_its_library() -> None:
    made = plan({"mkl.num_threads": None, "cudnn.benchmark_limit": None})
    assert made.variables == {"MKL_NUM_THREADS": None, "MLBACKENDS_CUDNN_BENCHMARK_LIMIT": None}
    assert made.steps == ()


def test_a_workspace_is_not_asked_for_since_that_starts_cuda() -> None:
    made = plan({"cuda.cublas_workspace_size": 32 << 20})
    assert made.variables == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    assert made.steps == ()
