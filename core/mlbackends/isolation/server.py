"""The process that opens libraries for us: started, and ended with everything below it."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

from mlbackends.base.mounts import environment
from mlbackends.base.reader import python_command
from mlbackends.host.command import kill_group, start_group

_SERVE = "from mlbackends.isolation.worker import main; main()"
#: What the child of a single file runs.
ONE = "from mlbackends.isolation.client import answer_one; answer_one()"

#: Whether one child forks for each file: that is not safe on macOS, and not there on Windows.
FORKS = sys.platform == "linux"


def start(module: str, **streams: int) -> "subprocess.Popen[bytes]":
    """Start a child of ours with Python code. Raises OSError."""
    return start_group(python_command(module), env=environment(trusting=True), **streams)


class Server:
    """The child that forks for each file; none where FORKS is false.

    process: None where there is none; why_not: why it could not be started.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.why_not = ""
        if not FORKS:
            return
        try:
            # Nobody reads its standard error; there need not be a /dev/null for that.
            noise = subprocess.DEVNULL if os.path.exists(os.devnull) else subprocess.PIPE
            self.process = start(
                _SERVE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=noise
            )
        except OSError as error:
            self.why_not = error.strerror or str(error)

    def close(self) -> None:
        """End the child and everything below it; where it waits for that, it leaves no zombie."""
        process = self.process
        if process is None:
            return
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None and not stream.closed:
                with contextlib.suppress(OSError):
                    stream.close()
        # It knows what is below it, whatever sessions that has; so let it end first.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            for number in (signal.SIGTERM, signal.SIGCONT):
                process.send_signal(number)
            _wait(process, 0.3)
            return
        kill_group(process)


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait for a process; `subprocess` alone sleeps up to twice as long. Raises TimeoutExpired."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # before Linux 5.3
            handle, poller = os.pidfd_open(process.pid), select.poll()
            poller.register(handle, select.POLLIN)
            start = time.monotonic()
            poller.poll(seconds * 1000)
            os.close(handle)
            seconds = max(0.0, seconds - time.monotonic() + start)
    process.wait(timeout=seconds)
