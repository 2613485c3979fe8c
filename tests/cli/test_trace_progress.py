"""A bar shows how far long files are read: on a terminal, after a while, and never in what is printed."""

from __future__ import annotations

import io
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from running import PLAIN, backends

from mlbackends.tracing.sources import Source
from mlbackends_cli.terminal import can_redraw
from mlbackends_cli.trace.reading import ReadingProgress

if os.name != "nt":
    import fcntl
    import pty
    import termios

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = Path(__file__).resolve().parents[1] / "traces" / "torch-2.13-onednn-level2.log"


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ReadingProgress]:
    """Return what makes a progress line that nobody draws: standard error is not a terminal."""

    def made(*paths: Path | str) -> ReadingProgress:
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        return ReadingProgress([str(path) for path in paths])

    return made


def sparse(path: Path, size: int) -> Path:
    """Make a file of `size` bytes that needs no space on the disk."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_files_together_have_one_bar(tmp_path: Path, progress: Callable[..., ReadingProgress]) -> None:
    paths = [sparse(tmp_path / name, 50_000_000) for name in ("a.log", "b.log")]
    shown, sources = progress(*paths), [Source(str(path)) for path in paths]
    for source in sources:
        shown.begin(source)
    sources[1].position = 25_000_000
    assert shown.state() == (75_000_000, 100_000_000, "reading 2 of 2, b.log")
    for source in sources:
        source.close()


def test_what_has_no_size_has_no_total(
    progress: Callable[..., ReadingProgress], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "wb"), os.fdopen(reads) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        source = Source("-")
        shown = progress(f"/proc/self/fd/{reads}")
        shown.begin(source)
        source.position = 3_000_000
        assert shown.state() == (3_000_000, 0, "reading standard input")


@pytest.mark.parametrize("name", ["\x1b]0;owned\a.log", "很" * 60 + ".log", "a" * 200])
def test_the_name_of_a_file_is_shortened_and_cleaned(
    name: str, tmp_path: Path, progress: Callable[..., ReadingProgress]
) -> None:
    path = sparse(tmp_path / name, 1_000_000_000)
    source = Source(str(path))
    shown = progress(path)
    shown.begin(source)
    text = shown.state()[2]
    assert len(text) <= 40
    assert "\x1b" not in text
    source.close()


@pytest.mark.parametrize(
    ("environment", "shows"),
    [
        ({}, True),
        ({"TERM": "dumb"}, False),
        ({"CI": "true"}, False),
        ({"CI": "1"}, False),
        ({"CI": "false"}, True),
        ({"CI": ""}, True),
    ],
)
def test_nothing_moves_in_ci_or_on_a_dumb_terminal(environment: dict[str, str], shows: bool) -> None:
    assert can_redraw(environment) is shows


def test_a_pipe_sees_nothing_of_it() -> None:
    done = backends("trace", "show", str(LOG), environment={"TERM": "xterm"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("columns", [30, 80])
def test_the_bar_is_erased_when_the_keyboard_interrupts(tmp_path: Path, columns: int) -> None:
    # Another file that nobody writes to keeps the bar on the screen until the interrupt.
    waiting = tmp_path / "fifo"
    os.mkfifo(waiting)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    holds = os.open(waiting, os.O_RDWR)
    process = subprocess.Popen(
        [sys.executable, "-m", "mlbackends", "trace", "show", str(LOG), str(waiting)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**PLAIN, "TERM": "xterm"},
    )
    os.close(slave)
    shown = b""
    while b"reading" not in shown:
        shown += os.read(master, 65536)
    process.send_signal(signal.SIGINT)
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:  # the other end is closed: Linux says EIO
        pass
    os.close(master)
    os.close(holds)
    drawn, erase, rest = shown.rpartition(b"\x1b[2K")
    assert process.wait(60) == 130
    assert erase and rest.strip() == b"backends: interrupted"
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode()).split("\r")
    assert max(len(line.strip("\n")) for line in lines) <= columns
