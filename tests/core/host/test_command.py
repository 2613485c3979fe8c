"""A command is run within a limit, and how it ended is told in words, on every system."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from mlbackends.host.command import Outcome, ending, kill_group, outcome_of, start_group

if TYPE_CHECKING:
    from collections.abc import Sequence

CRASH = "import faulthandler; faulthandler._read_null()"


def python(code: str) -> Sequence[str]:
    return (sys.executable, "-I", "-S", "-c", code)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (3, "exited", "exit code 3"),
        (-11, "crashed", "SIGSEGV"),
        (0xC0000005, "crashed", "STATUS_ACCESS_VIOLATION (0xC0000005)"),
        (0xC0000409, "crashed", "STATUS_STACK_BUFFER_OVERRUN (0xC0000409)"),
        (0xE0000001, "crashed", "the status (0xE0000001)"),
    ],
)
def test_an_exit_code_is_told_in_words(code: int, kind: str, words: str) -> None:
    assert ending(code) == (kind, words)


def test_output_and_exit_code_come_back() -> None:
    outcome = outcome_of(python("import sys; print('x' * 99999); sys.exit(3)"), 60, os.environ)
    assert (outcome.status, len(outcome.output.rstrip())) == (3, 99999)


def test_a_crash_is_one() -> None:
    outcome = outcome_of(python(CRASH), 60, os.environ)
    assert outcome.status is not None
    assert ending(outcome.status)[0] == "crashed"


def test_what_is_no_program_is_none() -> None:
    assert outcome_of(("no-such-program",), 60, os.environ) == Outcome(None)


def test_what_it_leaves_behind_is_not_waited_for() -> None:
    """A process of its own holds the pipe when the command has ended; it ends with us, too."""
    sleeping = "import time; time.sleep(600)"
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-I', '-S', '-c', {sleeping!r}])\n"
        "print(child.pid, flush=True)\n"
        "child.returncode = 0\n"
    )
    outcome = outcome_of(python(code), 300, os.environ)
    assert outcome.status == 0 and not outcome.timed_out
    try:
        left = psutil.Process(int(outcome.output))
    except psutil.NoSuchProcess:
        return
    psutil.wait_procs([left], timeout=60)
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


def test_killing_takes_what_it_started_too() -> None:
    sleeping = "import time; time.sleep(600)"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-I', '-S', '-c', {sleeping!r}])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    process = start_group(python(code), os.environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    grandchild = psutil.Process(int(process.stdout.readline()))
    kill_group(process)
    process.stdout.close()
    process.wait(60)
    psutil.wait_procs([grandchild], timeout=60)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


@pytest.mark.windows
def test_a_program_that_nobody_holds_any_more_ends() -> None:
    process = start_group(python("import time; time.sleep(600)"), os.environ)
    running = psutil.Process(process.pid)
    process.returncode = 0  # so that nothing warns of it
    del process
    psutil.wait_procs([running], timeout=60)
    assert not running.is_running()
