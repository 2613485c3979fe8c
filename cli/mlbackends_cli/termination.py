"""An end from outside, as a job that is cancelled gets it: what a command has opened is cleared up first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def cleared_up() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave the block as an exception does, with exit code 128 + N.

    A second one ends the process at once. A signal that is ignored, as nohup has it, or that somebody
    handles stays so; and so do all in a thread other than the main one, which cannot change them.
    """
    here = threading.current_thread() is threading.main_thread()
    taken = [each for each in _SIGNALS if here and signal.getsignal(each) is signal.SIG_DFL]
    for each in taken:
        signal.signal(each, _leave)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
