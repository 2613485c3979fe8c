"""The loop of a process that computes for `sdpa check`: it answers requests, one JSON object a line.

It imports only the standard library, since other interpreters run it too, from Python 3.8 on.

    {"do": "prepare", "problem": {...}, "files": {"query": PATH, ...}, "grad_out": {...}}   {"details": {...}}
    {"do": "compute", "into": PATH}                                {"extra_bytes": 0, "measured_by": "..."}
    {"do": "time", "seconds": 0.05, "calls": 100}                    {"seconds": [0.1, ...], "waited": 0.0}

"time" repeats the call for a number of seconds, up to a number of times, at least once; see `OnHost`, and
`device_timing.OnDevice` for devices, whose answer also has "host_seconds" and "timed_by".

grad_out is the record of the gradient of the result, for tensors that require gradients; then only the
backward pass is measured.

A failure is answered by {"error": "TypeError: ..."}, a problem that the library does not support by
{"cannot": "why", "hint": "what to install, if anything"}. Answers are written to the original standard
output; the output of libraries goes to standard error.
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

Responder = Callable[..., Any]  # from a request to an answer; not dict[...], for Python 3.8
_LONGEST = 2000
#: PR_SET_PDEATHSIG: a library that hangs must not survive the command. Source: prctl(2).
_DIE_WITH_PARENT = 1
_MEASURED_BY = "the peak of resident memory"


class Refused(Exception):
    """The library does not support a problem: why, and optionally the command that installs what it needs."""


class OnHost:
    """Measures synchronous calls, by the host's clock and the process's memory."""

    def memory_before(self) -> int:
        """Return the resident memory, 0 where it or its peak is unknown."""
        with contextlib.suppress(OSError, AttributeError, TypeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)  # memory that earlier calls have freed
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets VmHWM
            file.flush()
            return _status("VmRSS")
        return 0

    def memory_after(self, before: int, output_bytes: int) -> dict[str, Any]:
        """Return the peak extra memory since then, without the output; {} where it is unknown."""
        highest = _status("VmHWM")
        if not before or not highest:
            return {}
        extra = max(0, highest - before - output_bytes)
        return {"extra_bytes": extra, "measured_by": _MEASURED_BY}

    def time(self, call: Callable[[], Any], duration: float, most: int) -> dict[str, Any]:
        """Return the seconds of calls; those in the first fifth of the time are a warm-up, if others follow.

        waited: the seconds that threads waited for a CPU in each second, on Linux.
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
    """A problem that is ready to be computed; programs derive from it.

    details: facts about the library, such as its version. output_bytes: the size of the result. measure:
    measures time and memory of calls.
    """

    details: dict[str, str] = {}  # noqa: RUF012
    output_bytes = 0
    measure: Any = OnHost()

    def warm(self) -> None:
        """Run a small problem, so that one-time work of a library is not measured."""

    def before(self) -> None:
        """Do what must precede the call and is not measured: the forward pass of a backward one."""

    def call(self) -> Any:
        """Compute once, and return the finished result."""
        raise NotImplementedError

    def save(self, result: Any, path: str) -> None:
        """Write the elements of the result, row by row; bfloat16 as 16-bit patterns.

        The paths of gradients end with a dot and the name of their tensor: result.bin.query
        """
        raise NotImplementedError


def responder(prepare: Callable[[dict[str, Any]], Prepared]) -> Responder:
    """Return what answers requests. prepare: turns the first request of a problem into a Prepared."""
    ready = Prepared()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal ready
        if request["do"] == "prepare":
            ready = Prepared()  # releases the memory of the previous one
            ready = prepare(request)
            return {"details": ready.details}
        if request["do"] == "compute":
            ready.warm()
            ready.before()
            before = ready.measure.memory_before()
            result = ready.call()
            found: dict[str, Any] = ready.measure.memory_after(before, ready.output_bytes)
            ready.save(result, request["into"])
            return found
        times: dict[str, Any] = ready.measure.time(ready.call, request["seconds"], request["calls"])
        return times

    return answer


def serve(prepare: Callable[[dict[str, Any]], Prepared]) -> None:
    """Answer requests until standard input ends; see `responder`."""
    answer_all(responder(prepare))


def answer_all(answer: Responder) -> None:
    """Answer each request with what a function returns or raises."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # not Linux
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Refused as refused:
            reply = {"cannot": str(refused.args[0])[:_LONGEST], "hint": "".join(refused.args[1:])}
        except Exception as error:  # noqa: BLE001  foreign code may raise anything
            message = " ".join(str(error).split())[:_LONGEST]
            reply = {"error": f"{type(error).__name__}: {message}".rstrip(": ")}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _waited() -> float | None:
    """Return the seconds that the threads of this process have waited for a CPU.

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
    """Return a size in /proc/self/status, in bytes; 0 without that file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0
