"""A bar shows how far long files are read: on a terminal, after a while, and never in what is printed."""

from __future__ import annotations

import gzip
import io
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import PLAIN, backends

from mlbackends.tracing.sources import Source
from mlbackends_cli import terminal
from mlbackends_cli.terminal import can_redraw
from mlbackends_cli.text import layout
from mlbackends_cli.trace.reading import Logs, ReadingProgress, bar

if os.name != "nt":
    import fcntl
    import pty
    import termios

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = Path(__file__).resolve().parents[1] / "traces" / "torch-2.13-onednn-level2.log"


class Screen(io.StringIO):
    """A terminal that says when something was written to it."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self.was_written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        length = super().write(text)
        self.was_written.set()
        return length


def on_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Make standard error a terminal on which nothing waits to be shown.

    No fixture, since pytest takes standard error back when a test begins.
    """
    made = Screen()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(terminal, "interprets_sequences", terminal.is_terminal)  # it is no console
    monkeypatch.setattr(ReadingProgress, "DELAY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    return made


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ReadingProgress]:
    """Return what makes a bar that no thread draws, at a clock that goes by whole seconds."""
    clock = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))

    def made(*paths: Path | str, encoding: str = "utf-8") -> ReadingProgress:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        return ReadingProgress([str(path) for path in paths])

    return made


def sparse(path: Path, size: int) -> Path:
    """Make a file of so many bytes that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


@given(st.floats(0, 1), st.integers(0, 200), st.booleans())
def test_a_bar_is_as_wide_as_asked(share: float, width: int, unicode: bool) -> None:
    drawn = bar(share, width, unicode=unicode)
    assert len(drawn) == width
    assert unicode or drawn.isascii()


def test_a_bar_is_as_full_as_the_share() -> None:
    assert (bar(0, 8), bar(0.5, 8), bar(1, 8)) == (" " * 8, "████    ", "████████")
    assert bar(0.5 + 1 / 16, 8) == "████▌   "
    assert bar(0.5, 8, unicode=False) == "####----"


def test_it_tells_share_amount_rate_and_time_left(
    tmp_path: Path, progress: Callable[..., ReadingProgress]
) -> None:
    source = Source(str(sparse(tmp_path / "run.log", 200_000_000)))
    shown = progress(tmp_path / "run.log")
    shown.begin(source)
    source.position = 50_000_000
    assert shown.line(200).split() == [
        *("reading", "run.log", "█" * 10, "25%", "50", "of", "200", "MB", "50.0", "MB/s"),
        *("0:03", "left"),
    ]
    source.close()


def test_a_terminal_without_unicode_gets_a_bar_of_ascii(
    tmp_path: Path, progress: Callable[..., ReadingProgress]
) -> None:
    path = sparse(tmp_path / "run.log", 100)
    shown, source = progress(path, encoding="ascii"), Source(str(path))
    shown.begin(source)
    source.position = 50
    assert f"{'#' * 20}{'-' * 20}   50%" in shown.line(200)
    source.close()


def test_files_together_have_one_bar(
    tmp_path: Path, progress: Callable[..., ReadingProgress]
) -> None:
    paths = [sparse(tmp_path / name, 50_000_000) for name in ("a.log", "b.log")]
    shown, sources = progress(*paths), [Source(str(path)) for path in paths]
    for source in sources:
        shown.begin(source)
    sources[1].position = 25_000_000
    line = shown.line(200)
    assert line.startswith("reading 2 of 2, b.log  ")
    assert " 75%   75 of 100 MB " in line
    for source in sources:
        source.close()


def test_what_has_no_size_has_no_bar(
    progress: Callable[..., ReadingProgress], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "wb"), os.fdopen(reads) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        source = Source("-")
        shown = progress(f"/proc/self/fd/{reads}")
        shown.begin(source)
        source.position = 3_000_000
        assert shown.line(80).split() == ["reading", "standard", "input", "3", "MB", "3.0", "MB/s"]


@pytest.mark.parametrize("name", ["\x1b]0;owned\a.log", "很" * 60 + ".log", "a" * 200])
def test_no_name_breaks_the_line(
    name: str, tmp_path: Path, progress: Callable[..., ReadingProgress]
) -> None:
    path = sparse(tmp_path / name, 1_000_000_000)
    source = Source(str(path))
    shown = progress(path)
    shown.begin(source)
    for width in range(1, 120):
        line = shown.line(width)
        assert layout.width(line) <= width
        assert "\x1b" not in line
    source.close()


@pytest.mark.parametrize("packed", [False, True])
def test_it_is_drawn_while_files_are_read_and_erased_at_the_end(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = on_screen(monkeypatch)
    log = tmp_path / "run.log"
    log.write_bytes(gzip.compress(LOG.read_bytes()) if packed else LOG.read_bytes())
    logs = Logs([str(log)])
    records = logs.records()
    next(records)
    assert screen.was_written.wait(30)
    assert sum(1 for _ in records) > 10
    shown = screen.getvalue()
    assert re.search(r"\r\x1b\[Kreading run\.log  █+ ", shown)
    assert shown.endswith("\r\x1b[K")


def test_who_leaves_off_takes_the_bar_away(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    logs = Logs([str(LOG)])
    records = logs.records()
    next(records)
    assert screen.was_written.wait(30)
    logs.close()
    assert screen.getvalue().endswith("\r\x1b[K")


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
def test_nothing_moves_in_ci_or_on_a_dumb_terminal(
    environment: dict[str, str], shows: bool
) -> None:
    assert can_redraw(environment) is shows


def test_a_pipe_sees_nothing_of_it() -> None:
    done = backends("trace", "show", str(LOG), environment={"TERM": "xterm"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout


def test_the_keyboards_interrupt_leaves_a_clean_line(tmp_path: Path) -> None:
    # Another file that nobody writes to keeps the bar on the screen until the interrupt.
    waiting = tmp_path / "fifo"
    os.mkfifo(waiting)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
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
    assert process.wait(60) == 130
    assert shown.rpartition(b"\r\x1b[K")[2].strip() == b"backends: interrupted"
