"""--pid looks at the environment that a running process was started in."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from running import backends

from mlbackends.host.interpreter import of_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are told by /proc")

WAITING = "import sys; print(flush=True); sys.stdin.read()"
MOVED = f"import os; os.chdir('/'); {WAITING}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    venv.create(folder / ".venv", symlinks=True, with_pip=False)
    return folder / ".venv"


@contextmanager
def started(
    *command: str, cwd: Path, variables: Mapping[str, str] | None = None, executable: str = ""
) -> Iterator[int]:
    """Start a program that says when it runs, and end it."""
    with subprocess.Popen(
        command,
        executable=executable or None,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=cwd,
        env={"PATH": os.defpath, **(variables or {})},
    ) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("way", ["absolute", "relative", "upward", "PATH", "left", "VIRTUAL_ENV"])
def test_a_virtual_environment_is_told_however_its_python_was_started(environment: Path, way: str) -> None:
    inner, outer = environment / "bin/python", environment.parent
    variables, script, executable = {}, WAITING, ""
    first = {"relative": ".venv/bin/python", "upward": "../bin/python", "PATH": "python"}.get(way, str(inner))
    cwd = environment / "lib" if way == "upward" else outer
    if way == "PATH":
        variables = {"PATH": f"/nonexistent:{environment}/bin:{os.defpath}"}
        executable = str(inner)
    elif way == "left":
        first, script, variables = ".venv/bin/python", MOVED, {"PWD": str(outer)}
    elif way == "VIRTUAL_ENV":
        first, executable, variables = "worker 3", str(inner), {"VIRTUAL_ENV": str(environment)}

    with started(first, "-c", script, cwd=cwd, variables=variables, executable=executable) as pid:
        assert of_process(pid)["prefix"] == str(environment)


def test_a_variable_does_not_make_another_python_that_of_an_environment(environment: Path) -> None:
    base = os.path.realpath(sys.executable)
    variables = {"VIRTUAL_ENV": str(environment)}

    with started(base, "-c", WAITING, cwd=environment, variables=variables) as pid:
        assert of_process(pid)["prefix"] != str(environment)


def test_a_path_that_leads_to_another_program_is_not_run(environment: Path, tmp_path: Path) -> None:
    trap = tmp_path / "python"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    trap.chmod(0o755)
    variables = {"PATH": str(tmp_path), "VIRTUAL_ENV": str(tmp_path), "PWD": str(tmp_path)}
    program = os.path.realpath(sys.executable)

    for first in (str(trap), "python", "./python"):
        with started(first, "-c", WAITING, cwd=tmp_path, variables=variables, executable=program) as pid:
            of_process(pid)
    assert not (tmp_path / "ran").exists()


def test_the_page_of_a_process_names_its_environment(environment: Path) -> None:
    with started(".venv/bin/python", "-c", WAITING, cwd=environment.parent) as pid:
        result = backends("info", "--pid", str(pid), "--get", "python.prefix", "--no-redact")

    assert (result.returncode, result.stdout.strip()) == (0, str(environment)), result.stderr


def test_a_program_that_is_no_python_has_no_packages(tmp_path: Path) -> None:
    with started("/bin/sh", "-c", "echo; read line", cwd=tmp_path) as pid:
        assert of_process(pid) == {}
