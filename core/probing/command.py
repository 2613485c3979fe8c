"""Run a command, for its output, within a time limit; the whole process group dies with it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

OUTPUT_LIMIT = 32 << 20
"""Bytes that a command may print; one that prints more is held to fail."""


def output_of(command: Sequence[str], timeout: float, environment: Mapping[str, str]) -> str:
    """Return a command's standard output; "" where it is missing, fails or takes too long."""
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
        return ""
    try:
        output = _output(process, timeout)
        return output.decode(errors="replace") if process.returncode == 0 else ""
    except subprocess.TimeoutExpired:
        return ""
    finally:  # also where we are interrupted
        kill_group(process)
        if process.stdout is not None:
            process.stdout.close()


def _output(process: "subprocess.Popen[bytes]", timeout: float) -> bytes:
    """Read to the end, and no more than a limit: a command that prints for ever must not fill our memory."""
    if not hasattr(os, "set_blocking") or os.name == "nt":  # a pipe there cannot be waited for
        return process.communicate(timeout=timeout)[0]
    import select

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
    raise subprocess.TimeoutExpired(process.args, timeout)


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
