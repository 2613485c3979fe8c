"""Colour, width and characters follow what the user and the terminal say."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from running import PLAIN, backends

from mlbackends_cli.terminal import page, uses_color

if os.name != "nt":
    import fcntl
    import pty
    import termios

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    FakeLibrary = Callable[..., Path]


@pytest.mark.parametrize(
    ("choice", "terminal", "environment", "expected"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": "3"}, True),
        ("auto", False, {"FORCE_COLOR": "0"}, False),
        ("auto", False, {"FORCE_COLOR": ""}, False),
        ("auto", False, {"CLICOLOR_FORCE": "1"}, True),
        ("auto", False, {"CLICOLOR_FORCE": "0"}, False),
        ("auto", True, {"CLICOLOR": "0"}, False),
        ("auto", True, {"CLICOLOR": "0", "CLICOLOR_FORCE": "1"}, True),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_decided_in_one_order(
    choice: str, terminal: bool, environment: dict[str, str], expected: bool
) -> None:
    assert uses_color(choice, terminal, environment) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("120", 120), ("99999999", 1000), ("9" * 5000, 1000), ("0", 80), ("-5", 80), ("007", 40)],
)
def test_a_page_is_never_wider_than_anybody_can_use(
    given: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", given)

    assert page("never").width == expected


def test_forced_colour_colours_and_no_color_leaves_not_even_bold() -> None:
    assert "\033[" in backends("info", "--depth", "found", environment={"FORCE_COLOR": "1"}).stdout
    plain = {"NO_COLOR": "1", "FORCE_COLOR": "1"}
    assert "\033" not in backends("info", "--depth", "found", environment=plain).stdout


def test_a_terminal_without_unicode_gets_ascii() -> None:
    done = backends("info", "--depth", "found", environment={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})

    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "- found only" in done.stdout


@pytest.mark.slow
def test_a_terminal_is_told_what_is_waited_for_and_a_pipe_is_not(fake_library: FakeLibrary) -> None:
    hang = "#include <unistd.h>\n__attribute__((constructor)) void f(void) { for (;;) pause(); }"
    library = fake_library("hang", "libnccl.so.2", source=hang)
    environment = {"LD_LIBRARY_PATH": str(library.parent), "TERM": "xterm", "NO_COLOR": "1"}
    arguments = ("info", "nccl", "--timeout", "2")

    on_terminal, shown = in_terminal(*arguments, environment=environment)
    assert on_terminal == 0
    assert "0 of 1 library has answered, waiting for nccl" in shown
    assert shown.rpartition("\x1b[2K")[2].lstrip("\r\n").startswith("✗  NCCL")
    assert backends(*arguments, environment=environment).stderr == ""


@pytest.mark.slow
def test_the_progress_of_a_fleet_names_the_late_nodes(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\ncase "$*" in *n3*) sleep 2 ;; esac\nexit 255\n')
    ssh.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TERM": "xterm", "NO_COLOR": "1"}
    code, text = in_terminal("fleet", "run", "--hosts", "n[1-3]", environment=environment)
    assert code == 3
    assert "2 of 3 nodes, waiting for n3" in text


def test_a_file_gets_no_colour_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert page("auto").color
    assert not page("auto", "report.txt").color
    assert page("always", "report.txt").color
    file = tmp_path / "report.txt"
    forced = {"FORCE_COLOR": "1"}
    backends("info", "host", "--depth", "found", "--output", str(file), environment=forced)
    assert "\033" not in file.read_text()


def in_terminal(*arguments: str, environment: dict[str, str], columns: int = 0) -> tuple[int, str]:
    """Run the command on a pseudo-terminal of its own; return its exit code and all that it wrote."""
    master, slave = pty.openpty()
    if columns:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "mlbackends", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**PLAIN, **environment},
    )
    os.close(slave)
    written = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed: Linux says EIO
            break
        if not piece:
            break
        written += piece
    os.close(master)
    return process.wait(60), written.decode()


@pytest.mark.parametrize(
    ("topic", "pager", "expected"),
    [
        ("reasons", "sed s/^/|/", "|Reason codes"),
        ("reasons", "head -1", "Reason codes"),
        ("dlopen-failed", "sed s/^/|/", "dlopen-failed"),
        ("reasons", "no-such-program", "Reason codes"),
    ],
)
def test_what_is_longer_than_the_terminal_goes_through_the_pager(
    topic: str, pager: str, expected: str
) -> None:
    environment = {"TERM": "xterm", "PAGER": pager, "NO_COLOR": "1"}
    code, written = in_terminal("explain", topic, environment=environment, columns=80)

    assert (code, written.splitlines()[0]) == (0, expected)
    assert ("exited" in written) == ("Reason" in expected and "head" not in pager)
