"""A command in a terminal, captured with and without the shim: it still has a terminal."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import TYPE_CHECKING

import pytest

if os.name != "nt":
    import pty

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform == "win32":
    pytest.skip("terminals are POSIX's", allow_module_level=True)

CAPTURE = """
import sys
from mlbackends.tracing.capture import command as capture
way, trace, shim, *command = sys.argv[1:]
captured = capture.run(command, ("onednn",), trace, separation=way, shim=shim)
sys.exit(captured.exit_code)
"""
LINE = "onednn_verbose,v1,primitive,exec,cpu,matmul,brg,,a:f32,b,c,8:8,1.5"


class Terminal:
    """A process in a new terminal."""

    def __init__(self, command: list[str]) -> None:
        self.process, self.descriptor = pty.fork()
        if not self.process:
            os.execv(command[0], command)
        self.screen = b""

    def until(self, text: bytes) -> None:
        deadline = time.monotonic() + 60
        while text not in self.screen and time.monotonic() < deadline and self.read():
            pass
        assert text in self.screen, self.screen

    def read(self) -> bytes:
        select.select([self.descriptor], [], [], 60)
        try:
            piece = os.read(self.descriptor, 4096)
        except OSError:  # the last program in the terminal has ended
            piece = b""
        self.screen += piece
        return piece

    def end(self) -> int:
        while self.read():
            pass
        os.close(self.descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        assert code != 1, self.screen.decode()  # a traceback
        return code


def captured(way: str, tmp_path: Path, shim: str, code: str) -> Terminal:
    trace = str(tmp_path / "trace.log")
    command = [sys.executable, "-c", code]
    return Terminal([sys.executable, "-c", CAPTURE, way, trace, shim, *command])


@pytest.fixture(params=["preload", "terminal"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_all_streams_are_terminals(way: str, tmp_path: Path, shim: str) -> None:
    code = "import os; print('<', *map(os.isatty, (0, 1, 2)), '>')"
    terminal = captured(way, tmp_path, shim, code)
    assert terminal.end() == 0
    assert b"< True True True >\r\n" in terminal.screen


def test_without_a_shim_a_terminal_is_taken(tmp_path: Path) -> None:
    code = f"print('colour', flush=True); print({LINE!r}, flush=True); print('end')"
    terminal = captured("auto", tmp_path, "", code)
    assert terminal.end() == 0
    assert terminal.screen == b"colour\r\nend\r\n"
    assert (tmp_path / "trace.log").read_text() == f"{LINE}\n"


def test_a_prompt_is_seen_and_answered(way: str, tmp_path: Path, shim: str) -> None:
    terminal = captured(way, tmp_path, shim, "print('got', input('MKL_ or o? o').upper())")
    terminal.until(b"o? o")
    os.write(terminal.descriptor, b"yes\n")
    terminal.until(b"got YES\r\n")
    assert terminal.end() == 0


def test_interrupting_reaches_the_command_once(way: str, tmp_path: Path, shim: str) -> None:
    code = """
import os, signal, time
times = 0
def note(*_):
    global times
    times += 1
    os.write(1, b"interrupted\\n")  # the signal may come while print works
signal.signal(signal.SIGINT, note)
print("ready", flush=True)
while not times: time.sleep(0.01)
time.sleep(0.5)
print("end")
"""
    terminal = captured(way, tmp_path, shim, code)
    terminal.until(b"ready")
    os.write(terminal.descriptor, b"\x03")
    assert terminal.end() == 0
    assert terminal.screen.count(b"interrupted") == 1
    assert terminal.screen.endswith(b"end\r\n")


def test_a_command_that_dies_of_an_interrupt_is_130(way: str, tmp_path: Path, shim: str) -> None:
    code = """
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("ready", flush=True)
signal.pause()
"""
    terminal = captured(way, tmp_path, shim, code)
    terminal.until(b"ready")
    os.write(terminal.descriptor, b"\x03")
    assert terminal.end() == 130


def test_a_new_size_reaches_the_command(way: str, tmp_path: Path, shim: str) -> None:
    import termios

    code = """
import os, signal
signal.signal(signal.SIGWINCH, lambda *_: None)
print("ready", os.get_terminal_size(1).columns, flush=True)
while os.get_terminal_size(1).columns != 77:
    signal.sigtimedwait([], 0.05)
print("now 77")
"""
    terminal = captured(way, tmp_path, shim, code)
    terminal.until(b"ready")
    if not hasattr(termios, "tcsetwinsize"):
        pytest.skip("this Python sets no terminal's size")
    termios.tcsetwinsize(terminal.descriptor, (30, 77))
    terminal.until(b"now 77")
    assert terminal.end() == 0
