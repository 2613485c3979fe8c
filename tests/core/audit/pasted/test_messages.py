"""The table of error messages, and what comes first of all that is known of a text."""

from __future__ import annotations

import re

import pytest

from mlbackends.audit import catalogue, paste
from mlbackends.audit.messages import diagnose, messages
from mlbackends.base.errors import BadInput
from mlbackends.model.audit import Severity, Status

CODES = tuple(messages())


@pytest.mark.parametrize("code", CODES)
def test_an_example_is_found_by_its_own_row_first(code: str) -> None:
    example = messages()[code].example
    found = (name for name, row in messages().items() if re.search(row.pattern, example, re.MULTILINE))
    assert next(found) == code
    assert messages()[code].where or "\n" not in example
    assert diagnose(paste.of_text(example)).checks[0].code == code


def test_there_are_150_rows_whose_codes_are_no_hazards() -> None:
    assert len(CODES) >= 150
    assert not set(CODES) & set(catalogue.codes())


@pytest.mark.parametrize("code", CODES)
def test_a_row_is_complete(code: str) -> None:
    row = messages()[code]
    assert row.sources
    assert row.cause.endswith(".")
    assert row.fix.endswith((".", ")"))
    assert set(row.hazards) <= set(catalogue.codes())
    for source in row.sources:
        assert re.match(r"https://|[\w.-]+/[\w.-]+(#\d+| README)", source), source


ENVIRONMENT = """
PyTorch version: 2.5.1+cu124
CUDA used to build PyTorch: 12.4
OS: Ubuntu 22.04.5 LTS (x86_64)
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090
Nvidia driver version: 570.86.10
[pip3] torch==2.5.1
"""
NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"


def codes(text: str, *, details: bool = False) -> list[str]:
    outcome = diagnose(paste.of_text(text), details=details)
    return [check.code for check in outcome.checks if check.status is Status.FAILED]


def test_a_hazard_that_names_the_cause_gives_the_fix_of_a_message() -> None:
    outcome = diagnose(paste.of_text(ENVIRONMENT + NO_IMAGE))
    check = outcome.checks[0]
    assert [one.code for one in outcome.failed()] == ["no-kernel-image"]
    assert "12.0" in check.why
    assert check.hint.startswith("install torch 2.7")
    assert check.place is not None
    assert check.place.line == 8
    assert check.message == f"line 8: {NO_IMAGE.strip()}"


def test_a_hazard_names_the_line_that_it_rests_on() -> None:
    check = diagnose(paste.of_text(ENVIRONMENT)).checks[0]
    assert check.code == "torch-without-code-for-gpu"
    assert check.message.endswith("line 3: CUDA used to build PyTorch: 12.4")


def test_a_message_of_an_exception_comes_before_hazards_and_before_other_lines() -> None:
    text = f"{ENVIRONMENT}Unable to open /dev/kfd read-write: Permission denied\nValueError: 'x' {CODES[0]}\n"
    text += "RuntimeError: CUDA error: device-side assert triggered\n"
    assert codes(text) == ["cuda-device-assert", "rocm-kfd-forbidden", "torch-without-code-for-gpu"]


def test_errors_come_before_warnings_and_a_vague_message_after_what_says_more() -> None:
    text = "Skipping import of cpp extensions due to incompatible torch version\n"
    text += "RuntimeError: Engine core initialization failed. See root cause above.\n"
    text += "ERROR 03-02 19:49:00 [core.py:783] ValueError: No available memory for the cache blocks.\n"
    expected = ["vllm-no-memory-for-cache", "vllm-engine-failed", "torchao-extensions-skipped"]
    assert codes(text) == expected


def test_of_several_exceptions_the_first_is_the_cause() -> None:
    text = "ImportError: libcudart.so.13: cannot open shared object file\n"
    text += "The above exception was the direct cause of the following exception:\nMemoryError\n"
    assert codes(text) == ["cudart-missing", "cpu-out-of-memory"]


def test_one_line_is_one_message() -> None:
    assert codes("ModuleNotFoundError: No module named 'triton.ops'") == ["triton-ops-gone"]


def test_without_details_there_are_three_at_most() -> None:
    text = "".join(f"{messages()[code].example}\n" for code in CODES)
    assert len(codes(text)) == 3
    assert len(codes(text, details=True)) > 100


def test_what_a_message_means_depends_on_the_machine() -> None:
    message = "AssertionError: Torch not compiled with CUDA enabled"
    on_mac = "- `transformers` version: 4.1\n- Platform: macOS-14.5-arm64-arm-64bit\n"
    assert "mps" in diagnose(paste.of_text(on_mac + message)).checks[0].hint
    assert "--index-url" in diagnose(paste.of_text(message)).checks[0].command


@pytest.mark.parametrize(("target", "words"), [("gfx1151", "RDNA 3.5"), ("gfx1103", "RDNA 3.")])
def test_rdna_3_5_is_not_treated_as_rdna_3(target: str, words: str) -> None:
    gpu = f"PyTorch version: 2.8.0+rocm6.4\nGPU models and configuration: AMD Radeon Graphics ({target})\n\n"
    line = f":1:hip_fatbin.cpp :687 : 1143 us:  No compatible code objects found for: {target}, value of X: 0"
    check = diagnose(paste.of_text(f"{gpu}{line}")).checks[0]
    assert check.code == "hip-no-code-for-gpu"
    assert words in check.why
    assert ("11.5.0" in check.hint) == (target == "gfx1151")


def test_a_value_of_the_text_is_quoted_in_a_command() -> None:
    text = "Package Version\n------- -------\nsetuptools 82.0\nwebrtcvad 2.0.10\n"
    check = diagnose(paste.of_text(text)).checks[0]
    assert check.code == "setuptools-without-pkg-resources"
    assert check.message.endswith("line 3: setuptools 82.0")


def test_an_unknown_exception_is_reported_as_not_known() -> None:
    check = diagnose(paste.of_text("Traceback (most recent call last):\nOddError: strange")).checks[0]
    assert (check.code, check.status) == ("unknown-message", Status.UNKNOWN)
    assert "line 2: OddError: strange" in check.message


def test_with_details_nothing_counts_as_passed() -> None:
    outcome = diagnose(paste.of_text(ENVIRONMENT), details=True)
    assert not outcome.with_status(Status.PASSED)
    assert outcome.with_status(Status.UNKNOWN)


NCCL = """[rank1]:[E ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout: WorkNCCL()
[rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
[rank0]: Error while creating shared memory segment /dev/shm/nccl-7UvZfz (size 9637888)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NCCL,
         ["nccl-shared-memory", "nccl-timeout", "nccl-system-error"]),
        ("RuntimeError: CUDA error: unspecified launch failure\nNVRM: Xid (PCI:0000:41:00): 79, x\n",
         ["gpu-off-the-bus", "cuda-launch-failed"]),
        ('msg="cuda driver library init failure: 999."\nmsg="no compatible GPUs were discovered"\n',
         ["ollama-cuda-missing", "ollama-no-gpu"]),
        ("/usr/bin/ld: cannot find -lcuda\ntorch._inductor.exc.InductorError: CalledProcessError: x\n",
         ["linker-lacks-libcuda", "dynamo-backend-failed"]),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=123.batch.\n", ["process-killed"]),
    ],
)  # fmt: skip
def test_what_follows_from_another_message_comes_after_it(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_known_wrong_numbers_are_shown_where_the_text_is_about_results() -> None:
    listed = "Package Version\n------- -------\njax 0.11.0\n"
    assert codes(listed) == []
    assert codes(f"the gradient is NaN\n{listed}") == ["known-wrong-numbers"]
    assert codes(listed, details=True) == ["known-wrong-numbers"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PyTorch version: 2.9.1\nCUDA used to build PyTorch: None\nOS: macOS 26.1 (arm64)\n", []),
        ("PyTorch version: 2.9.1+cpu\nGPU models and configuration: No CUDA\n", []),
        ("PyTorch version: 2.9.1+cu128\nGPU models and configuration: Could not collect\n", []),
        ("PyTorch version: 2.9.1+cu128\nNvidia driver version: 580.65.06\n", ["torch-cuda-not-available"]),
    ],
)
def test_no_cuda_is_a_finding_only_where_there_is_a_gpu(text: str, expected: list[str]) -> None:
    assert codes(f"{text}Is CUDA available: False\n") == expected


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: no kernel image is available for\nexecution on the device\n",
        "│ RuntimeError: CUDA error: no kernel image is available for execution on th │\n│ e device │\n",
        "[rank1]: RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "web-1  | 2026-05-30 18:28:27.890 | RuntimeError: cudaErrorNoKernelImageForDevice",
        "(EngineCore pid=6) [core.py:708] RuntimeError: cudaErrorNoKernelImageForDevice\nRuntimeError: x",
        "- **Exception Message:** CUDA error: no kernel image is available for execution on the device",
    ],
)
def test_a_message_is_found_behind_prefixes_and_wrapped(text: str) -> None:
    assert codes(f"```text\n{text}\n```")[0] == "no-kernel-image"


def test_torch_s_warning_about_a_gpu_is_an_error_but_for_gb10() -> None:
    line = "UserWarning: Found GPU0 {} which is of compute capability (CC) {}."
    assert codes(line.format("Tesla V100-PCIE-32GB", "7.0")) == ["gpu-not-in-torch-build"]
    assert codes("    PyTorch no longer supports this GPU because it is too old.") == [
        "gpu-not-in-torch-build"
    ]
    with pytest.raises(BadInput):
        codes(line.format("NVIDIA GB10", "12.1"))


def test_the_version_of_the_driver_is_that_of_cuda() -> None:
    line = "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)."
    assert "CUDA 12.2)" in diagnose(paste.of_text(line)).checks[0].why


def test_commands_are_those_of_uv_where_the_text_has_its_commands() -> None:
    error = "ImportError: numpy.core.multiarray failed to import\n"
    first, second = (
        diagnose(paste.of_text(text + error)).checks[0].command for text in ("", "$ uv run main.py\n")
    )
    assert (first, second) == ("pip install 'numpy<2'", "uv pip install 'numpy<2'")
    listed = "(x) me@host:~/x$ uv pip list\nPackage Version\n------- -------\nnumpy 2.3.0\n"
    assert diagnose(paste.of_text(f"{listed}wrong\n")).checks[0].command == "uv pip install 'numpy>=2.3.1'"


def test_rows_of_conda_without_their_heading_are_read() -> None:
    rows = "numpy        2.3.0   py312h33ff503_0 conda-forge\npython       3.12.1  h955ad1f_0 conda-forge\n"
    stated = paste.of_text(f"$ conda list | grep n\n{rows}").stated
    assert stated["packages.distributions.numpy"].value == "2.3.0"
    assert stated["python.manager"].value == "conda"


def test_a_new_major_version_is_not_proposed_for_rare_wrong_numbers() -> None:
    check = diagnose(paste.of_text("NaN\nPackage Version\n------- -------\nnumpy 1.26.4\n")).checks[0]
    assert (check.code, check.command) == ("known-wrong-numbers", "")


DRIVER = "| NVIDIA-SMI 470.256.02   Driver Version: 470.256.02   CUDA Version: 11.4 |\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"{DRIVER}[pip3] torch==2.6.0+cu124", "nvidia-driver-older-than-runtime"),
        (
            "[pip3] torch==2.6.0+cpu\n|   0  Tesla T4  Off  | 00000000:09:00.0 Off |\n" + DRIVER,
            "cpu-build-with-gpu",
        ),
        ("[pip3] torch==2.6.0\n[pip3] torchvision==0.20.1", "torch-extension-mismatch"),
        ("torch         1.10.1+cu111\ntorchaudio    0.10.1+rocm4.1\n", "torch-extension-mismatch"),
        ("[pip3] numpy==2.1.0\n[pip3] torch==2.1.0", "numpy-abi"),
        ("- `transformers` version: 4\n- Platform: Linux-4.4.0-19041-Microsoft-x86_64", "wsl-first-version"),
    ],
)
def test_hazards_answer_from_what_is_stated(text: str, code: str) -> None:
    assert codes(text)[0] == code


@pytest.mark.parametrize(
    "versions", [("2.6.0", "0.21.0", "2.6.0"), ("1.13.1", "0.14.1", "0.13.1"), ("2.10.0", "0.25.0", "2.9.0")]
)
def test_partners_that_fit_are_no_finding(versions: tuple[str, str, str]) -> None:
    names = ("torch", "torchvision", "torchaudio")
    text = "\n".join(f"[pip3] {name}=={version}" for name, version in zip(names, versions, strict=True))
    assert not {*codes(text)} - {"known-wrong-numbers"}


@pytest.mark.parametrize(
    "line",
    [
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.2",
        "libcublas.so.12 => /usr/local/cuda/lib64/libcublas.so.12 (0x00007f)",
        "nvidia-cublas-cu12==12.4.5.8",
        "INFO Cannot use FlashAttention-2 backend for Volta and Turing GPUs.",
        "the process ended with exit code 9",
        "Requirement already satisfied: torch in /venv/lib/python3.11/site-packages (2.6.0)",
        "WARNING: The script f2py is installed in '/root/.local/bin' which is not on PATH.",
        "Loading checkpoint shards: 100% 33/33 [00:16<00:00, 1.98it/s]",
        "UserWarning: pkg_resources is deprecated as an API.",
        "[W socket.cpp:436] The server socket cannot be initialized on [::]:29500 (errno: 97)",
        "INFO 09-26 20:43:46 importing.py:10] Triton not installed; certain functions will not be available.",
        "NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)",
        "NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file",
        "FutureWarning: The pynvml package is deprecated. Please install nvidia-ml-py instead.",
        "Setting `pad_token_id` to `eos_token_id`:2 for open-end generation.",
        "not all weights were used when initializing the model",
    ],
)
def test_an_ordinary_line_is_no_message(line: str) -> None:
    found = [name for name, row in messages().items() if re.search(row.pattern, line, re.MULTILINE)]
    assert found == []


def test_severities() -> None:
    outcome = diagnose(paste.of_text("Skipping import of cpp extensions due to incompatible torch version"))
    assert [check.severity for check in outcome.checks] == [Severity.WARNING]


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: No matching distribution found for torch==2.1.0",
        "ERROR: Could not find a version that satisfies the requirement torch==2.1.0 (from versions: none)",
    ],
)
def test_a_name_in_a_text_may_come_from_each_alternative(line: str) -> None:
    assert "wheel of torch==2.1.0 for" in diagnose(paste.of_text(line)).checks[0].why
