"""Signals that are waited for."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

if sys.platform != "linux":
    pytest.skip("launches are Linux's", allow_module_level=True)

from mlbackends.launch.signals import WaitedSignals, send


def test_a_signal_of_a_process_is_handed_out() -> None:
    with WaitedSignals() as signals:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        assert signals.next(10) == signal.SIGUSR1
        assert signals.next(0) == 0


def test_afterwards_the_mask_is_as_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with WaitedSignals() as signals:
        assert signals.mask == before
        assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_what_comes_last_does_not_hit_us_afterwards() -> None:
    with WaitedSignals():
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


def test_an_ignored_sigchld_is_heeded_meanwhile() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with WaitedSignals():
            assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_process_that_is_gone_does_not_matter() -> None:
    process = os.posix_spawnp("true", ["true"], {})
    os.waitpid(process, 0)
    send(signal.SIGTERM, [process])
