"""The command as a process: started with our streams, sent what signals we get, and waited for."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

from mlbackends.launch.signals import WaitedSignals, send
from mlbackends.tracing.capture.programs import NOT_EXECUTABLE, NOT_FOUND, NotStarted

# Python ignores these for itself; a program that is started expects the system's own answer.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)

_GRACE_SECONDS = 5.0


class Signals(Protocol):
    """A scope in which the signals that we get are handed out one by one."""

    mask: "set[signal.Signals | int]"

    def __enter__(self) -> Self: ...
    def __exit__(self, *problem: object) -> None: ...
    def next(self, seconds: float) -> int:
        """Wait for a signal, or the end of a process; return the one to send on, or 0."""


def signals() -> Signals:
    """Return the scope that this system can do."""
    if hasattr(signal, "sigtimedwait"):
        return WaitedSignals()  # type: ignore[return-value]  # its __exit__ names three arguments
    from mlbackends.tracing.capture.handled_signals import HandledSignals

    return HandledSignals()


def start(
    program: Sequence[str],
    environment: Mapping[str, str],
    mask: "set[signal.Signals | int]",
    stdout: int | None = None,
) -> int:
    """Start a file with arguments, as `programs.found` gives them, and return the process id.

    stdout: a descriptor to print to instead of ours. Raises NotStarted.
    """
    path, *arguments = program
    actions = [] if stdout is None else [(os.POSIX_SPAWN_DUP2, stdout, 1)]
    try:
        return os.posix_spawn(
            path,
            arguments,
            dict(environment),
            file_actions=actions,
            setsigmask=mask,
            setsigdef=_RESTORED,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        is_gone = isinstance(error, FileNotFoundError) and not os.path.exists(path)
        if isinstance(error, FileNotFoundError) and not is_gone:
            why = "its interpreter is not there"
        code = NOT_FOUND if is_gone else NOT_EXECUTABLE
        raise NotStarted(f"{path} cannot be started: {why}", code) from None


def wait(
    process: int, handed_out: Signals, beat_seconds: float, on_beat: Callable[[], None]
) -> int:
    """Wait for a process, and return its exit code, -N where signal N ended it.

    Signals that a process sends us are sent on. on_beat: called now and then meanwhile.
    """
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if number := handed_out.next(beat_seconds):
            send(number, [process])
        on_beat()


def end(process: int) -> None:
    """End and reap a process, after an error of ours: SIGTERM, and SIGKILL some seconds later."""
    deadline = time.monotonic() + _GRACE_SECONDS
    send(signal.SIGTERM, [process])
    while not os.waitpid(process, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            send(signal.SIGKILL, [process])
        time.sleep(0.01)
