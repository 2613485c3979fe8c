"""tests/gpu/run: it ends at once without a GPU, goes through every part, and keeps what it found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
import zipfile
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import FakeLibrary

FOLDER = Path(__file__).resolve().parents[1] / "gpu"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stubs are Linux's libraries")

_spec = spec_from_file_location("measuring", FOLDER / "measuring.py")
assert _spec is not None and _spec.loader is not None
measuring: Any = module_from_spec(_spec)
_spec.loader.exec_module(measuring)

#: The kernel's module is no file of a stub, and is said to be there.
DRIVER = "from mlbackends.libraries.cuda import driver\ndriver.driver_release = lambda _: '580.95.05'\n"


def ran(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(FOLDER / "run"), *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHON": sys.executable, **variables},
    )


def test_without_a_device_it_ends_at_once_and_writes_nothing(
    fake_library: FakeLibrary, tmp_path: Path
) -> None:
    output = tmp_path / "RESULTS.md"
    stub = fake_library("computing_driver", "libcuda.so.1")
    variables = {"LD_LIBRARY_PATH": str(stub.parent), "FAKE_GPUS": "0"}
    done = ran("--output", str(output), **variables)

    assert done.returncode == 2
    assert done.stderr.startswith("tests/gpu/run: no CUDA device: cuInit returned 100;")
    assert not output.exists()

    done = ran("--output", str(output), "--device", "cuda:1", **{**variables, "FAKE_GPUS": "1"})
    assert done.returncode == 2 and not output.exists()
    assert done.stderr.startswith("tests/gpu/run: no device cuda:1: the driver shows 1;")


@pytest.mark.parametrize(
    "words",
    [("--device", "cuda:x"), ("--minutes", "nan"), ("--minutes", "-1"), ("--here", "--from", "x")],
)
def test_what_means_nothing_is_refused_in_a_line(words: tuple[str, ...]) -> None:
    done = ran(*words)

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("tests/gpu/run: error: argument --")


def test_what_pip_cannot_install_is_not_measured_by_the_tree_in_its_place(
    fake_library: FakeLibrary, tmp_path: Path
) -> None:
    output = tmp_path / "RESULTS.md"
    stub = fake_library("computing_driver", "libcuda.so.1")
    words = ("--from", "mlbackends-there-is-none", "--wheels", str(tmp_path))
    done = ran(*words, "--output", str(output), LD_LIBRARY_PATH=str(stub.parent))

    assert done.returncode == 3
    assert "pip install mlbackends-there-is-none[cuda]" in done.stderr
    assert not output.exists()


@pytest.mark.nightly
def test_a_device_that_is_not_there_is_measured_to_the_end(
    fake_library: FakeLibrary, kernels_on_host: Path, tmp_path: Path
) -> None:
    """The driver is a stand-in that runs efficient_cuda's kernel on the CPU."""
    if not find_spec("cuda"):
        pytest.skip("cuda-core is not installed")
    libraries = (("computing_driver", "libcuda.so.1"), ("fake_nvrtc", "libnvrtc.so.13"))
    folders = [str(fake_library(name, soname).parent) for name, soname in libraries]
    (tmp_path / "sitecustomize.py").write_text(DRIVER)
    output = tmp_path / "RESULTS.md"
    output.write_text("# Old\n\n## NVIDIA A100\n\nolder\n\n## NVIDIA H200\n\na whole run\n")
    variables = {
        "LD_LIBRARY_PATH": os.pathsep.join(folders),
        "PYTHONPATH": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
        "FAKE_KERNELS": str(kernels_on_host),
        "FAKE_NAME": "NVIDIA H200",
        "FAKE_CACHE": str(1 << 20),
        "FAKE_MEMORY": str(96 << 20),
    }
    words = ("--here", "--quick", "--output", str(output))
    begun = ran(*words, "--minutes", "0.5", **variables)
    assert "not run to the end: tests, small, " in begun.stderr, begun.stderr
    assert "## NVIDIA H200, a rehearsal, not to the end" in output.read_text()
    done = ran(*words, **variables)
    assert " check: " not in done.stderr and " tests: " in done.stderr
    text = output.read_text()

    assert done.returncode == 0, done.stderr
    assert text.index("## NVIDIA H200, a rehearsal") < text.index("## NVIDIA A100\n\nolder")
    assert "## NVIDIA H200\n\na whole run\n" in text
    assert "| driver | 580.95.05 |" in text
    assert "| measured | what this Python has |" in text and "| commit of the tests |" in text
    parts = ("set-up", "check", "tests", *measuring.GROUPS)
    both = begun.stderr + done.stderr
    assert all(f"{name}: " in text and f"{name}: " in both for name in parts)
    assert "Not run to the end" not in text and not output.with_name("RESULTS.md.state").exists()
    assert "| efficient_cuda | 1 | 0 | 0 | 0 |" in text
    assert "microseconds on the host" in text and "1 passed" in text
    assert "- `torch_flash` did not run: " in text or find_spec("torch")


def test_a_part_that_gives_nothing_is_recorded_and_is_stopped_in_time(tmp_path: Path) -> None:
    ended = measuring.run([sys.executable, "-c", "import time; time.sleep(60)"], 1)
    assert ended.code is None and ended.why == "it was stopped after its time limit"

    part = measuring.Part("check", False, "It gave no result: exit code 70")
    text = measuring.page("| | |", [part], ["tests", "forward"])
    assert "check: FAILED." in text and "Not run to the end: tests, forward." in text
    measuring.write(tmp_path / "RESULTS.md", "A", text)
    measuring.write(tmp_path / "RESULTS.md", "B", "newer")
    measuring.write(tmp_path / "RESULTS.md", "A", "again")
    sections = (tmp_path / "RESULTS.md").read_text().split("\n## ")[1:]
    assert [section.split() for section in sections] == [["A", "again"], ["B", "newer"]]


def test_a_run_that_was_stopped_leaves_the_last_whole_one(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"

    def titles() -> list[str]:
        return [part.split("\n")[0] for part in file.read_text().split("\n## ")[1:]]

    measuring.write(file, "A", "whole")
    measuring.write(file, "A", "begun", ended=False)
    measuring.write(file, "A", "more", ended=False)
    assert titles() == ["A, not to the end", "A"] and "whole" in file.read_text()

    measuring.write(file, "A", "whole again")
    assert titles() == ["A"] and list(tmp_path.iterdir()) == [file]


def test_without_pip_the_wheels_of_a_folder_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither pip nor ensurepip nor uv: a Python of a bare machine."""
    wheels, bare = tmp_path / "wheels", tmp_path / "bare"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "carried-1.0-py3-none-any.whl", "w") as file:
        file.writestr("carried/__init__.py", "")
    venv.create(bare, with_pip=False)
    monkeypatch.setenv("PATH", "")
    options = measuring.arguments(["--wheels", str(wheels)])
    environment = measuring.Environment(options, tmp_path, time.monotonic() + 60)
    environment.python = str(bare / "bin" / "python")
    part = environment.set_up(30)

    assert environment._imports("carried")
    assert part.good is False and "- msgspec cannot be imported" in part.text


def test_what_was_measured_is_resumed_for_the_same_device_and_commit(tmp_path: Path) -> None:
    options = measuring.arguments(["--output", str(tmp_path / "RESULTS.md"), "--quick"])
    environment = measuring.Environment(options, tmp_path, time.monotonic() + 60)

    def groups() -> dict[str, Any]:
        return {name: measuring.Group(environment, name) for name in measuring.GROUPS}

    begun, part = groups(), measuring.Part("check", True, "all right")
    begun["small"].left, begun["small"].record = [], {"problems": []}
    measuring.State(options, "H200", "abc").save([part], begun, ["- check: 1 W"])

    later = groups()
    state = measuring.State(options, "H200", "abc")
    assert state.restore(later) == [part] and state.data["clocks"] == ["- check: 1 W"]
    assert later["small"].left == [] and later["forward"].left != []
    for title, commit in (("H100", "abc"), ("H200", "def")):
        assert measuring.State(options, title, commit).restore(groups()) == []
    options.fresh = True
    assert measuring.State(options, "H200", "abc").restore(groups()) == []


def test_clocks_and_power_are_ranges_of_what_nvidia_smi_prints() -> None:
    lines = ["1980, 2619, 68.50, 31", "1755, 2619, 701.20, 58", "[N/A], 2619, 70.0, 31", ""]
    assert measuring.watched(lines) == (
        "SM clock 1755 to 1980 MHz, memory clock 2619 to 2619 MHz, power 68 to 701 W, temperature 31 to 58 °C"
    )
    assert measuring.watched(["NVIDIA-SMI has failed"]) == ""


def test_every_problem_is_one_that_is_timed_alone_but_those_that_are_checked() -> None:
    from mlbackends.sdpa.problem_text import parse, read_file

    assert len(read_file(str(FOLDER / "problems" / "check.txt"), {})) > 20
    for name in (*measuring.GROUPS, "quick"):
        lines = (FOLDER / "problems" / f"{name}.txt").read_text().splitlines()
        lines = [line for line in lines if not line.startswith("#")]
        assert lines and all(len(parse(line)) == 1 for line in lines)
