"""The loop of a process that computes for `sdpa check`: it answers requests, one JSON object a line.

It imports the standard library alone, since other interpreters run it too, from Python 3.8 on.

    {"do": "prepare", "problem": {...}, "files": {"query": PATH, ...}, "grad_out": {...}}   {"details": {...}}
    {"do": "compute", "into": PATH}                                {"extra_bytes": 0, "measured_by": "..."}
    {"do": "time", "seconds": 0.05, "calls": 100}                    {"seconds": [0.1, ...], "waited": 0.0}

The last one computes as often as fits into a time, up to so many times, once at least; see `OnHost`, and
`device_timing.OnDevice` for what a device computes, whose answer also has "host_seconds" and "timed_by".

grad_out is the record of the gradient of the result, for tensors that require gradients; then what is
measured and timed is the backward pass alone.

Whatever fails is answered by {"error": "TypeError: ..."}, a problem that the library does not take by
{"cannot": "why"}. Answers go to what was standard output; what a
library prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from typing import Any, Callable  # noqa: UP035  Python 3.8 has no other

Responder = Callable[..., Any]  # of a request, to an answer; no dict[...]: Python 3.8 runs this too
_LONGEST = 2000
#: PR_SET_PDEATHSIG: a library that hangs must not outlive the command. Source: prctl(2).
_DIE_WITH_PARENT = 1
_MEASURED_BY = "the peak of resident memory"


class Refused(Exception):
    """A problem that the library does not take; the message says why."""


class OnHost:
    """Measures calls that are done when they return: by the host's clock and the process's memory."""

    def memory_before(self) -> int:
        """Return the resident memory, 0 where the system does not tell it or its peak."""
        with contextlib.suppress(OSError, AttributeError, TypeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(
                0
            )  # what earlier calls have freed is not this one's to use
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets VmHWM
            file.flush()
            return _status("VmRSS")
        return 0

    def memory_after(self, before: int, output_bytes: int) -> dict[str, Any]:
        """Return the most that was used since, beyond the output; {} where nobody can tell."""
        highest = _status("VmHWM")
        if not before or not highest:
            return {}
        extra = max(0, highest - before - output_bytes)
        return {"extra_bytes": extra, "measured_by": _MEASURED_BY}

    def time(self, call: Callable[[], Any], duration: float, most: int) -> dict[str, Any]:
        """Return the seconds of calls; those of the first fifth of the time warm up, if others remain.

        waited: how long threads of the process stood ready and had no CPU, for a second of it; only where
        Linux tells.
        """
        clock = time.perf_counter
        early: list[float] = []
        seconds: list[float] = []
        waited = _waited()
        stop = begin = clock()
        while stop < begin + duration and len(early) + len(seconds) < most:
            start = clock()
            call()
            stop = clock()
            (early if start < begin + duration / 5 else seconds).append(stop - start)
        answer: dict[str, Any] = {"seconds": seconds or early}
        if waited is not None:
            answer["waited"] = max(0.0, (_waited() or 0.0) - waited) / (stop - begin)
        return answer


class Prepared:
    """A problem that can be computed: what `serve` is given, and a program derives from.

    details: facts of the library, such as its version. output_bytes: of the result. measure: how time and
    memory of its calls are measured.
    """

    details: dict[str, str] = {}  # noqa: RUF012
    output_bytes = 0
    measure: Any = OnHost()

    def warm(self) -> None:
        """Run something small, so that what a library starts once is not taken for the problem's."""

    def before(self) -> None:
        """Do what the call goes on with, and is not measured: the forward pass of a backward one."""

    def call(self) -> Any:
        """Compute once, and return the result when it is there."""
        raise NotImplementedError

    def save(self, result: Any, path: str) -> None:
        """Write the elements of the result, row by row; those of bfloat16 as their 16 bits.

        Gradients go to the path with the name of their tensor behind a dot: result.bin.query
        """
        raise NotImplementedError


def responder(prepare: Callable[[dict[str, Any]], Prepared]) -> Responder:
    """Return what answers requests. prepare: makes what computes of the first request of a problem."""
    ready = Prepared()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal ready
        if request["do"] == "prepare":
            ready = Prepared()  # so that the last one's memory is given back
            ready = prepare(request)
            return {"details": ready.details}
        if request["do"] == "compute":
            return _compute(ready, request["into"])
        found: dict[str, Any] = ready.measure.time(ready.call, request["seconds"], request["calls"])
        return found

    return answer


def serve(prepare: Callable[[dict[str, Any]], Prepared]) -> None:
    """Answer requests until standard input ends; see `responder`."""
    answer_all(responder(prepare))


def answer_all(answer: Responder) -> None:
    """Answer each request by what a function returns, or by what it raises."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # not Linux
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Refused as refused:
            found = {"cannot": str(refused)[:_LONGEST]}
        except Exception as error:  # noqa: BLE001  foreign code; what it raises is the answer
            message = " ".join(str(error).split())[:_LONGEST]
            found = {"error": f"{type(error).__name__}: {message}".rstrip(": ")}
        replies.write(json.dumps(found) + "\n")
        replies.flush()


def _compute(ready: Prepared, path: str) -> dict[str, Any]:
    """Compute once, save the result, and return the memory that was used beside it."""
    ready.warm()
    ready.before()
    before = ready.measure.memory_before()
    result = ready.call()
    answer: dict[str, Any] = ready.measure.memory_after(before, ready.output_bytes)
    ready.save(result, path)
    return answer


def _waited() -> float | None:
    """Return how long the threads of this process stood ready and had no CPU, in seconds.

    Source: the second number of /proc/PID/schedstat (the kernel's scheduler/sched-stats.rst), nanoseconds.
    """
    try:
        total = 0
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat") as file:
                total += int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9


def _status(name: str) -> int:
    """Return a size of /proc/self/status, in bytes; 0 where there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0
