"""`sdpa check|bench --device cuda` with a driver that computes on the host, a wrong driver, and none.

The driver is tests/fakelibs/computing_driver.c: nothing here has run on a GPU.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from attention_runs import results
from described import Machine
from jsonschema import Draft202012Validator
from running import in_process

from mlbackends.libraries.cuda import driver
from mlbackends_cli.report.commands.schema import SCHEMAS
from mlbackends_kernels import attention_cuda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stubs are Linux's libraries")

PROBLEM = ("--shape", "1,2,16,8", "--dtype", "float16", "--device", "cuda")
HOST = ("--backend", "math")
LIBRARIES = (("computing_driver", "libcuda.so.1"), ("fake_nvrtc", "libnvrtc.so.13"))


@pytest.fixture
def on_device(fake_library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run a command with an H200 that is not there. kernels: the library that computes; "": nothing does."""
    if not find_spec("cuda"):
        pytest.skip("cuda-core is not installed")
    folders = [str(fake_library(name, soname).parent) for name, soname in LIBRARIES]
    monkeypatch.setattr(driver, "driver_release", lambda _: "580.95.05")
    attention_cuda.missing_parts.cache_clear()  # of a machine without this driver

    def run(*words: str, kernels: Path | str = "") -> CompletedProcess[str]:
        variables = {
            "LD_LIBRARY_PATH": os.pathsep.join(folders),
            "XDG_CACHE_HOME": str(tmp_path),
            "FAKE_NAME": "NVIDIA H200",
            "FAKE_CACHE": str(1 << 20),
            "FAKE_MEMORY": str(96 << 20),
            "OPENBLAS_NUM_THREADS": "1",
        }
        return in_process(("sdpa", *words), variables | ({"FAKE_KERNELS": str(kernels)} if kernels else {}))

    yield run
    attention_cuda.missing_parts.cache_clear()


def test_a_device_s_backend_is_right_is_timed_by_events_and_drawn(
    on_device: Any, kernels_on_host: Path, tmp_path: Path
) -> None:
    saved, page, picture = (str(tmp_path / name) for name in ("run.json", "page.html", "speed.svg"))
    words = ("--backend", "efficient_cuda", "--rounds", "1", "--format", "json", "--output", saved)
    done = on_device("bench", *PROBLEM, *words, kernels=kernels_on_host)
    data = json.loads(Path(saved).read_text())
    Draft202012Validator(SCHEMAS["sdpa-bench"]()).validate(data)
    problem = data["problems"][0]["checked"]
    found = results(problem)["efficient_cuda"]

    assert done.returncode == 0, done.stdout
    assert found["errors"]["largest_absolute"] <= found["errors"]["largest_allowed"]
    assert found["timing"]["timed_by"].startswith("CUDA events around each call, after writing 2 MiB")
    assert found["timing"]["host_seconds"] > 0
    assert found["memory"]["measured_by"] == "the high-water mark of the device's memory pool"
    assert "torch" in problem["peak_by"]
    assert problem["speeds"]["bandwidth_bytes_per_second"] > 0
    assert problem["speeds"]["stated_gflops"] == 989400
    assert "1830 MHz" in problem["speeds"]["stated_by"]

    # The peak as torch measures it, which no stand-in can.
    problem["peak_gflops"], found["timing"]["share_of_peak"] = 800e3, 0.5
    Path(saved).write_text(json.dumps(data))
    words = ("--from", saved, "--format", "html", "--output", page, "--plot", picture)
    assert in_process(("sdpa", "bench", *words), {}).returncode == 0
    text, drawn = Path(page).read_text(), Path(picture).read_text()
    assert "NVIDIA H200 (cuda:0)" in text and "TFLOP/s stated" in text
    assert "Attention on NVIDIA H200 (cuda:0)" in drawn
    assert "below the measured peak and bandwidth" in drawn
    table = in_process(("sdpa", "bench", "--from", saved), {"COLUMNS": "200"}).stdout
    assert all(head in table for head in ("TFLOP/s", "of peak", "of stated", "of memory", "launch"))


def test_every_format_of_a_check_names_the_device(
    on_device: Any, kernels_on_host: Path, tmp_path: Path
) -> None:
    saved = str(tmp_path / "check.json")
    words = ("--backend", "efficient_cuda", "--rounds", "1", "--format", "json", "--output", saved)
    assert on_device("check", *PROBLEM, *words, kernels=kernels_on_host).returncode == 0
    data = json.loads(Path(saved).read_text())
    results(data["problems"][0])["efficient_cuda"]["timing"]["share_of_peak"] = 1.5
    Path(saved).write_text(json.dumps(data))

    shown = {
        form: in_process(("sdpa", "check", "--from", saved, "--format", form), {}).stdout
        for form in ("table", "markdown", "html", "junit", "sarif")
    }

    assert all("NVIDIA H200 (cuda:0)" in text for text in shown.values())
    assert "timed by: CUDA events around each call" in shown["markdown"]
    assert "more than 100% of the peak: the matrix product that measures it" in " ".join(
        shown["table"].split()
    )


def test_a_device_on_which_nothing_runs_is_not_a_success(on_device: Any) -> None:
    words = ("--shape", "1,2,16,8", "--device", "cuda", "--dtype", "float64", "--rounds", "0")
    done = on_device("check", *words)
    flat = " ".join(done.stdout.split())

    assert done.returncode == 3
    assert "mlbackends would choose math, which copies to the CPU and was not run here" in flat
    assert flat.endswith("no backend ran")


def test_a_device_that_computes_nothing_is_wrong(on_device: Any) -> None:
    done = on_device("check", *PROBLEM, "--backend", "efficient_cuda", "--rounds", "0")

    assert done.returncode == 1
    assert "efficient_cuda is wrong: the largest error is" in done.stdout
    assert "1 problem on NVIDIA H200 (cuda:0): 1 of 1 with something wrong" in done.stdout


def test_gradients_and_bfloat16_reach_the_device_and_come_back(on_device: Any, kernels_on_host: Path) -> None:
    """`math` copies them to the host: what it gets is what the device was given."""
    words = ("--shape", "1,2,16,8", "--dtype", "bfloat16", "--device", "cuda", "--layout", "bshd")
    done = on_device("check", *words, "--backward", "--rounds", "0", *HOST, kernels=kernels_on_host)

    assert done.returncode == 0, done.stdout
    assert "nothing wrong" in done.stdout


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("hmm", "cuInit returned 3 (CUDA_ERROR_NOT_INITIALIZED)"),
        ("forbidden-node", "cuInit returned 100 (CUDA_ERROR_NO_DEVICE)"),
        ("container-lost", "cuInit returned 999 (CUDA_ERROR_UNKNOWN)"),
    ],
)
def test_without_a_device_a_line_says_why(
    name: str, why: str, fake_library: Callable[..., Path], tmp_path: Path
) -> None:
    from described import read

    nothing = {"opened_alone": "int nothing;"}
    folders = [
        fake_library(stub, soname, source=nothing.get(stub, "")).parent
        for stub, soname in read(name)["libraries"].items()
    ]
    done = Machine(name, tmp_path / name, folders).backends("sdpa", "check", *PROBLEM)

    assert done.returncode == 2
    assert done.stderr.startswith(f"backends: this machine has no CUDA device: {why}")


def test_without_a_driver_a_line_says_so(tmp_path: Path) -> None:
    from mlbackends.host.host import Host

    with mock.patch.object(Host, "real", lambda _, path: f"{tmp_path}{path}"):
        done = in_process(("sdpa", "bench", *PROBLEM), {})

    assert done.returncode == 2
    assert "this machine has no CUDA device: no libcuda.so.1" in done.stderr


def test_a_part_of_this_machine_cannot_be_named_after_another() -> None:
    done = in_process(("sdpa", "check", "--shape", "1,2,16,8", "--device", "h100"), {})

    assert done.returncode == 2
    assert "is not a CPU or CUDA device of this machine" in done.stderr


def test_a_peer_that_is_missing_is_named_alone(on_device: Any) -> None:
    if find_spec("flashinfer") or find_spec("flash_attn"):
        pytest.skip("they are installed")
    names = ("flash_attn_2", "flash_attn_3", "flash_attn_4", "flashinfer")
    words = [word for name in names for word in ("--backend", name)]
    done = on_device("check", *PROBLEM, *words, "--rounds", "0", "--format", "json")

    found = results(json.loads(done.stdout)["problems"][0])
    messages = [found[name]["reasons"][0]["message"].split(" in the ")[0] for name in names]
    assert messages == [
        "no flash-attn",
        "no flash-attn-3",
        "no flash-attn-4",
        "no flashinfer-python",
    ]
