"""Each deviation of mlbackends.switches.deviations, side by side: torch does this, we do that."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builds import without_cuda

import mlbackends
from mlbackends.switches import store
from mlbackends.switches.deviations import DEVIATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fresh_switches")]

#: Where another file has the test: by file, the code and how the test's name begins.
ELSEWHERE = {
    "test_sdpa_agrees.py": {
        "attention-mask-with-causal": "test_a_mask_beside_causal_is_refused_as_documented_where",
        "attention-lengths-checked": "test_lengths_that_differ_are_refused_where_torchs_flash",
        "attention-gradients-again": "test_gradients_of_flash_are_differentiated_here_and_not_by_torch",
        "attention-dropout-is-a-probability": "test_dropout_that_is_no_probability_is_none_to",
        "attention-keeps-nan": "test_nan_in_the_query_is_zero_to_torchs_flash_and_nan_here",
        "attention-takes-no-nested-tensors": "test_nested_tensors_are_computed_by_torchs_formula",
        "attention-gives-all-reasons": "test_reasons_are_warnings_in_torch_and_in_the_exception",
        "priority-order-restored": "test_the_whole_order_comes_back_where_torchs_leaks",
        "priority-order-obeyed-on-the-cpu": "test_the_order_is_ignored_by_torch_on_the_cpu_and",
        "sdpa-kernel-takes-backends": "test_what_torch_takes_for_none_at_all_is_refused",
        "causal-bias-keeps-its-shape": "test_a_causal_mask_of_another_shape_is_cut_by_torch_from",
        "set-priority-is-a-bool": "test_a_priority_that_is_no_bool_is_true_or_false_to_torch",
        "dropout-has-its-own-weights": "test_torchs_seed_repeats_what_is_dropped",
        "attention-flash-drops": "test_flash_drops_here_and_torchs_alone_refuses",
    },
    "test_cuda_settings_agree.py": {
        "preferred-library-is-installed": "test_a_library_is_that_of_the_build_in_torch_and_that",
        "plan-cache-names-checked": "test_an_unknown_name_of_plan_caches_asks_for_a_device_in",
    },
    "test_verbose_agree.py": {
        "verbose-scopes-nest": "test_an_inner_exit_silences_torchs_outer_scope_and_not_ours",
        "verbose-level-0-silences": "test_level_0_silences_in_ours_and_does_nothing_in_torch",
        "verbose-levels-are-integers": "test_0_point_0_is_level_0_in_torch_and_a_wrong_type_here",
        "verbose-reaches-every-copy": "test_a_copy_beside_torchs_own_is_switched_here_alone",
    },
    "test_python_native_agrees.py": {
        "dsl-controllers-stay": "test_torch_lets_a_dsl_be_overwritten_and_we_do_not",
        "dsl-enabled-is-a-bool": "test_torch_takes_any_value_for_enabled_and_we_take_a_bool",
    },
    "test_run_cpu_agrees.py": {
        "launcher-refuses-misuse": "test_too_few_cores_are_taken_as_they_are_by_torch_and",
        "launcher-checks-core-lists": "test_a_core_list_is_taken_as_it_comes_by_torch_and_checked",
        "launcher-drops-no-option": "test_options_beside_a_core_list_are_dropped_by_torch_and",
        "launcher-runs-modules": "test_a_module_is_refused_by_torch_and_runs_here",
        "launcher-passes-arguments": "test_arguments_of_the_program_may_end_torch_and_pass_here",
        "launcher-logs-are-files": "test_logs_are_printed_with_a_tag_by_torch_and_only_written_here",
        "launcher-one-size": "test_several_sizes_are_accepted_by_torch_and_refused_here",
        "launcher-keeps-to-its-cpus": "test_cpus_of_others_are_used_by_torch_and_not_by_us",
        "launcher-instances-stay-on-a-node": "test_throughput_on_uneven_nodes_spans_them_in_torch",
        "launcher-instances-share-no-core": "test_instances_of_hyper_threads_share_cores_in_torch",
        "launcher-binds-by-itself": "test_without_numactl_and_taskset_torch_gives_up_and_our",
        "launcher-splits-no-ranks": "test_below_torchrun_cores_are_split_by_torch_and_must_be",
        "launcher-iomp-affinity": "test_threads_of_iomp_wander_where_a_core_is_shared_here_and",
        "launcher-keeps-preloads": "test_a_library_that_the_loader_finds_is_dropped_by_torch_and",
    },
}
shown: set[str] = set()


def shows(code: str) -> Callable[[Any], Any]:
    """Mark a test as the one that shows a deviation."""
    shown.add(code)
    return lambda test: test


@contextlib.contextmanager
def put_back(read: Callable[[], Any], write: Callable[[Any], Any]) -> Iterator[None]:
    """Put a switch of torch's back on leaving."""
    found = read()
    try:
        yield
    finally:
        write(found)


def warned(action: Callable[[], Any]) -> list[type[Warning]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [warning.category for warning in caught]


def test_each_deviation_is_shown_by_a_test() -> None:
    elsewhere = [code for tests in ELSEWHERE.values() for code in tests]
    assert sorted([*shown, *elsewhere]) == sorted(deviation.code for deviation in DEVIATIONS)
    for file, tests in ELSEWHERE.items():
        written = Path(__file__).with_name(file).read_text()
        assert [name for name in tests.values() if f"\ndef {name}" not in written] == []


# ---- names --------------------------------------------------------------------


@shows("unknown-name-refused")
@pytest.mark.parametrize(
    "name",
    [
        "", "cpu", "cuda", "cudnn", "cudnn.rnn", "cusparselt", "kleidiai", "mha", "miopen", "mkl", "mkldnn",
        "mps", "nnpack", "openmp", "opt_einsum", "python_native", "quantized", "xeon", "xnnpack",
    ],
)  # fmt: skip
@pytest.mark.parametrize("typo", ["nosuch", "benchmrak", "enabeld", "fp32_precison"])
def test_a_typo_is_taken_by_torch_and_refused_here(name: str, typo: str) -> None:
    theirs = importlib.import_module(f"torch.backends.{name}".strip("."))
    ours = importlib.import_module(f"mlbackends.{name}".strip("."))
    setattr(theirs, typo, 1)
    delattr(theirs, typo)

    with pytest.raises(AttributeError, match=typo):
        setattr(ours, typo, 1)
    assert not hasattr(ours, typo)


@shows("functions-take-no-value")
@pytest.mark.parametrize("name", ["preferred_blas_library", "enable_flash_sdp"])
def test_a_value_replaces_torchs_function_and_is_refused_here(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda, name, "cublaslt")
    assert getattr(torch.backends.cuda, name) == "cublaslt"

    with pytest.raises(AttributeError, match=name):
        setattr(mlbackends.cuda, name, "cublaslt")
    assert callable(getattr(mlbackends.cuda, name))


@shows("all-modules-are-there")
def test_torch_does_not_import_all_of_its_modules() -> None:
    asked = "print(hasattr({0}, 'xeon'), hasattr({0}, 'xnnpack'))"
    said = [
        subprocess.run(
            [sys.executable, "-c", f"import {package}; {asked.format(package)}"],
            capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout.split()
        for package in ("torch.backends", "mlbackends")
    ]  # fmt: skip
    assert said == [["False", "False"], ["True", "True"]]


@shows("module-is-one-object")
def test_m_is_another_object_in_torch_and_the_same_here() -> None:
    assert torch.backends.cudnn.m is not torch.backends.cudnn
    ours: Any = mlbackends.cudnn
    assert ours.m is ours is sys.modules["mlbackends.cudnn"]


@shows("types-by-name")
def test_types_of_numbers_are_objects_in_torch_and_names_here() -> None:
    assert torch.float16 in torch.backends.cudnn.CUDNN_TENSOR_DTYPES
    assert "float16" in mlbackends.cudnn.CUDNN_TENSOR_DTYPES


@shows("known-wrong-kinds-avoided")
def test_torchs_scope_does_not_know_wrong_numbers() -> None:
    with pytest.raises(TypeError):
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH, avoid_known_wrong=True)
    with mlbackends.sdpa_kernel(mlbackends.SDPBackend.MATH, avoid_known_wrong=True):
        assert mlbackends.cuda.math_sdp_enabled()


@shows("causal-bias-is-no-tensor")
def test_a_causal_bias_is_a_tensor_in_torch_and_none_here() -> None:
    theirs = importlib.import_module("torch.nn.attention.bias")
    assert isinstance(theirs.causal_lower_right(2, 3), torch.Tensor)
    assert not isinstance(mlbackends.causal_lower_right(2, 3), torch.Tensor)


@shows("sdp-backend-is-an-enum")
def test_a_backend_that_is_none_is_made_by_torch_and_refused_here() -> None:
    assert int(torch.nn.attention.SDPBackend(7)) == 7
    with pytest.raises(ValueError, match="7"):
        mlbackends.SDPBackend(7)


@shows("launcher-has-no-logger")
def test_the_launcher_has_a_logger_in_torch_and_none_here() -> None:
    theirs = importlib.import_module("torch.backends.xeon.run_cpu")
    ours = importlib.import_module("mlbackends.xeon.run_cpu")
    for name in ("logger", "format_str"):
        assert hasattr(theirs, name)
        assert not hasattr(ours, name)


# ---- values -------------------------------------------------------------------


@shows("words-are-text")
def test_bytes_are_a_word_in_torch_and_none_here() -> None:
    torch.backends.mkldnn.matmul.fp32_precision = b"none"
    with pytest.raises(TypeError, match="bytes"):
        mlbackends.mkldnn.matmul.fp32_precision = b"none"  # type: ignore[assignment]


@shows("matmul-precision-word-refused")
@pytest.mark.parametrize("word", ["hihg", "HIGH", "tf32", ""])
def test_an_unknown_precision_is_a_warning_in_torch_and_an_error_here(word: str) -> None:
    before = torch.get_float32_matmul_precision()
    assert warned(lambda: torch.set_float32_matmul_precision(word)) == [UserWarning]
    assert torch.get_float32_matmul_precision() == before

    with pytest.raises(RuntimeError, match="highest, high, medium"):
        mlbackends.set_float32_matmul_precision(word)
    assert mlbackends.get_float32_matmul_precision() == "highest"


@shows("mkldnn-precision-is-its-own")
def test_onednns_precision_is_everybodys_in_torch_and_its_own_here() -> None:
    assert torch.backends.fp32_precision == "none"
    torch.backends.mkldnn.fp32_precision = "bf16"
    try:
        assert torch.backends.fp32_precision == "bf16"
    finally:
        torch.backends.fp32_precision = "none"

    mlbackends.mkldnn.fp32_precision = "bf16"
    assert (mlbackends.fp32_precision, mlbackends.mkldnn.fp32_precision) == ("none", "bf16")
    assert mlbackends.mkldnn.conv.fp32_precision == "bf16"


@shows("all-or-nothing")
def test_a_refused_scope_leaves_torchs_cudnn_disabled_and_ours_as_it_was() -> None:
    theirs = torch.backends.cudnn
    with put_back(lambda: theirs.enabled, lambda value: setattr(theirs, "enabled", value)):
        with pytest.raises(RuntimeError), theirs.flags(benchmark=1):
            pass
        assert theirs.enabled is False

    with pytest.raises(RuntimeError), mlbackends.cudnn.flags(benchmark=1):  # type: ignore[arg-type]
        pass
    assert mlbackends.cudnn.enabled is True


@shows("all-or-nothing")
@without_cuda
def test_a_refused_library_is_kept_by_torch_and_not_by_us(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = torch.backends.cuda.preferred_linalg_library
    with put_back(theirs, theirs):
        with pytest.raises(RuntimeError):
            theirs("cusolver")
        assert theirs().name == "Cusolver"

    monkeypatch.setattr("mlbackends.cuda.preferences._found_by_probe", lambda *_: False)
    with pytest.raises(RuntimeError, match="cuSOLVER"):
        mlbackends.cuda.preferred_linalg_library("cusolver")
    assert mlbackends.cuda.preferred_linalg_library().name == "Default"


@shows("scopes-restore-inheritance")
def test_a_scope_cuts_cudnns_convolutions_off_in_torch_and_not_here() -> None:
    program = """if True:
        import {0} as backends
        with backends.cudnn.flags(): pass
        backends.fp32_precision = 'ieee'
        print(backends.cudnn.conv.fp32_precision, backends.cudnn.rnn.fp32_precision)
        """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", program.format(package)],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout.split()
        for package in ("torch.backends", "mlbackends")
    ]  # fmt: skip
    assert said == [["tf32", "tf32"], ["ieee", "ieee"]]


@shows("scopes-ask-no-older-switch")
def test_a_scope_beside_the_newer_switches_is_refused_by_torch_and_entered_here() -> None:
    theirs = torch.backends.cudnn
    theirs.conv.fp32_precision = "ieee"
    try:
        with pytest.raises(RuntimeError, match="mix of the legacy and new"), theirs.flags():
            pass
    finally:
        theirs.allow_tf32 = True

    mlbackends.cudnn.conv.fp32_precision = "ieee"
    with mlbackends.cudnn.flags(enabled=True, fp32_precision="tf32"):
        assert mlbackends.cudnn.allow_tf32 is True
    assert mlbackends.cudnn.conv.fp32_precision == "ieee"
    with pytest.raises(RuntimeError, match="mix of the legacy and new"):
        mlbackends.cudnn.set_flags()


@shows("flags-warn-of-disabling")
def test_flags_disable_cudnn_in_silence_in_torch_and_with_one_warning_here() -> None:
    def enter(module: Any) -> None:
        with module.flags(benchmark=True):
            assert (module.enabled, module.benchmark) == (False, True)
        assert (module.enabled, module.benchmark) == (True, False)

    assert warned(lambda: enter(torch.backends.cudnn)) == []
    assert warned(lambda: enter(mlbackends.cudnn)) == [UserWarning]
    assert warned(lambda: enter(mlbackends.cudnn)) == []


@shows("mkldnn-flags-are-quiet")
def test_flags_of_onednn_warn_of_tf32_in_torch_and_not_here() -> None:
    def enter(module: Any) -> None:
        with module.flags(enabled=True):
            assert module.allow_tf32 is None

    assert warned(lambda: enter(torch.backends.mkldnn)) == [UserWarning]
    assert warned(lambda: enter(mlbackends.mkldnn)) == []


@shows("benchmark-limit-is-a-number")
@without_cuda
def test_the_limit_of_cudnns_benchmark_is_anything_in_torch_and_a_number_here() -> None:
    theirs: Any = torch.backends.cudnn
    # It is no descriptor where there is no cuDNN, so the assignment has made an attribute.
    with put_back(lambda: None, lambda _: delattr(theirs, "benchmark_limit")):
        theirs.benchmark_limit = "many"
        assert theirs.benchmark_limit == "many"

    with pytest.raises(TypeError, match="an int"):
        mlbackends.cudnn.benchmark_limit = "many"  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="non-negative"):
        mlbackends.cudnn.benchmark_limit = -1
    mlbackends.cudnn.benchmark_limit = 3
    assert mlbackends.cudnn.benchmark_limit == 3


@shows("fastpath-is-a-bool")
def test_the_fast_path_is_anything_in_torch_and_a_bool_here() -> None:
    theirs: Any = torch.backends.mha
    with put_back(theirs.get_fastpath_enabled, theirs.set_fastpath_enabled):
        theirs.set_fastpath_enabled("off")
        assert theirs.get_fastpath_enabled() == "off"

    with pytest.raises(RuntimeError, match="expects a bool"):
        mlbackends.mha.set_fastpath_enabled("off")  # type: ignore[arg-type]
    assert mlbackends.mha.get_fastpath_enabled() is True


@pytest.fixture
def einsum() -> Iterator[Any]:
    """Give torch's opt_einsum, which is left as it was."""
    theirs = torch.backends.opt_einsum
    if not theirs.is_available():
        pytest.skip("opt_einsum is not installed here")
    yield theirs
    for name in ("enabled", "strategy"):
        vars(theirs).pop(name, None)
    theirs.set_flags(True, "auto")


@shows("einsum-switches-checked")
def test_an_assignment_hides_torchs_einsum_switch_and_sets_ours(einsum: Any) -> None:
    einsum.enabled = "no"
    with einsum.flags(enabled=True):
        assert einsum.enabled == "no"

    with pytest.raises(RuntimeError):
        mlbackends.opt_einsum.enabled = "no"  # type: ignore[assignment]
    mlbackends.opt_einsum.enabled = False
    with mlbackends.opt_einsum.flags(enabled=True):
        assert mlbackends.opt_einsum.enabled is True
    assert mlbackends.opt_einsum.enabled is False


@shows("einsum-strategies-of-opt-einsum")
def test_torchs_flags_know_three_strategies_and_ours_all_without_arguments(einsum: Any) -> None:
    with pytest.raises(ValueError, match="auto-hq"), einsum.flags(strategy="auto-hq"):
        pass

    with mlbackends.opt_einsum.flags(strategy="auto-hq"):
        assert mlbackends.opt_einsum.strategy == "auto-hq"
    for module in (einsum, mlbackends.opt_einsum):
        with pytest.raises(ValueError, match="bogus"):
            module.set_flags(None, "bogus")


@shows("einsum-flags-restore")
def test_leaving_a_scope_of_einsum_fails_in_torch_and_restores_here(einsum: Any) -> None:
    einsum.set_flags(False)
    with pytest.raises(ValueError, match="not enabled"), einsum.flags(True, "greedy"):
        pass

    mlbackends.opt_einsum.set_flags(False)
    with mlbackends.opt_einsum.flags(True, "greedy"):
        assert mlbackends.opt_einsum.strategy == "greedy"
    assert (mlbackends.opt_einsum.enabled, mlbackends.opt_einsum.strategy) == (False, "auto")


@shows("cxx-warnings-are-warnings")
def test_a_warning_of_torchs_is_printed_and_ours_is_a_warning() -> None:
    theirs, ours = (package.cuda.preferred_blas_library for package in (torch.backends, mlbackends))
    with put_back(theirs, theirs):
        assert warned(lambda: theirs("ck")) == []
    assert warned(lambda: ours("ck")) == [UserWarning]


@shows("workspaces-without-cuda")
@pytest.mark.parametrize("name", ["cublas_workspace_size", "cublaslt_workspace_size"])
def test_a_workspace_has_a_size_here_and_none_in_a_torch_without_cuda(name: str) -> None:
    if torch.version.cuda:
        pytest.skip("this torch has CUDA")
    with pytest.raises(AttributeError):
        getattr(torch.backends.cuda, name)(1 << 20)

    assert getattr(mlbackends.cuda, name)(1 << 20) == 1 << 20
    assert store.read(f"cuda.{name}") == 1 << 20


@shows("variables-are-checked-together")
def test_a_variable_with_nonsense_is_told_at_the_first_touch_here_and_later_in_torch() -> None:
    def run(program: str) -> subprocess.CompletedProcess[str]:
        nonsense = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "yes", "TORCH_DISABLE_NATIVE_JIT": "yes"}
        variables = {**os.environ, **nonsense, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-W", "always", "-c", program]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    # A torch with CUDA beside Triton ends at its import, with a ValueError of the other variable.
    assert "SDPA_DEPRIORITIZED" not in run("import torch; torch.backends.cudnn.enabled").stderr
    said = run("import mlbackends; mlbackends.cudnn.enabled").stderr
    assert "TORCH_CUDNN_SDPA_DEPRIORITIZED: yes; valid values are 0 or 1" in said
    assert "TORCH_DISABLE_NATIVE_JIT: yes; valid values are 0 or 1" in said


# ---- attention ----------------------------------------------------------------


@shows("priority-order-checked")
@pytest.mark.parametrize("order", [[0, 0, 0, 0, 0], [2], [9, 1, 2, 3, 4], []])
def test_an_order_is_not_checked_by_torch_and_is_here(order: list[int]) -> None:
    with put_back(torch._C._get_sdp_priority_order, torch._C._set_sdp_priority_order):
        torch._C._set_sdp_priority_order(order)

    with pytest.raises(RuntimeError, match="each of 0 to 4 once"):
        store.write("cuda.sdp_priority_order", order)
    assert store.read("cuda.sdp_priority_order") == (1, 2, 0, 3, 4)


@shows("can-use-gives-reasons")
@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_reasons_are_told_here_and_not_by_a_torch_without_cuda(kind: str) -> None:
    if torch.version.cuda:
        pytest.skip("this torch has CUDA")
    tensor = torch.zeros(1, 1, 2, 8)

    def ask(cuda: Any) -> None:
        params = cuda.SDPAParams(tensor, tensor, tensor, None, 0.0, False, False)
        assert getattr(cuda, f"can_use_{kind}_attention")(params, debug=True) is False

    assert warned(lambda: ask(torch.backends.cuda)) == []
    assert UserWarning in warned(lambda: ask(mlbackends.cuda))


@shows("messages-name-the-switch")
def test_messages_name_functions_inside_torch_and_the_switch_here(
    freeze: Callable[[], None],
) -> None:
    def said(action: Callable[[], Any], error: type[Exception]) -> str:
        with pytest.raises(error) as raised:
            action()
        return str(raised.value)

    theirs, ours = (
        said(functools.partial(package.cuda.enable_flash_sdp, 1), RuntimeError)
        for package in (torch.backends, mlbackends)
    )
    assert "set_sdp_use" in theirs
    assert ours == "cuda.flash_sdp expects a bool, but got int"
    theirs, ours = (
        said(functools.partial(package.cuda.preferred_rocm_fa_library, 3), ValueError)
        for package in (torch.backends, mlbackends)
    )
    assert (theirs[:20], ours[:25]) == ("Unknown input value.", "Unknown input value type.")

    freeze()
    theirs, ours = (
        said(lambda: setattr(package.python_native.triton, "enabled", False), RuntimeError)  # noqa: B023
        for package in (torch.backends, mlbackends)
    )
    assert "flags()" in theirs
    assert "flags()" not in ours


# ---- answers, programs ----------------------------------------------------------


@shows("answers-of-this-machine")
@without_cuda
def test_a_library_beside_torch_is_no_part_of_torch_and_found_here(
    monkeypatch: pytest.MonkeyPatch, fake_library: Any
) -> None:
    source = "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 91002; }"
    files = [fake_library("cudnn", f"{name}.so.9", source=source) for name in ("libcudnn", "libcudnn_graph")]
    monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(str(file.parent) for file in files))
    asked = "print({0}.cudnn.is_available(), {0}.cudnn.version())"
    said = [
        subprocess.run(
            [sys.executable, "-c", f"import {package}; {asked.format(package)}"],
            capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout.split()
        for package in ("torch.backends", "mlbackends")
    ]  # fmt: skip
    assert said == [["False", "None"], ["True", "91002"]]


@shows("cudnn-modes-without-cudnn")
def test_a_mode_of_cudnn_is_a_number_without_cudnn_here() -> None:
    if torch.backends.cudnn.is_available():
        pytest.skip("this torch has cuDNN")
    with pytest.raises(AttributeError):
        torch.backends.cudnn.rnn.get_cudnn_mode("LSTM")

    assert mlbackends.cudnn.rnn.get_cudnn_mode("LSTM") == 2
    for module in (torch.backends, mlbackends):
        with pytest.raises(ValueError, match="Unknown mode: LSTMM"):
            module.cudnn.rnn.get_cudnn_mode("LSTMM")


@shows("launcher-exit-code")
@pytest.mark.slow
def test_a_program_that_fails_is_a_success_of_torchs_launcher_and_not_of_ours(
    tmp_path: Path,
) -> None:
    program = tmp_path / "fail.py"
    program.write_text("raise SystemExit(3)\n")
    options = "--ninstances 1 --ncores-per-instance 1 --disable-numactl --disable-taskset"
    options += " --use-default-allocator --disable-iomp"
    codes = [
        subprocess.run(
            [sys.executable, "-m", f"{package}.xeon.run_cpu", *options.split(), str(program)],
            capture_output=True, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).returncode
        for package in ("torch.backends", "mlbackends")
    ]  # fmt: skip
    assert codes == [0, 3]
