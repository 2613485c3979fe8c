"""Signals while a command runs, where they cannot be waited for with their sender told (macOS)."""

import os
import select
import signal
import threading
import time
from types import FrameType
from typing import Any, Self

from mlbackends.launch.signals import SENT_ON

_FROM_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_POLL_SECONDS = 0.05


class HandledSignals:
    r"""A scope in which signals come one by one, from `next`.

    Who sent one is not told: Ctrl-C and Ctrl-\ are taken to come from our terminal, which tells the
    command itself. Outside the main thread Python can handle none: nothing is sent on then.
    """

    def __init__(self) -> None:
        self.mask: set[signal.Signals | int] = set()
        self._before: dict[signal.Signals, Any] = {}
        self._pipe = (-1, -1)
        self._wakeup = -1

    def __enter__(self) -> Self:
        self.mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if threading.current_thread() is threading.main_thread():
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            for number in (*SENT_ON, signal.SIGCHLD):
                self._before[number] = signal.signal(number, _note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._pipe[0] >= 0:
            signal.set_wakeup_fd(self._wakeup)
            for end in self._pipe:
                os.close(end)

    def next(self, seconds: float) -> int:
        """Wait for a signal, the end of a program included; return the one to send on, or 0."""
        if self._pipe[0] < 0:
            time.sleep(min(seconds, _POLL_SECONDS))
            return 0
        if not select.select([self._pipe[0]], [], [], seconds)[0]:
            return 0
        number = os.read(self._pipe[0], 1)[0]
        is_ours = number in SENT_ON and not (number in _FROM_THE_TERMINAL and _has_a_terminal())
        return number if is_ours else 0


def _note(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number is in the pipe."""


def _has_a_terminal() -> bool:
    return any(os.isatty(stream) for stream in (0, 1, 2))
