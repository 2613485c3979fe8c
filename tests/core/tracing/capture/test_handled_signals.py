"""Signals where they cannot be waited for: as on macOS, and tried wherever there are signals."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

if sys.platform == "win32":
    pytest.skip("signals are POSIX's", allow_module_level=True)

from mlbackends.tracing.capture.process import HandledSignals


def test_a_signal_is_handed_out() -> None:
    with HandledSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.next(10) == signal.SIGTERM
        assert signals.next(0) == 0


def test_afterwards_handlers_are_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with HandledSignals():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_it_waits_only() -> None:
    seen: list[int] = []

    def wait() -> None:
        with HandledSignals() as signals:
            seen.append(signals.next(0.01))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert seen == [0]
