"""A process that answers requests, one JSON object a line, within a time limit.

The other side is kernels/mlbackends_kernels/checking/serving.py.
"""

import contextlib
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mlbackends.host.command import kill_group
from mlbackends.model.checked import Ended
from mlbackends.model.reasons import Reason

_WORDS = 300
_GRACE_SECONDS = 1.0


class Lost(Exception):
    """A request without a good answer: how that ended, and why."""

    def __init__(self, ended: Ended, reason: Reason) -> None:
        super().__init__(reason.message)
        self.ended, self.reason = ended, reason


class Served:
    """One process, started at once. complaints: a file that gets what it writes to standard error."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], complaints: str
    ) -> None:
        self._complaints = complaints
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._why_not = ""
        try:
            with open(complaints, "wb") as file:
                self._process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    env=dict(environment),
                    start_new_session=True,
                )
        except OSError as error:
            self._why_not = error.strerror or str(error)
            return
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process is not None and self._process.poll() is None

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Return the answer. Raises Lost without a good one; it has ended where it died or took longer."""
        process = self._process
        if process is None:
            said = f"no process could be started to compute in: {self._why_not}"
            raise Lost(Ended.CRASHED, Reason("not-asked", said))
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has gone; why, is told below
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            said = f"it did not answer within {timeout:g} s, and was killed"
            raise Lost(Ended.TIMED_OUT, Reason("timed-out", said)) from None
        if not line:
            self._answers.put(line)  # for whoever asks again
        try:
            answer: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            raise self._death(process) from None
        if "cannot" in answer:
            raise Lost(Ended.CANNOT, Reason("library-refuses", str(answer["cannot"])))
        if "error" in answer:
            raise Lost(Ended.RAISED, Reason("call-failed", str(answer["error"])))
        return answer

    def stop(self) -> None:
        """End it, and all that it started."""
        if self._process is None:
            return
        kill_group(self._process)
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        """Hand on each line; an empty one says that there will be no more."""
        with contextlib.suppress(OSError, ValueError):
            assert process.stdout is not None
            for line in process.stdout:
                self._answers.put(line)
        self._answers.put(b"")

    def _death(self, process: "subprocess.Popen[bytes]") -> Lost:
        """Return what is known of the end of a process that gave no answer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        self.stop()
        last = self._last_words()
        code = process.returncode
        if code is not None and code < 0:
            reason, how = "crashed", f"its process was killed by {_signal(-code)}"
        else:
            reason, how = "exited", f"its process ended with exit code {code} and no answer"
        return Lost(Ended.CRASHED, Reason(reason, f"{how}: {last}" if last else how))

    def _last_words(self) -> str:
        try:
            with open(self._complaints, "rb") as file:
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return " ".join(next((each for each in reversed(lines) if each.strip()), "").split())[
            :_WORDS
        ]


def _signal(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def own_command(module: str, *arguments: str) -> list[str]:
    """Return what starts the `main` of one of our modules in an interpreter like this one."""
    import sys

    # -S and our own sys.path: site's start-up files are foreign code too.
    called = ", ".join(map(repr, arguments))
    program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main({called})"
    return [sys.executable, "-I", "-S", "-c", program]


def program_command(python: str, path: str, arguments: Sequence[str]) -> list[str]:
    """Return what runs a program by another interpreter; what lies in the current folder is not imported."""
    program = (
        "import runpy, sys; sys.path[:] = [p for p in sys.path if p];"
        f" sys.argv[:] = {[path, *arguments]!r}; runpy.run_path({path!r}, run_name='__main__')"
    )
    return [python, "-c", program]


def environment(lowered: str = "") -> dict[str, str]:
    """Return the environment of a child. lowered: what ATEN_CPU_CAPABILITY is to say, "" for nothing."""
    found = dict(os.environ)
    if lowered:
        found["ATEN_CPU_CAPABILITY"] = lowered
    return found
