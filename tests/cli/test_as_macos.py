"""The commands on a live machine that looks like macOS: no test of a Mac, but of what we ask of a system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlbackends.host.host import Host

HERE = Path(__file__).parent
MACHINE = HERE.parent / "hosts" / "macbook-m3.machine"
LOG = HERE.parent / "traces" / "torch-2.13-mkl.log"
#: A Python that passes for one of macOS where it runs a text too, as workers do.
WRAPPER = """#!{real} -I
import os, sys
arguments = sys.argv[1:]
if "-c" in arguments:
    at = arguments.index("-c") + 1
    arguments[at] = "import runpy; runpy.run_path({own!r}); " + arguments[at]
os.execv({real!r}, [{real!r}, *arguments])
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it turns a Linux into a macOS")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with programs of macOS that we call, which print what a MacBook's do."""
    host, folder = Host(str(MACHINE)), tmp_path / "bin"
    folder.mkdir()
    for command in (("sysctl", "-a"), ("ioreg", "-rc", "AGXAccelerator", "-d1"), ("sw_vers",)):
        (folder / f"{command[0]}.txt").write_text(host.run(*command))
        program = folder / command[0]
        program.write_text(f"#!/bin/sh\nexec cat {program}.txt\n")
        program.chmod(0o755)
    python = folder / "python"
    python.write_text(WRAPPER.format(real=sys.executable, own=str(HERE / "as_macos/sitecustomize.py")))
    python.chmod(0o755)
    return folder


def run(programs: Path, *arguments: str, module: str = "mlbackends", refused: str = "") -> str:
    """Return what a command prints on the macOS that is none. refused: what it says where it ends with 2."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(HERE / "as_macos"), *filter(None, sys.path))),
        "AS_MACOS_PYTHON": str(programs / "python"),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        env=variables,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in ({2} if refused else {0, 1}), done.stderr
    assert refused in done.stderr
    return done.stdout


def probes(programs: Path, *arguments: str) -> Any:
    return json.loads(run(programs, "info", "--format", "json", *arguments))["probes"]


def test_info_has_what_sysctl_tells(programs: Path) -> None:
    expected = json.loads(MACHINE.with_suffix(".expected.json").read_text())["probes"]

    seen = probes(programs)

    assert seen["host"]["facts"]["platform"] == "darwin"
    for fact in ("model_name", "architecture", "kinds", "caches", "cores", "threads", "features"):
        assert seen["cpu"]["facts"][fact] == expected["cpu"]["facts"][fact], fact
    assert seen["memory"]["facts"]["total_bytes"] == expected["memory"]["facts"]["total_bytes"]
    assert seen["limits"]["facts"]["effective_cpus"] == 8


def test_info_fills_its_page(programs: Path) -> None:
    page = run(programs, "info")
    assert "Apple M3" in page and "24 GiB" in page


def test_doctor_ends(programs: Path) -> None:
    checks = json.loads(run(programs, "doctor", "--format", "json"))["checks"]
    assert len(checks) > 100
    assert {check["status"] for check in checks} <= {"passed", "failed", "skipped"}


def test_a_snapshot_is_equal_to_itself_and_a_recording_is_the_machine(programs: Path, tmp_path: Path) -> None:
    file, recording = str(tmp_path / "then.json"), str(tmp_path / "machine")
    run(programs, "snapshot", file)
    run(programs, "diff", file, file)
    run(programs, "snapshot", recording)
    assert Host(recording).platform == "darwin"
    assert probes(programs, "--root", recording)["cpu"]["facts"]["model_name"] == "Apple M3"


def test_switches_attention_and_traces_need_no_linux(programs: Path) -> None:
    flags = json.loads(run(programs, "flags", "list", "--format", "json"))["flags"]
    assert flags[0]["name"] == "fp32_precision"
    shape = ("--shape", "2,8,1024,64", "--dtype", "fp16", "--device", "t4", "--format", "json")
    problem = json.loads(run(programs, "sdpa", "explain", *shape))["problems"][0]
    assert problem["torch_chosen"] == "EFFICIENT_ATTENTION"
    assert json.loads(run(programs, "trace", "show", str(LOG), "--format", "json"))["count"] == 142


def test_what_macos_cannot_do_is_refused_with_its_reason(programs: Path) -> None:
    run(programs, "info", "--pid", str(os.getpid()), refused="this system has no /proc")
    launcher = "mlbackends.xeon.run_cpu"
    run(programs, "--no-python", "true", module=launcher, refused="Darwin is not supported!!!")
