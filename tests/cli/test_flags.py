"""`backends flags`, run as a user does."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from running import backends

from mlbackends.sdpa import avoiding
from mlbackends.sdpa.switches import SWITCHES as ATTENTION
from mlbackends.sdpa.switches import SDPBackend
from mlbackends.switches.table import SWITCHES

if TYPE_CHECKING:
    from pathlib import Path


def test_list_names_every_switch_with_value_default_origin_and_who_obeys() -> None:
    done = backends("flags", "list", "--format", "json")

    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["schema"] == "backends.flags/1"
    assert [flag["name"] for flag in told["flags"]] == list(SWITCHES)
    benchmark = next(flag for flag in told["flags"] if flag["name"] == "cudnn.benchmark")
    assert benchmark["value"] is False
    assert benchmark["default"] is False
    assert benchmark["origin"] == "default"
    assert benchmark["used_by"] == ["torch"]


def test_a_variable_gives_the_value_and_the_origin() -> None:
    done = backends("flags", "list", "cudnn", "--changed", environment={"MLBACKENDS_CUDNN_BENCHMARK": "1"})

    assert "benchmark  true (environment; default false)  torch" in done.stdout
    assert "deterministic" not in done.stdout


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_the_list_says_if_no_switch_has_changed(form: str) -> None:
    assert backends("flags", "list", "--changed", "--format", form).stdout == (
        "no switch differs from its default\n"
    )
    assert backends("flags", "list", "cudnn", "--changed", "--format", form).stdout == (
        "no switch of cudnn differs from its default\n"
    )


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("cudnn.benchmark",), "false\n"),
        (("cudnn.benchmark", "--set", "cudnn.benchmark=on"), "true\n"),
        (("fp32_precision", "--set", "fp32_precision=ieee"), "ieee\n"),
        (("cudnn.conv.fp32_precision", "--set", "fp32_precision=ieee"), "ieee\n"),
        (("cuda.matmul.allow_fp16_reduced_precision_reduction",), "true\n"),
        (("mkl.num_threads",), "null\n"),
        (("openmp.num_threads", "--set", "openmp.num_threads=4,2"), "4,2\n"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_get_prints_one_bare_value(arguments: tuple[str, ...], printed: str) -> None:
    done = backends("flags", "get", *arguments)

    assert (done.returncode, done.stdout) == (0, printed)


def test_get_says_why_an_older_switch_has_no_value() -> None:
    done = backends("flags", "get", "cuda.matmul.allow_tf32", "--set", "cuda.matmul.fp32_precision=tf32")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "mix of the legacy and new APIs" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("get", "cudnn"), "cudnn is a group, not a switch: cudnn.enabled, cudnn.benchmark, "),
        (("get", "zzzzzz"), "hint: `backends flags list` lists them all"),
        (("get", "z" * 9999), "there is no switch named 'zzzz"),
        (("env", "--set", "mkldnn.verbose_level=1\nX=2", "--format", "dotenv"), "a dotenv file cannot"),
        (("list", "--set", "cuda.matmul.allow_tf32=1", "--set", "cuda.matmul.fp32_precision=ieee"),
         "contradict each other"),
        (("get", "cudnn.benchmrk"), "did you mean 'cudnn.benchmark'?"),
        (("list", "cudn"), "did you mean 'cudnn'?"),
        (("list", "--set", "cudnn.benchmark"), "is not a setting"),
        (("list", "--set", "cudnn.benchmark=maybe"), "valid values are true or false"),
        (("list", "--set", "fp32_precision=tf23"), "did you mean 'tf32'?"),
        (("list", "--set", "xnnpack.enabled=true"), "read-only"),
        (("env", "--set", "cudnn.benchmark=1", "--set", "cudnn.benchmark=0"), "is set twice"),
        (("env", "--flags", "/nonexistent/run.toml"), "No such file"),
        (("check", "/dev/null/x"), "cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_what_is_asked_wrongly_ends_with_2_and_one_clear_line(arguments: tuple[str, ...], said: str) -> None:
    done = backends("flags", *arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert max(map(len, done.stderr.splitlines())) < 500


def test_list_and_check_tell_what_an_older_torch_lacks(tmp_path: Path) -> None:
    info = tmp_path / "torch-2.13.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    file = tmp_path / "run.toml"
    file.write_text("[cuda.matmul]\nfp32_precision = 'bfx9'\nallow_fp16_accumulation = true\n")
    here = {"PYTHONPATH": str(tmp_path)}

    listed = backends("flags", "list", "cuda.matmul", "--flags", str(file), environment=here)
    records = backends("flags", "list", "--format", "json", environment=here)
    done = backends("flags", "check", str(file), environment=here)

    note = " ".join(listed.stdout.split())
    assert "torch 2.13.0 is installed here, and these need a newer one:" in note
    assert "cuda.matmul.fp32_precision (2.15), cuda.matmul.prefer_cublaslt_grouped_gemm (2.14)" in note
    lacked = {flag["name"] for flag in json.loads(records.stdout)["flags"] if flag["lacking"]}
    assert lacked == {name for name, switch in SWITCHES.items() if switch.since}
    assert done.returncode == 0
    assert "cuda.matmul.fp32_precision=bfx9 needs torch 2.15; installed here is torch 2.13.0" in done.stderr


def test_check_reads_standard_input() -> None:
    right = backends("flags", "check", "-", data="cudnn.benchmark = true\n")
    wrong = backends("flags", "check", "-", data="\ncudnn.benchmrak = true\n")

    assert (right.returncode, right.stdout) == (0, "standard input: 1 switch, all right\n")
    assert wrong.returncode == 2
    assert "standard input:2: there is no switch named 'cudnn.benchmrak'" in wrong.stderr


def test_check_without_a_file_looks_at_the_variables() -> None:
    wrong = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "yes"}

    done = backends("flags", "check", environment=wrong)
    listed = backends("flags", "list", "cuda.matmul", environment=wrong)

    assert done.returncode == 2
    assert "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE: yes; valid values are 0 or 1" in done.stderr
    assert listed.returncode == 0
    assert "Ignoring invalid value" in listed.stderr


def test_env_prints_variables_that_give_the_same_state_again(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        "fp32_precision = 'ieee'\n"
        "[cuda]\npreferred_blas_library = 'cublaslt'\npreferred_linalg_library = 'magma'\n"
        "cublas_workspace_size = 8192\n"
        "[cuda.matmul]\nallow_tf32 = true\nallow_bf16_reduced_precision_reduction = [false, false]\n"
        "[openmp]\nnum_threads = 3\n"
    )

    exports = backends("flags", "env", "--shell", "sh", "--flags", str(file)).stdout
    lines = [shlex.split(line) for line in exports.splitlines()]
    variables = dict(line[1].split("=", 1) for line in lines)
    again = backends("flags", "list", "--format", "json", environment=variables)
    there = backends("flags", "list", "--format", "json", "--flags", str(file))

    def values(text: str) -> dict[str, object]:
        return {flag["name"]: flag["value"] for flag in json.loads(text)["flags"]}

    assert all(line[0] == "export" for line in lines)
    assert variables["TORCH_BLAS_PREFER_CUBLASLT"] == "1"
    assert variables["OMP_NUM_THREADS"] == "3"
    assert values(again.stdout) == values(there.stdout)


def test_env_writes_what_docker_reads_and_json() -> None:
    settings = ("--set", "cudnn.benchmark=true", "--set", "mkldnn.verbose_level=dispatch,profile")

    dotenv = backends("flags", "env", "--format", "dotenv", *settings).stdout
    object_ = backends("flags", "env", "--format", "json", *settings).stdout

    assert "ONEDNN_VERBOSE=dispatch,profile\n" in dotenv
    assert json.loads(object_) == dict(line.split("=", 1) for line in dotenv.splitlines())


@pytest.mark.parametrize("columns", [80, 100, 40])
def test_the_list_breaks_lines_between_words_alone(columns: int) -> None:
    done = backends("flags", "list", environment={"COLUMNS": str(columns)})

    words = done.stdout.split()
    assert max(map(len, done.stdout.splitlines())) <= max(columns, 42)
    for name in SWITCHES:
        if not name.endswith("_split_k"):
            assert name.rpartition(".")[2] in words
    for name in ("flash_attention", "efficient_attention", "overrideable", "oneDNN,", "torch"):
        assert name in words


def test_what_is_known_to_be_wrong_on_a_device_is_switched_off() -> None:
    done = backends("flags", "env", "--avoid-known-wrong", "--device", "h100", "--format", "json")
    variables = json.loads(done.stdout)

    for report in avoiding.torch_reports("h100"):
        assert report.source in done.stderr
    for name in avoiding.known_wrong_kinds("h100"):
        assert variables[SWITCHES[ATTENTION[SDPBackend[name]]].variable] == "0"


def test_without_a_report_the_assumed_torch_is_named() -> None:
    done = backends("flags", "env", "--avoid-known-wrong", "--device", "gaudi 3")
    assert done.stdout == "" and "no report of wrong numbers is about this device; torch" in done.stderr


def test_a_device_without_the_option_that_reads_it_is_refused() -> None:
    done = backends("flags", "env", "--device", "h100")
    assert done.returncode == 2
    assert "--device goes with --avoid-known-wrong" in done.stderr
