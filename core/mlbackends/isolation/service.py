"""A process that answers one request after another, a JSON object a line, each within a time limit.

The process may run any interpreter: it reads requests from its standard input, and writes to its standard
output {"error": why} where a request failed, {"cannot": why} where it is refused, or else any other object.
"""

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mlbackends.base.reasons import Reason
from mlbackends.host.command import ending, kill_group, start_group
from mlbackends.model.checked import Ended

_LONGEST_MESSAGE = 300
_GRACE_SECONDS = 1.0


class Lost(Exception):
    """A request without a good answer: how that ended, and why."""

    def __init__(self, ended: Ended, reason: Reason) -> None:
        super().__init__(reason.message)
        self.ended, self.reason = ended, reason


class Service:
    """One process, started at once. errors: the path of the file that receives its standard error."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], errors: str) -> None:
        self._errors = errors
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._start_error = ""
        try:
            with open(errors, "wb") as file:
                self._process = start_group(
                    command, environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
                )
        except OSError as error:
            self._start_error = error.strerror or str(error)
            return
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether it takes requests."""
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """Stop its threads, and all that it started, where the system can; the next request wakes them."""
        self._signal("SIGSTOP")

    def send(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Return the answer. Raises Lost without a good one; the process is ended if it died or was late."""
        process = self._process
        if process is None:
            message = f"no process could be started to compute: {self._start_error}"
            raise Lost(Ended.CRASHED, Reason("not-asked", message))
        assert process.stdin is not None
        self._signal("SIGCONT")
        with contextlib.suppress(OSError, ValueError):  # it has ended; the answer below says how
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
        try:
            line = self._replies.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            message = f"it did not answer within {timeout:g} s, and was killed"
            raise Lost(Ended.TIMED_OUT, Reason("timed-out", message)) from None
        if not line:
            self._replies.put(line)  # for the next request
        try:
            answer: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            # How a process ended that gave no answer, with the last line of its standard error.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
            self.stop()
            lines = [""]
            with contextlib.suppress(OSError), open(self._errors, "rb") as file:
                lines += filter(str.strip, file.read().decode(errors="replace").split("\n"))
            last = " ".join(lines[-1].split())[:_LONGEST_MESSAGE]
            code = process.returncode
            kind, how = ("exited", f"exit code {code}") if code is None else ending(code)
            by = "was killed by {}" if kind == "crashed" else "ended with {} and no answer"
            how = f"its process {by.format(how)}"
            raise Lost(Ended.CRASHED, Reason(kind, f"{how}: {last}" if last else how)) from None
        if "cannot" in answer:
            message, hint = str(answer["cannot"]), str(answer.get("hint", ""))
            raise Lost(Ended.CANNOT, Reason("missing-part" if hint else "library-refuses", message, hint))
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

    def _signal(self, name: str) -> None:
        if self.alive and hasattr(signal, name):  # Windows has neither
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, getattr(signal, name))

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        """Queue each line; an empty one marks the end."""
        with contextlib.suppress(OSError, ValueError):
            assert process.stdout is not None
            for line in process.stdout:
                self._replies.put(line)
        self._replies.put(b"")
