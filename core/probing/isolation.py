"""Ask libraries questions in a child process: our side of the pipe.

On Linux one child is started, and forks for each file. Elsewhere, where a fork of a process that has
opened system frameworks is not safe (macOS) or not there (Windows), each file gets a child.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from mlbackends.model.reasons import Reason
from mlbackends.model.records import Presence
from mlbackends.probing.child import Reply, Request

if TYPE_CHECKING:
    import subprocess

_SERVE = "from mlbackends.probing.child import main; main()"
_ONE = "from mlbackends.probing.isolation import answer_one; answer_one()"

GRACE = 1.0
"""Seconds beyond the time limit after which the child itself is held to hang, and is killed."""


def _command(what: str) -> list[str]:
    # -S and our own sys.path: site's start-up files are foreign code too, and cost time.
    return [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {what}"]


class Child:
    """A child that answers requests; started at once, so that it comes up while we still look."""

    def __init__(self) -> None:
        import subprocess

        self._process = subprocess.Popen(
            _command(_SERVE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def ask(self, requests: list[Request]) -> Iterator[Reply]:
        """Send every request, and yield the final reply to every job as it comes."""
        import select

        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        open_jobs = {job.id for request in requests for job in request.jobs}
        limit = max((request.timeout for request in requests), default=0.0) + GRACE
        lines = b"".join(msgspec.json.encode(request) + b"\n" for request in requests)
        decoder = msgspec.json.Decoder(Reply)
        try:
            # Replies are few and small: the child cannot fill its pipe while we still write.
            process.stdin.write(lines)
            process.stdin.close()
        except OSError:
            open_jobs_failed = [_lost(job, process) for job in sorted(open_jobs)]
            yield from open_jobs_failed
            return
        poller = select.poll()
        poller.register(process.stdout, select.POLLIN | select.POLLHUP)
        unread = b""
        while open_jobs and poller.poll(limit * 1000):
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                break
            *answered, unread = (unread + data).split(b"\n")
            for line in answered:
                reply = decoder.decode(line)
                open_jobs.discard(reply.id)
                yield reply
        for job in sorted(open_jobs):
            yield _lost(job, process)

    def close(self) -> None:
        """End the child and everything below it; leaves no zombie."""
        from mlbackends.probing.command import kill_group

        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except OSError:
                    continue
        kill_group(process)


def _lost(job: int, process: "subprocess.Popen[bytes]") -> Reply:
    code = process.poll()
    said = "still runs and is silent" if code is None else f"ended with exit code {code}"
    return Reply(
        job, Presence.FOUND, reason=Reason("exited", f"the process that asks libraries {said}")
    )


class Spawner:
    """The same questions with one child for each file, for systems where forking is not safe."""

    def ask(self, requests: list[Request]) -> Iterator[Reply]:
        """Ask everything, a few files at once, and yield the final replies as they come."""
        from concurrent.futures import ThreadPoolExecutor, as_completed

        with ThreadPoolExecutor(2 * (os.cpu_count() or 1) + 2) as pool:
            for done in as_completed([pool.submit(_ask_alone, request) for request in requests]):
                yield from done.result()

    def close(self) -> None:
        """Nothing is left to end: each child is waited for or killed where it is asked."""


def _ask_alone(request: Request) -> list[Reply]:
    """Ask one file in a child of its own; go on behind a culprit in a new one."""
    import subprocess

    replies: list[Reply] = []
    jobs = list(request.jobs)
    while jobs:
        start = time.monotonic()
        process = subprocess.Popen(
            _command(_ONE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        late = False
        question = msgspec.json.encode(Request(tuple(jobs), request.depth, request.timeout))
        try:
            output, noise = process.communicate(question, timeout=request.timeout * len(jobs))
        except subprocess.TimeoutExpired:
            from mlbackends.probing.command import kill_group

            kill_group(process)
            late = True
            output, noise = _what_came(process)
        said = [
            msgspec.json.decode(line, type=Reply)
            for line in output.splitlines()
            if line[-1:] == b"}"
        ]
        finished = {reply.id for reply in said if reply.final}
        replies += [reply for reply in said if reply.final]
        jobs = [job for job in jobs if job.id not in finished]
        if jobs:
            culprit = jobs.pop(0)
            before = [reply for reply in said if reply.id == culprit.id]
            replies.append(
                Reply(
                    culprit.id,
                    before[-1].presence if before else Presence.FOUND,
                    before[-1].answer if before else None,
                    _why_it_ended(process.returncode, late, request.timeout, noise),
                    seconds=time.monotonic() - start,
                )
            )
    return replies


def _what_came(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    try:
        return process.communicate(timeout=0.2)
    except Exception:  # noqa: BLE001  the pipes are held open by something that cannot be killed
        return b"", b""


def _why_it_ended(code: int | None, late: bool, limit: float, noise: bytes) -> Reason:
    words = noise.decode(errors="replace").strip().splitlines()
    printed = f"; it printed: {words[-1][:200]}" if words else ""
    if late or code is None:
        return Reason("timed-out", f"it gave no answer within {limit:g} s, and was stopped")
    if code < 0:
        import signal

        return Reason("crashed", f"it ended the process with {signal.Signals(-code).name}{printed}")
    return Reason("exited", f"it ended the process with exit code {code}{printed}")


def answer_one() -> None:
    """Be the child of a Spawner: read one request from stdin, answer on a duplicate of stdout."""
    from mlbackends.probing.child import work

    output = os.dup(1)
    os.dup2(2, 1)
    work(msgspec.json.decode(sys.stdin.buffer.read(), type=Request), output)
    os._exit(0)


def isolation() -> Callable[[], Child | Spawner]:
    """Return the way of asking that is safe on this system."""
    return Child if sys.platform == "linux" else Spawner
