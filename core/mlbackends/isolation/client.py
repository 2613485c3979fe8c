"""Open libraries in child processes: our side of the pipe.

On Linux one child is started, and forks for each file. Elsewhere, where a fork of a process that has
opened system frameworks is not safe (macOS) or not there (Windows), each file gets a child.
"""

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from mlbackends.base.mounts import environment
from mlbackends.base.reader import python_command
from mlbackends.base.reasons import Reason
from mlbackends.host.command import ending, kill_group, read_to_end, start_group
from mlbackends.isolation.protocol import (
    REPLY_LIMIT,
    Reply,
    Request,
    read_reply,
    reason_of,
    unanswered,
)
from mlbackends.model.records import Presence

#: Seconds beyond the time limit after which the child itself counts as hanging, and is killed.
GRACE = 1.0

_SEAL_LENGTH = 16
_INTERRUPTED_SECONDS = 0.2

#: How long a child that has closed its pipe may take to end: on a busy machine that is seconds.
EXIT_SECONDS = 5.0

_SERVE = "from mlbackends.isolation.worker import main; main()"
#: What the child of a single file runs.
_ONE = "from mlbackends.isolation.opening import answer_one; answer_one()"

#: Whether one child forks for each file: that is unsafe on macOS, and impossible on Windows.
FORKS = sys.platform == "linux"


class Child:
    """A child that answers requests. It is started at once, and comes up while probes still search.

    Where FORKS is false, each file gets a separate child when its request is sent. process: the child, or
    None; why_not: why it could not be started.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.why_not = ""
        if not FORKS:
            return
        try:
            # Its standard error is not read. A container may lack /dev/null.
            noise = subprocess.DEVNULL if os.path.exists(os.devnull) else subprocess.PIPE
            self.process = _start(_SERVE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=noise)
        except OSError as error:
            self.why_not = error.strerror or str(error)

    def send(self, batches: Iterable[Sequence[Request]]) -> Iterator[Reply]:
        """Send every request, and yield the final reply to every job as it comes.

        batches: each is requested while the child works on the one before it.

        If a library has killed the child, each remaining file gets a separate child: that shows which
        one kills it.
        """
        batches = iter(batches)
        rest = itertools.chain.from_iterable(batches)
        if not FORKS:  # batches import probes, which must not happen while our threads run
            yield from side_by_side(_send_alone, list(rest))
            return
        if self.process is None:
            message = f"no process could be started to open it: {self.why_not}"
            yield from _all_of(rest, Reason("not-asked", message))
            return
        sent: dict[str, Request] = {}
        done: set[int] = set()
        for reply in self._replies(batches, sent):
            done.add(reply.id)
            yield reply
        requests = [*sent.values(), *rest]  # the child may have gone before all were sent
        left = [
            replace(request, jobs=jobs)
            for request in requests
            if (jobs := tuple(job for job in request.jobs if job.id not in done))
        ]
        if len(requests) > 1:
            yield from side_by_side(Child.send_one, left)
        else:
            yield from _all_of(left, self._lost())

    def close(self) -> None:
        """End the child and everything below it."""
        process = self.process
        if process is None:
            return
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None and not stream.closed:
                with contextlib.suppress(OSError):
                    stream.close()
        # It knows its descendants, also those in other sessions; so let it end them first.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            for number in (signal.SIGTERM, signal.SIGCONT):
                process.send_signal(number)
            process.wait(EXIT_SECONDS)
            return
        kill_group(process)

    @staticmethod
    def send_one(request: Request) -> list[Reply]:
        """Return the final replies to the jobs of one file from a separate child."""
        with contextlib.closing(Child()) as child:
            return list(child.send([[request]]))

    def _replies(self, batches: Iterator[Sequence[Request]], sent: dict[str, Request]) -> Iterator[Reply]:
        """Yield the replies, until all are there, the child has gone, or it is silent for too long.

        sent: gets each request that is sent, by its seal.
        """
        process = self.process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        question, answer = process.stdin.fileno(), process.stdout.fileno()
        open_jobs: set[tuple[str, int]] = set()
        lines = bytearray()
        # Both at once: with thousands of files the child's answers fill its pipe while we still ask.
        os.set_blocking(question, False)
        poller = select.poll()
        poller.register(question, select.POLLOUT)
        poller.register(answer, select.POLLIN | select.POLLHUP)
        unread = bytearray()
        limit, last_reply = GRACE, time.monotonic()
        while (open_jobs or not process.stdin.closed) and (left := last_reply + limit - time.monotonic()) > 0:
            ready = dict(poller.poll(left * 1000))
            if question in ready:
                if not lines:
                    batch = next(batches, None)
                    if batch is None:
                        poller.unregister(question)
                        process.stdin.close()
                    for request in batch or ():
                        request = replace(request, seal=os.urandom(_SEAL_LENGTH // 2).hex())
                        sent[request.seal] = request
                        open_jobs |= {(request.seal, job.id) for job in request.jobs}
                        limit = max(limit, request.timeout + GRACE)
                        lines += msgspec.json.encode(request) + b"\n"
                last_reply = time.monotonic()
                try:
                    del lines[: os.write(question, lines[:65536]) if lines else 0]
                except BlockingIOError:
                    pass
                except OSError:  # it has gone; its replies can still be read
                    lines.clear()
            if answer in ready:
                data = os.read(answer, 65536)
                if not data:
                    return
                *lines_read, unread = (unread + data).split(b"\n")
                if len(unread) > REPLY_LIMIT:
                    unread = bytearray()
                for line in lines_read:
                    # A library can find this pipe in /proc: what it writes there has no seal.
                    seal = line[:_SEAL_LENGTH].decode(errors="replace")
                    reply = read_reply(bytes(line), seal) if seal in sent else None
                    if reply is not None and (seal, reply.id) in open_jobs:
                        last_reply = time.monotonic()
                        open_jobs.discard((seal, reply.id))
                        yield reply

    def _lost(self) -> Reason:
        """Return why the child gave no answer to one file."""
        assert self.process is not None
        try:
            code = self.process.wait(timeout=EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return Reason("timed-out", "the process that opens it is still running and has not answered")
        return Reason("exited", f"it ended the process that asks libraries with {ending(code)[1]}")


def _all_of(requests: Iterable[Request], reason: Reason) -> Iterator[Reply]:
    for request in requests:
        for job in request.jobs:
            yield Reply(job.id, Presence.FOUND, reason=reason)


#: The children of `side_by_side`; they end with an interrupt.
running: set[subprocess.Popen[bytes]] = set()

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    call: Callable[[Item], list[Result]], items: Sequence[Item], at_once: int = 0
) -> Iterator[Result]:
    """Yield what a call returns for each item, as it comes. at_once: as many calls as threads, 0 for many."""
    if not items:
        return
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

    with ThreadPoolExecutor(at_once or 2 * (os.cpu_count() or 1) + 2) as pool:
        left = {pool.submit(call, item) for item in items}
        try:
            while left:  # with a time limit: no other wait can be interrupted on Windows
                done, left = wait(left, _INTERRUPTED_SECONDS, FIRST_COMPLETED)
                for answer in done:
                    yield from answer.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [*running]:
                kill_group(process)
            raise


def _send_alone(request: Request) -> list[Reply]:
    """Open one file in a separate child; continue in a new one after a library that ended it."""
    replies: list[Reply] = []
    jobs = list(request.jobs)
    while jobs:
        start = time.monotonic()
        sealed = replace(request, jobs=tuple(jobs), seal=os.urandom(8).hex())
        try:
            process = _start(_ONE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            message = f"no process could be started to open it: {error.strerror or error}"
            return [*replies, *_all_of([sealed], Reason("not-asked", message))]
        running.add(process)
        try:
            question, seconds = msgspec.json.encode(sealed), request.timeout * len(jobs)
            ended, (output, noise) = read_to_end(process, seconds, question, EXIT_SECONDS)
        finally:
            running.discard(process)
        sent = [reply for line in output.split(b"\n") if (reply := read_reply(line, sealed.seal))]
        finished = {reply.id for reply in sent if reply.final}
        replies += [reply for reply in sent if reply.final]
        jobs = [job for job in jobs if job.id not in finished]
        if jobs:
            job = jobs.pop(0)
            before = next((answer for answer in reversed(sent) if answer.id == job.id), None)
            reason = reason_of(process.returncode if ended else None, request.timeout, noise)
            replies.append(unanswered(job, before, reason, time.monotonic() - start))
    return replies


def _start(module: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Start a child of ours with Python code. Raises OSError."""
    return start_group(python_command(module), environment(trusting=True), **streams)
