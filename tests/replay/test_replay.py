"""Public issues as cases: valid files, a case made here that is rebuilt, the page of recorded results."""

import ctypes
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mlbackends.model.loading import Verdict

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "replay"))

from mlbackends_replay import cases, results  # noqa: E402  its folder was just added
from mlbackends_replay.stand_ins import StandIn, elf_file  # noqa: E402

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="wheels for Linux")


def replay(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "MLBACKENDS_REPLAY": str(cache), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, str(ROOT / "replay"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=variables, check=False, encoding="utf-8"
    )


def made_case(folder: Path, missing: str, needs: str = "libthing.so.9") -> Path:
    """Write a wheel with an extension that needs a library, and a case of it."""
    wheel = folder / "thing-1.0-cp312-cp312-linux_x86_64.whl"
    module = StandIn("thing/_c.so", needs=(needs, "libc.so.6"), defines=("PyInit__c",), lacks=("Py_IncRef",))
    info = "thing-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing/__init__.py", "import other\nfrom thing import _c\n")
        archive.writestr("thing/_c.so", elf_file(module, "x86_64"))
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: thing\nRequires-Dist: other>=2\n")
        archive.writestr(f"{info}/RECORD", "")
    path = folder / "somebody-thing-1.toml"
    path.write_text(
        f"""thread = "somebody/thing#1"
url = "https://github.com/somebody/thing/issues/1"
title = "thing does not load"
cause = "the library is missing"
message = "ImportError"
ended_by = "it was installed"
missing = "{missing}"
verdict = "does not load"
command = "resolve thing"
python = "3.12"
machine = "x86_64"
size_mb = 1
wheels = ["{wheel}"]
""",
        encoding="utf-8",
    )
    return path


@needs_linux
@pytest.mark.slow
def test_a_case_is_rebuilt_from_a_wheel_and_its_answer_compared(tmp_path: Path) -> None:
    case = made_case(tmp_path, "libthing.so.9")

    done = replay(str(case), cache=tmp_path / "cache")

    assert done.returncode == 0, done.stderr
    assert "✗ thing 1.0 does not load" in done.stdout
    assert "libthing.so.9" in done.stdout.partition("answer")[2]
    assert (tmp_path / "cache/environments/somebody-thing-1/host.json").exists()

    wrong = replay(str(made_case(tmp_path, "libother.so.9")), cache=tmp_path / "cache")
    assert wrong.returncode == 1
    assert "wanted libother.so.9" in wrong.stdout


@needs_linux
@pytest.mark.slow
def test_nothing_of_this_machine_but_its_c_library_counts(tmp_path: Path) -> None:
    ours = tmp_path / "libthing.so.9"
    ours.write_bytes(elf_file(StandIn("libthing.so.9"), "x86_64"))
    case = made_case(tmp_path, "libthing.so.9")
    variables = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "MLBACKENDS_REPLAY": str(tmp_path / "cache")}

    command = [sys.executable, str(ROOT / "replay"), str(case)]
    assert subprocess.run(command, capture_output=True, env=variables, check=False).returncode == 0

    case = made_case(tmp_path, "libthing.so.9", needs="libc.so.6")
    assert "✓ thing 1.0 loads" in replay(str(case), cache=tmp_path / "cache").stdout


def test_a_case_with_a_wrong_field_and_an_unknown_one_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text("thread = 1\n", encoding="utf-8")

    odd = replay(str(tmp_path / "odd.toml"), cache=tmp_path)
    assert odd.returncode == 2
    assert "thread: expected str, got int" in odd.stderr
    assert replay("nothing#0", cache=tmp_path).returncode == 2
    assert replay(cache=tmp_path).returncode == 3  # no wheels are here


def test_the_command_is_added_by_its_entry_point(tmp_path: Path) -> None:
    info = tmp_path / "mlbackends_replay-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mlbackends-replay\nVersion: 0.1.0\n")
    group, _, rest = (ROOT / "replay/pyproject.toml").read_text().partition('"mlbackends.cli.commands"]\n')
    assert group
    (info / "entry_points.txt").write_text(
        "[mlbackends.cli.commands]\n" + rest.partition("\n")[0].replace('"', "")
    )
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'replay'}"}

    command = [sys.executable, "-m", "mlbackends", "replay", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert "backends replay vllm#44335" in done.stdout


def test_every_case_is_valid() -> None:
    every = cases.every()
    assert len(every) >= 30
    for case in every:
        owner, _, rest = case.thread.partition("/")
        name, _, number = rest.partition("#")
        assert case.name == f"{owner}-{name}-{number}"
        assert case.url in (
            f"https://github.com/{owner}/{name}/{kind}/{number}" for kind in ("issues", "pull")
        )
        assert case.verdict in set(Verdict)
        assert case.command.split()[0] in ("resolve", "doctor")
        assert case.words and all(case.words)
        assert all("==" in wheel for wheel in case.wheels)
        assert cases.named(case.url) == cases.named(case.thread) == cases.named(rest) == case


def test_the_page_is_what_the_recorded_results_say() -> None:
    recorded = results.recorded()
    assert (ROOT / "docs/replay.md").read_text(encoding="utf-8") == results.page(recorded)
    for case in cases.every():
        result = recorded.get(case.name)
        is_miss = result is not None and bool(result.line) and not result.agrees
        assert bool(case.miss) == is_miss, f"{case.name}: `miss` explains a miss, and nothing else"
        if result and result.agrees:
            assert any(word in result.line for word in case.words)


@needs_linux
@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="stand-ins are for these two")
def test_the_loader_of_this_machine_opens_a_stand_in(tmp_path: Path) -> None:
    machine = platform.machine()
    below = tmp_path / "libbelow.so.2"
    above = StandIn("libabove.so", needs=("libbelow.so.2",), runpath="$ORIGIN", lacks=("first", "second"))
    (tmp_path / "libabove.so").write_bytes(elf_file(above, machine))

    below.write_bytes(elf_file(StandIn("libbelow.so.2", defines=("first", "second")), machine))
    assert ctypes.CDLL(str(tmp_path / "libabove.so"))._handle


@needs_linux
def test_a_stand_in_that_lacks_a_symbol_is_refused_by_the_loader(tmp_path: Path) -> None:
    machine = platform.machine()
    if machine not in ("x86_64", "aarch64"):
        pytest.skip("stand-ins are for these two")
    path = tmp_path / "liblacking.so"
    path.write_bytes(elf_file(StandIn("liblacking.so", "-", defines=("x",), lacks=("_ZN1aE",)), machine))
    with pytest.raises(OSError, match="undefined symbol: _ZN1aE"):
        ctypes.CDLL(str(path))
