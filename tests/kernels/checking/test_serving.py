"""How the calls of a problem are timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from mlbackends_kernels.checking import serving


class Counted(serving.Prepared):
    """A call that takes a millisecond, and counts itself."""

    calls = 0

    def call(self) -> None:
        """Compute."""
        self.calls += 1
        time.sleep(0.001)


def test_the_first_fifth_of_the_time_warms_up_and_is_not_counted() -> None:
    counted = Counted()
    answer = serving.responder(lambda _: counted)
    answer({"do": "prepare"})
    timed = answer({"do": "time", "seconds": 0.05, "calls": 1000})["seconds"]

    assert 1 <= len(timed) < counted.calls


def test_there_are_no_more_calls_than_wanted() -> None:
    counted = Counted()
    answer = serving.responder(lambda _: counted)
    answer({"do": "prepare"})

    assert len(answer({"do": "time", "seconds": 60, "calls": 3})["seconds"]) == 3
    assert counted.calls == 3


def test_a_call_that_takes_longer_is_counted_all_the_same() -> None:
    counted = Counted()
    answer = serving.responder(lambda _: counted)
    answer({"do": "prepare"})

    assert len(answer({"do": "time", "seconds": 1e-6, "calls": 1000})["seconds"]) == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="no /proc/PID/schedstat")
def test_threads_that_wait_for_a_cpu_are_counted() -> None:
    """Three threads on one CPU, which hash without Python's lock: two of them wait at any time."""
    program = """
import hashlib, json, os, threading, time
from mlbackends_kernels.checking import serving
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
data = bytes(1 << 20)

class Sleeping(serving.Prepared):
    def call(self):
        time.sleep(0.2)

def hash_on():
    while True:
        hashlib.sha256(data)

answer = serving.responder(lambda _: Sleeping())
answer({"do": "prepare"})
for _ in range(3):
    threading.Thread(target=hash_on, daemon=True).start()
print(json.dumps(answer({"do": "time", "seconds": 0.1, "calls": 1})), flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout)["waited"] > 0.2
