"""Another process of Windows is looked at by its modules; needs Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import BadInput
from mlbackends.host.host import Host
from mlbackends.host.interpreter import of_process

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="needs Windows")


@pytest.fixture(scope="module")
def process() -> Iterator[int]:
    """Start a Python that has a library and a variable of its own."""
    source = "import ctypes, time; print('up', flush=True); time.sleep(60)"
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.kill()


def test_the_modules_of_a_process_are_its_mapped_files(process: int) -> None:
    paths = [path.lower() for path in Host(pid=process).mapped_files()]

    assert paths[0] == sys.executable.replace("\\", "/").lower()
    assert any(path.endswith("/_ctypes.pyd") for path in paths)
    assert not any("\\" in path for path in paths)


def test_the_environment_of_a_process_is_its_own(process: int) -> None:
    host = Host(pid=process)

    assert host.env("OMP_NUM_THREADS") == "3"
    assert host.env("SYSTEMROOT")
    assert host.is_ours


def test_the_interpreter_of_a_process_is_the_one_that_started_it(process: int) -> None:
    python = of_process(process)

    assert python["executable"].lower() == sys.executable.replace("\\", "/").lower()
    assert not any("\\" in folder for folder in python["path"])


def test_a_number_without_a_process_is_told() -> None:
    with pytest.raises(BadInput, match="there is no process 4194301"):
        of_process(4194301)
