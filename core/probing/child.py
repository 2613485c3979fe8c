"""The child process in which foreign libraries are opened and used.

It reads one JSON line a request and forks a process of its own for each file, so that no library
ever meets another one, and writes one JSON line a reply on a duplicate of its stdout: what libraries
print goes elsewhere, and its tail is kept for the message if they die. A process that dies or
outlasts its time limit has its culprit named, and the jobs behind it go on in a new one.

This process itself opens nothing, and imports nothing but the standard library, msgspec and probes.
"""

import os
import select
import signal
import sys
import time
from collections import deque
from typing import NamedTuple

import msgspec
from msgspec import Struct

from mlbackends.model.reasons import Reason
from mlbackends.model.records import Answer, Library, Presence

PATIENCE = 0.15
"""Seconds after which a process no longer counts against the number that run at once: it waits for
something. So several that hang do not hang one after the other."""

NOISE_KEPT = 2000
"""Bytes of what a library prints that are kept for the message."""


class Job(Struct, frozen=True):
    """One library to be asked by one probe."""

    id: int
    probe: str
    library: Library


class Request(Struct, frozen=True):
    """All that is to be asked of one file, in one process. path: "" opens each library by itself."""

    jobs: tuple[Job, ...]
    depth: Presence
    timeout: float


class Reply(Struct, frozen=True, omit_defaults=True):
    """What came of a job. final: no more replies follow for it. failure: a traceback of our own."""

    id: int
    presence: Presence
    answer: Answer | None = None
    reason: Reason | None = None
    failure: str = ""
    final: bool = True
    seconds: float = 0.0


class _Process(NamedTuple):
    """A forked process at work: what it still has to do, and the ends of its pipes."""

    pid: int
    request: Request
    todo: "deque[Job]"
    replies: int
    noise: int
    printed: bytearray
    pending: bytearray
    clock: list[float]
    """When it started, and when it last answered."""
    last: dict[int, Reply]


def main() -> None:
    """Serve requests from stdin until it is closed and the last is answered."""
    output = os.dup(1)
    os.dup2(2, 1)
    die_with_parent()
    _serve(output)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _serve(output: int) -> None:
    import fcntl

    decoder = msgspec.json.Decoder(Request)
    waiting: deque[Request] = deque()
    processes: dict[int, _Process] = {}  # by either pipe's descriptor
    at_once = (os.cpu_count() or 1) + 1
    unread = bytearray()
    fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK)
    more = True
    while more or waiting or processes:
        now = time.monotonic()
        alive = {process.pid: process for process in processes.values()}
        busy = sum(now - process.clock[0] < PATIENCE for process in alive.values())
        while waiting and busy < at_once:
            process = _start(waiting.popleft())
            processes[process.replies] = processes[process.noise] = process
            alive[process.pid] = process
            busy += 1
        poller = select.poll()
        if more:
            poller.register(0, select.POLLIN)
        for descriptor in processes:
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(_pause(alive, bool(waiting))):
            if descriptor == 0:
                data = _read(0)
                more = data is None or data != b""
                unread += data or b""
                *lines, unread = bytearray(unread).split(b"\n")
                waiting.extend(decoder.decode(line) for line in lines if line)
            elif descriptor in processes:
                _listen(processes[descriptor], descriptor, output)
        for process in alive.values():
            if rest := _finished(process, output):
                for descriptor in (process.replies, process.noise):
                    os.close(descriptor)
                    del processes[descriptor]
                if rest.jobs:
                    waiting.appendleft(rest)


def _pause(alive: dict[int, _Process], waiting: bool) -> int | None:
    """Return how many milliseconds may pass before something is due; None for as long as it takes."""
    now = time.monotonic()
    due = [process.clock[1] + process.request.timeout - now for process in alive.values()]
    if waiting:
        due += [process.clock[0] + PATIENCE - now for process in alive.values()]
        due = [seconds for seconds in due if seconds > -PATIENCE]
    return None if not due else max(1, int(min(due) * 1000) + 1)


def _read(descriptor: int) -> bytes | None:
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _start(request: Request) -> _Process:
    replies, replies_end = os.pipe()
    noise, noise_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        die_with_parent()
        os.dup2(noise_end, 1)
        os.dup2(noise_end, 2)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        forget_core_dumps()
        try:
            work(request, replies_end)
        except OSError:  # what it opened has closed our pipe; the exit code tells
            os._exit(1)
        os._exit(0)
    os.close(replies_end)
    os.close(noise_end)
    now = time.monotonic()
    return _Process(
        pid, request, deque(request.jobs), replies, noise, bytearray(), bytearray(), [now, now], {}
    )


def forget_core_dumps() -> None:
    """Let a library that crashes leave no core file in the user's folder."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _listen(process: _Process, descriptor: int, output: int) -> None:
    data = _read(descriptor) or b""
    if descriptor == process.noise:
        process.printed.extend(data)
        del process.printed[:-NOISE_KEPT]
        return
    process.pending.extend(data)
    while (end := process.pending.find(b"\n")) >= 0:
        line = bytes(process.pending[:end])
        del process.pending[: end + 1]
        reply = msgspec.json.decode(line, type=Reply)
        process.last[reply.id] = reply
        process.clock[1] = time.monotonic()
        if reply.final:
            process.todo.popleft()
            _send(output, reply)


def _finished(process: _Process, output: int) -> Request | None:
    """Return the jobs that are left once a process has ended or run out of time; None while it works."""
    pid, status = os.waitpid(process.pid, os.WNOHANG)
    late = time.monotonic() - process.clock[1] > process.request.timeout
    done = not process.todo
    if not pid and not late and not done:
        return None
    _listen_to_the_end(process, output)
    # The whole session: what the library forked goes with it.
    _kill(process.pid)
    if not pid:
        pid, status = _reap(process.pid)
        status = -1 if late and not done else status
    if process.todo:
        culprit = process.todo.popleft()
        _send(output, _obituary(process, culprit, status))
    return Request(tuple(process.todo), process.request.depth, process.request.timeout)


def _listen_to_the_end(process: _Process, output: int) -> None:
    for descriptor in (process.replies, process.noise):
        os.set_blocking(descriptor, False)
        while _readable(descriptor):
            before = len(process.pending) + len(process.printed), process.clock[1]
            _listen(process, descriptor, output)
            if (len(process.pending) + len(process.printed), process.clock[1]) == before:
                break


def _readable(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue


def _reap(pid: int) -> tuple[int, int]:
    """Wait for a killed process, but not for one that hangs in the kernel and cannot die."""
    for _ in range(50):
        reaped, status = os.waitpid(pid, os.WNOHANG)
        if reaped:
            return reaped, status
        time.sleep(0.002)
    return 0, 0


def _obituary(process: _Process, job: Job, status: int) -> Reply:
    """Return the reply for a job whose process ended without one. status: -1 when it was too late."""
    before = process.last.get(job.id)
    doing = "using" if before else "opening"
    if status == -1:
        limit = f"{process.request.timeout:g} s"
        reason = Reason("timed-out", f"{doing} it gave no answer within {limit}, and was stopped")
    elif os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        reason = Reason(
            "crashed", f"{doing} it ended the process with {name}{_last_words(process)}"
        )
    else:
        code = os.waitstatus_to_exitcode(status)
        said = f"{doing} it ended the process with exit code {code}{_last_words(process)}"
        reason = Reason("exited", said)
    return Reply(
        id=job.id,
        presence=before.presence if before else Presence.FOUND,
        answer=before.answer if before else None,
        reason=reason,
        seconds=time.monotonic() - process.clock[0],
    )


def _last_words(process: _Process) -> str:
    lines = process.printed.decode(errors="replace").strip().splitlines()
    return f"; it printed: {lines[-1].strip()[:200]}" if lines else ""


def _send(output: int, reply: Reply) -> None:
    data = msgspec.json.encode(reply) + b"\n"
    while data:
        data = data[os.write(output, data) :]


# ---- in the process that opens the library --------------------------------------------------


def work(request: Request, output: int) -> None:
    """Do the jobs of one request, one reply each, and one before each step that may not come back."""
    from mlbackends.probing import ladder

    for job in request.jobs:
        for reply in ladder.climb(job.id, job.probe, job.library, request.depth):
            _send(output, reply)
