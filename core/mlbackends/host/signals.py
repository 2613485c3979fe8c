"""Signals while programs run: those that a process sends to the launcher are sent on to them.

They are blocked and waited for, not handled: then the sender of a signal is known. The terminal's
(Ctrl-C) reach the programs without us, for they are in the same process group; sent on, they
would arrive twice.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Self


def _those(*names: str) -> tuple[signal.Signals, ...]:
    """Return the signals that this system has: Windows has but few."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


SENT_ON = _those("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
FROM_THE_TERMINAL = _those("SIGINT", "SIGQUIT")
#: Python ignores these for itself; a program that is started expects the system's own answer.
RESTORED = _those("SIGPIPE", "SIGXFSZ")
_OF_CHILDREN = _those("SIGCHLD")
_BLOCKED = (*SENT_ON, *_OF_CHILDREN)
#: How long a signal that is to be sent on may wait.
_SLICE_SECONDS = 0.05


class WaitedSignals:
    """A scope in which signals come one by one, from `next`.

    mask: the signals that were blocked before; programs are started with these.
    """

    def __init__(self) -> None:
        self.mask: set[signal.Signals | int] = set()
        self._ignores_children = False

    def __enter__(self) -> Self:
        # A parent that ignores SIGCHLD hands that down, and exit codes would be lost.
        if (
            signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
            and threading.current_thread() is threading.main_thread()
        ):
            self._ignores_children = True
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            # What came as the last program ended was meant for the programs.
            while signal.sigtimedwait(_BLOCKED, 0):
                pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        if self._ignores_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def next(self, seconds: float) -> int:
        """Wait for a signal, the end of a program included; return the one to send on, or 0."""
        end = time.monotonic() + seconds
        while True:
            if received := signal.sigtimedwait(SENT_ON, 0):
                # kill() and its like have a code of 0 or less; the kernel's, as for Ctrl-C, is above 0.
                return received.si_signo if received.si_code <= 0 else 0
            left = end - time.monotonic()
            # If its time is over when a stop ends, CPython's function returns what was on the stack, which
            # may look like any signal. A limit of 0 cannot be interrupted, and this result is not read.
            if left <= 0 or signal.sigtimedwait(_OF_CHILDREN, min(left, _SLICE_SECONDS)):
                return 0


def ended(processes: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield those of our processes that have ended, each with its status.

    As process 1 of a container we are the parent of every daemon that was left there: these end here too.
    """
    if os.getpid() != 1:
        for process in processes:
            is_over, status = os.waitpid(process, os.WNOHANG)
            if is_over:
                yield process, status
        return
    with contextlib.suppress(ChildProcessError):  # none is left
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            if child[0] in processes:
                yield child


def send(number: int, processes: Iterable[int]) -> None:
    """Send a signal to processes of ours; one that is gone does not matter."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)
