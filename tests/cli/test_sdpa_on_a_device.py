"""`sdpa check|bench --device cuda` with a stub driver, a wrong driver, and none.

The driver is tests/fakelibs/computing_driver.c: nothing here has run on a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
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

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stubs are Linux's libraries")

PROBLEM = ("--shape", "1,2,16,8", "--dtype", "float16", "--device", "cuda")
HOST = ("--backend", "math")
EVENTS = "CUDA events around each call, after writing 2 MiB to flush L2"
#: What a peer's process measures with the driver's events, which the stub's clock answers.
TIMED = """
import ctypes, json, time
from mlbackends_kernels.checking.device_timing import OnDevice
driver = ctypes.CDLL("libcuda.so.1")
assert not driver.cuInit(0) and not driver.cuCtxSetCurrent(ctypes.c_void_p(1))
class Memory:
    by = "a counter"
    def reset(self): pass
    def held(self): return 100
    def peak(self): return 1000
measure = OnDevice(Memory())
before = measure.memory_before()
print(json.dumps([measure.time(lambda: time.sleep(0.002), 0.02, 5), measure.memory_after(before, 300)]))
"""


@pytest.fixture
def driver_folder(fake_library: Any) -> Path:
    return Path(fake_library("computing_driver", "libcuda.so.1").parent)


@pytest.fixture
def on_device(driver_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command with an H200 that is not there."""
    monkeypatch.setattr(driver, "driver_release", lambda _: "580.95.05")

    def run(*words: str) -> CompletedProcess[str]:
        variables = {
            "LD_LIBRARY_PATH": str(driver_folder),
            "FAKE_NAME": "NVIDIA H200",
            "OPENBLAS_NUM_THREADS": "1",
        }
        return in_process(("sdpa", *words), variables)

    return run


def test_calls_on_a_device_are_timed_by_events(driver_folder: Path) -> None:
    variables = {"LD_LIBRARY_PATH": str(driver_folder), "FAKE_CACHE": str(1 << 20)}
    done = subprocess.run(
        [sys.executable, "-c", TIMED],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
    )
    times, memory = json.loads(done.stdout)

    assert 1 <= len(times["seconds"]) <= 5 and min(times["seconds"]) > 0.002
    assert times["host_seconds"] > 0.002
    assert times["timed_by"] == EVENTS
    assert memory == {"extra_bytes": 600, "measured_by": "a counter"}


def test_a_run_on_a_device_is_drawn_with_what_the_device_can(on_device: Any, tmp_path: Path) -> None:
    saved, page, picture = (str(tmp_path / name) for name in ("run.json", "page.html", "speed.svg"))
    done = on_device("bench", *PROBLEM, *HOST, "--rounds", "1", "--format", "json", "--output", saved)
    data = json.loads(Path(saved).read_text())
    Draft202012Validator(SCHEMAS["sdpa-bench"]()).validate(data)
    problem = data["problems"][0]["checked"]
    timing = results(problem)["math"]["timing"]

    assert done.returncode == 0, done.stdout
    assert problem["speeds"]["stated_gflops"] == 989400
    assert "1830 MHz" in problem["speeds"]["stated_by"]

    # What torch and the driver's events measure on a GPU, which no stub can.
    problem["peak_gflops"], problem["speeds"]["bandwidth_bytes_per_second"] = 800e3, 4e12
    timing |= {"share_of_peak": 0.5, "host_seconds": 1e-5, "timed_by": EVENTS}
    Path(saved).write_text(json.dumps(data))
    words = ("--from", saved, "--format", "html", "--output", page, "--plot", picture)
    assert in_process(("sdpa", "bench", *words), {}).returncode == 0
    text, drawn = Path(page).read_text(), Path(picture).read_text()
    assert "NVIDIA H200 (cuda:0)" in text and "TFLOP/s stated" in text
    assert "Attention on NVIDIA H200 (cuda:0)" in drawn
    assert "below the measured peak and bandwidth" in drawn
    table = in_process(("sdpa", "bench", "--from", saved), {"COLUMNS": "200"}).stdout
    assert all(head in table for head in ("TFLOP/s", "of peak", "of stated", "of memory", "launch"))


def test_every_format_of_a_check_names_the_device(on_device: Any, tmp_path: Path) -> None:
    saved = str(tmp_path / "check.json")
    words = (*HOST, "--rounds", "1", "--format", "json", "--output", saved)
    assert on_device("check", *PROBLEM, *words).returncode == 0
    data = json.loads(Path(saved).read_text())
    results(data["problems"][0])["math"]["timing"] |= {"share_of_peak": 1.5, "timed_by": EVENTS}
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


def test_math_computes_for_a_device_on_the_host_if_it_is_named(on_device: Any) -> None:
    words = ("--shape", "1,2,16,8", "--dtype", "bfloat16", "--device", "cuda", "--layout", "bshd")
    done = on_device("check", *words, "--backward", "--rounds", "0", *HOST)

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
