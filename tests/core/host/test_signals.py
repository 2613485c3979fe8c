"""Signals that are waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

if sys.platform != "linux":
    pytest.skip("launches are Linux's", allow_module_level=True)

from mlbackends.host.signals import WaitedSignals, ended, send


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


FIRST_PROCESS = """
import ctypes, os, time
from mlbackends.host.signals import ended

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # what is left behind becomes our child, as that of process 1
own = os.fork()
if not own:
    for _ in range(50):
        middle = os.fork()
        if not middle:
            os._exit(os.fork() and 0)
        os.waitpid(middle, 0)
    os._exit(7)
os.getpid = lambda: 1
codes, deadline = [], time.monotonic() + 60
while time.monotonic() < deadline:
    codes += [os.waitstatus_to_exitcode(status) for _, status in ended([own])]
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        print(codes)
        break
    time.sleep(0.001)
"""


def test_process_1_reaps_the_daemons_that_were_left_to_it() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_PROCESS], capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"[7]\n", b"")


def test_another_process_leaves_children_that_are_not_its_own_affair() -> None:
    theirs, ours = (os.posix_spawnp("true", ["true"], {}) for _ in range(2))
    codes: list[tuple[int, int]] = []
    while not codes:
        codes += ended([ours])
    assert codes == [(ours, 0)]
    assert os.waitpid(theirs, 0) == (theirs, 0)
