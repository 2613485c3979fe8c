"""Run a command, for its output, within a time limit; the whole process group dies with it."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OUTPUT_LIMIT = 32 << 20
"""Bytes that a command may print; one that prints more is held to fail."""


class Outcome(NamedTuple):
    """How a command ended.

    status: the exit status, -N where signal N killed it; None where it could not be started, or was
    stopped at a limit. output: its standard output, "" where it was stopped.
    """

    status: int | None
    output: str = ""
    timed_out: bool = False


def outcome_of(command: Sequence[str], timeout: float, environment: Mapping[str, str]) -> Outcome:
    """Run a command to its end or for `timeout` seconds, whichever comes first."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )
    except (OSError, ValueError):
        return Outcome(None)
    try:
        output = _output(process, timeout)
        if output is None:
            return Outcome(None)
        return Outcome(process.returncode, output.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        return Outcome(None, timed_out=True)
    finally:  # also where we are interrupted
        kill_group(process)
        if process.stdout is not None:
            process.stdout.close()


def _output(process: "subprocess.Popen[bytes]", timeout: float) -> bytes | None:
    """Read to the end; None at a limit: a command that prints for ever must not fill our memory."""
    if not hasattr(os, "set_blocking") or os.name == "nt":  # a pipe there cannot be waited for
        return process.communicate(timeout=timeout)[0]
    assert process.stdout is not None
    deadline = time.monotonic() + timeout
    poller = select.poll()
    poller.register(process.stdout, select.POLLIN)
    output = bytearray()
    while len(output) < OUTPUT_LIMIT:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            raise subprocess.TimeoutExpired(process.args, timeout)
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            process.wait(max(0.0, deadline - time.monotonic()))
            return bytes(output)
        output += piece
    return None


def signal_name(number: int) -> str:
    """Return "SIGSEGV" for 11, and "signal 40" for a real-time signal, which has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that leads its own session, and all that it started; reap it if it dies soon."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    # A process in an uninterruptible wait inside a driver does not die: do not wait for it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)
