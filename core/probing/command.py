"""Run a command, for its output, within a time limit; the whole process group dies with it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence


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
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(process)
        if process.stdout is not None:
            process.stdout.close()
        return ""
    return output.decode(errors="replace") if process.returncode == 0 else ""


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
