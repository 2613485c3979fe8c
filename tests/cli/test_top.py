"""`backends top`: one page, a record, and the view on a terminal."""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING

import jsonschema
import pytest
from msgspec import structs
from running import PLAIN, backends

from mlbackends.base.reasons import Reason
from mlbackends.model.usage import (
    SCHEMA,
    GpuUsage,
    GroupUsage,
    MachineUsage,
    MappedLibrary,
    ProcessUsage,
    Usage,
)
from mlbackends_cli.report import usage as pages
from mlbackends_cli.report.commands.schema import SCHEMAS
from mlbackends_cli.report.commands.top import _View
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import layout

if os.name != "nt":
    import fcntl
    import pty
    import termios

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARIES = (
    MappedLibrary("torch", "/v/torch/lib/libtorch_cpu.so", "2.13.0", "torch 2.13.0+cpu"),
    MappedLibrary("openmp", "/v/torch/lib/libgomp-24e2ab19.so.1", "", "torch 2.13.0+cpu"),
    MappedLibrary("cudnn", "/c/libcudnn.so.9", "9.10.2", "nvidia-cudnn-cu12 9.10.2.21", replaced=True),
)
USAGE = Usage(
    SCHEMA,
    "backends 0.1.0",
    "2026-11-23T04:00:00Z",
    1.0,
    redacted=False,
    machine=MachineUsage(64, 43.0, (3.0, 70.0, 99.0) * 21, (4.0, 3.0, 2.0), 1 << 38, 1 << 36, 1 << 33, 0),
    group=GroupUsage(4.0, 390.0, 62.0, 1 << 33, 1 << 34, {"cpu": 43.0}),
    gpus=(
        GpuUsage(0, "NVIDIA H100 80GB HBM3", False, 63.0, 80 << 30, 50 << 30, 67, 412.5, 700.0),
        GpuUsage(1, mig=True),
        GpuUsage(2, reasons=(Reason("gpu-lost", "the GPU fell off the bus"),)),
    ),
    process_count=300,
    processes=(
        ProcessUsage(4242, "python train.py", "ann", cpu_percent=398.0, threads=65, running_threads=64,
         cpus=4.0, memory_bytes=9 << 30, gpus=(0,), gpu_memory_bytes=50 << 30, libraries=LIBRARIES,
         oversubscribed=True),
        ProcessUsage(7, "训练\033[2J\n模型" * 9, "\u202eroot", cpu_percent=0.0, threads=1, libraries=()),
        ProcessUsage(8, ""),
    ),
    notes=(Reason("permission-denied", "/proc hides other users' processes (hidepid)"),),
)  # fmt: skip


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_page(width: int, color: bool) -> None:
    text = pages.whole(USAGE, Page(width, color=color))
    plain = text
    for style in ("0", "1", "2", "31", "32", "33"):
        plain = plain.replace(f"\033[{style}m", "")

    assert "\033" not in plain and "\u202e" not in plain
    assert max(map(layout.width, plain.splitlines())) <= width
    for fact in (
        "43 % of 64 CPUs",
        "stopped in",
        "67 °C",
        "MIG is on",
        "hidepid",
        "65/4!",
        "torch 2.13",
    ):
        assert fact in plain


def test_a_page_says_what_brings_a_library_and_what_is_not_known() -> None:
    text = pages.whole(USAGE, Page(200))

    assert "torch 2.13.0, libgomp (torch), cudnn 9.10.2 (replaced on disk)" in text
    assert "! more runnable threads than CPUs" in text
    assert "? could not be determined" in text
    assert "3.90 of 4 CPUs · stopped in 62 % of periods" in text


def test_the_load_of_each_cpu_has_a_label_and_no_digits() -> None:
    few = structs.replace(USAGE, machine=structs.replace(USAGE.machine, cpus=2, core_percents=(5.0, 99.0)))

    assert "\neach     ▁█\n" in pages.whole(few, Page(80))
    assert "\neach     .#\n" in pages.whole(few, Page(80, unicode=False))


def test_a_sign_is_explained_only_where_it_is_on_the_page() -> None:
    known = structs.replace(USAGE.processes[0], oversubscribed=False)
    others = tuple(
        ProcessUsage(100 + n, "a", "b", cpu_percent=0.0, threads=1, memory_bytes=1, libraries=())
        for n in range(40)
    )
    hidden = structs.replace(USAGE, gpus=(), processes=(known, *others, USAGE.processes[-1]))
    named = structs.replace(hidden, processes=(structs.replace(known, name="why?"),))

    for usage in (hidden, named):
        assert "could not be determined" not in pages.whole(usage, Page(200))
        assert "! more" not in pages.whole(usage, Page(200))


def test_keys_change_the_view() -> None:
    view = _View("cpu", (), "", hides=False)
    for key in ("s", "/", "t", "q", "\b", "\n", "down"):
        view.press(key)
    lines = view.lines(USAGE, Page(80), 24)

    assert (view.sort, view.text, view.first, view.has_more) == ("memory", "t", 1, True)
    assert len(lines) == 24
    assert lines[-1].endswith(f"from 2 of {USAGE.process_count}")  # a small screen has not all
    view.press("?")
    help_lines = view.lines(USAGE, Page(60), 24)
    assert "  /         filter by PID, name, user, command or library;" in help_lines
    for key in ("x", "escape", "q"):
        view.press(key)
    assert (view.text, view.has_more) == ("", False)


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (200, 12)])
def test_many_gpus_leave_room_for_processes_and_keys(size: tuple[int, int]) -> None:
    gpus = tuple(GpuUsage(index, "NVIDIA H100 80GB HBM3") for index in range(40))
    usage = structs.replace(USAGE, gpus=gpus)
    lines = _View("cpu", (), "", hides=False).lines(usage, Page(size[0]), size[1])

    assert len(lines) == size[1]
    assert lines[-1].startswith("q quit")
    assert any(str(usage.processes[0].pid) in line.split() for line in lines[-7:])
    assert sum("more lines, on a larger screen" in line for line in lines) == 1


def test_the_record_is_as_its_schema_says() -> None:
    done = backends("top", "--once", "--interval", "0.1", "--format", "json")
    record = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    jsonschema.validate(record, SCHEMAS["top"]())
    assert record["redacted"] is True
    assert {process["command"] for process in record["processes"]} == {""}


def test_one_page_of_one_process() -> None:
    pid = str(os.getpid())
    done = backends("top", "--once", "--interval", "0.1", "--pid", pid, "--no-redact")

    assert (done.returncode, done.stderr) == (0, "")
    assert pid in done.stdout.splitlines()[-1] + done.stdout.splitlines()[-2]


def test_a_process_that_is_not_there_is_an_error_as_in_info() -> None:
    done = backends("top", "--once", "--interval", "0.1", "--pid", str(1 << 30))

    assert done.stderr == "backends: there is no process 1073741824\nhint: `ps -e` lists them\n"
    assert (done.returncode, done.stdout) == (2, "")
    done = backends("top", "--once", "--interval", "0.1", "--pid", str(1 << 30), "--pid", str(os.getpid()))
    assert (done.returncode, str(os.getpid()) in done.stdout) == (2, True)


@pytest.mark.parametrize(
    ("words", "hint"),
    [((), "`backends top --once` prints one page"), (("--format", "json"), "add --once")],
)
def test_what_needs_once_names_it(words: tuple[str, ...], hint: str) -> None:
    done = backends("top", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr


class Terminal:
    """A terminal of 100 columns and 24 rows with `backends top` on it."""

    def __init__(self, **environment: str) -> None:
        self.child, self.end = pty.fork()
        if self.child == 0:
            time.sleep(0.05)
            words = ["-m", "mlbackends", "top", "--interval", "0.1"]
            os.execve(sys.executable, [sys.executable, *words], {**PLAIN, "TERM": "xterm", **environment})
        self.resize(100)
        self.modes = termios.tcgetattr(self.end)
        self.shown = b""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read_until(self, text: bytes) -> None:
        self.shown = b""
        while text not in self.shown:
            assert select.select([self.end], [], [], 60)[0]
            self.shown += os.read(self.end, 4096)

    def code(self) -> int:
        """Return its exit code, having read what it still prints."""
        self.read_until(b"\033[?1049l")
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


def test_a_terminal_of_ascii_gets_ascii() -> None:
    made = Terminal(PYTHONIOENCODING="ascii")
    made.read_until(b"q quit")
    os.write(made.end, "/é".encode())
    made.read_until(b"filter: ?")
    os.write(made.end, b"\x03")

    assert made.code() == 0
    assert made.shown.isascii()
    os.close(made.end)


def test_a_terminal_that_is_closed_ends_the_view() -> None:
    made = Terminal()
    made.read_until(b"q quit")
    os.close(made.end)

    # By the signal, or by the write that fails where that comes first.
    assert os.waitstatus_to_exitcode(os.waitpid(made.child, 0)[1]) in (128 + signal.SIGHUP, 2)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    os.close(made.end)


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_a_key_ends_the_view_and_the_terminal_is_as_before(terminal: Terminal, key: bytes) -> None:
    terminal.read_until(b"q quit")
    os.write(terminal.end, key)

    assert terminal.code() == 0
    assert termios.tcgetattr(terminal.end) == terminal.modes


def test_the_view_follows_the_terminals_size(terminal: Terminal) -> None:
    terminal.read_until(b"libraries")
    terminal.resize(60)
    terminal.read_until(b"memory name")  # no user there
    os.kill(terminal.child, signal.SIGTERM)

    assert terminal.code() == 128 + signal.SIGTERM
    assert termios.tcgetattr(terminal.end) == terminal.modes
