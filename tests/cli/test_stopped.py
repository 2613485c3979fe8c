"""A launcher that is stopped and continued leaves its programs alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if sys.platform != "linux":
    pytest.skip("launches are Linux's", allow_module_level=True)

import pty

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "import sys, time; time.sleep(1.6); open(sys.argv[1], 'a').write('done\\n')"
LAUNCHERS = {
    "preload": ("trace", "onednn", "--separation", "preload", "--output", "trace.log", "--"),
    "pipe": ("trace", "onednn", "--separation", "pipe", "--output", "trace.log", "--"),
    "instances": ("run", "--ninstances", "2", "--no-python"),
}


def started(folder: Path, launcher: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mlbackends", *LAUNCHERS[launcher]]
    program = [sys.executable, "-c", PROGRAM, str(folder / "ended")]
    return subprocess.Popen([*command, *program], cwd=folder)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_stop_of_a_second_does_not_end_the_programs(tmp_path: Path, launcher: str) -> None:
    processes = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        processes.append((folder, started(folder, launcher)))
    time.sleep(1.0)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for _, process in processes:
            process.send_signal(number)
        time.sleep(1.0)

    codes = [process.wait(30) for _, process in processes]

    assert codes == [0, 0, 0]
    lines = 2 if launcher == "instances" else 1
    assert {(folder / "ended").read_text() for folder, _ in processes} == {"done\n" * lines}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_signal_that_came_during_the_stop_is_sent_on(tmp_path: Path, launcher: str) -> None:
    process = started(tmp_path, launcher)
    time.sleep(1.0)
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
        process.send_signal(number)
        time.sleep(0.3)

    assert process.wait(30) == 128 + signal.SIGTERM
    assert not (tmp_path / "ended").exists()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ctrl_z_and_fg_in_a_terminal(tmp_path: Path, launcher: str) -> None:
    """The terminal stops the whole foreground group, as its shell does."""
    terminal, end = pty.openpty()
    script = "set -m; trap '' TTOU; \"$@\"; sleep 1; fg >/dev/null; exit $?"
    command = [sys.executable, "-m", "mlbackends", *LAUNCHERS[launcher]]
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "ended")]
    shell = subprocess.Popen(
        ["setsid", "--ctty", "--wait", "bash", "-c", script, "bash", *command, *program],
        stdin=end, stdout=end, stderr=end, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    os.close(end)
    try:
        time.sleep(1.0)
        os.write(terminal, b"\x1a")
        assert shell.wait(30) == 0
    finally:
        os.close(terminal)
    assert set((tmp_path / "ended").read_text().split()) == {"done"}
