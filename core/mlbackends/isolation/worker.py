"""The child process in which foreign libraries are opened and used.

It forks a process for each file, so that no library meets another one. Replies go to a duplicate
of its stdout; what libraries print goes elsewhere, and its tail is kept for the message if they die. Where
a process dies or outlasts its time limit, its reply names the library, and the jobs behind it go on in a
new one. This process itself opens nothing, and imports nothing but the standard library, msgspec and
probes.
"""

import contextlib
import os
import select
import signal
from collections import deque
from collections.abc import Iterable

import msgspec

from mlbackends.base import registry
from mlbackends.base.reasons import Reason
from mlbackends.isolation.process import (
    ADOPT_ORPHANS,
    DUMPABLE,
    GLANCE,
    SEND_ON_PARENTS_DEATH,
    Forked,
    kill,
    kill_orphans,
    prctl,
    read_some,
    reap,
)
from mlbackends.isolation.protocol import OPENED_FIRST, REPLY_LIMIT, Reply, Request, send
from mlbackends.model.records import Presence


def main() -> None:
    """Serve requests from stdin until it is closed and the last is answered, or the reader has gone."""
    output = os.dup(1)
    os.dup2(2, 1)
    # A parent may ignore or block signals: libraries start as in a shell.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        with contextlib.suppress(OSError, ValueError):  # two real-time signals are the C library's
            signal.signal(number, signal.SIG_DFL)
    prctl(DUMPABLE, 0)
    server = _Server(output)
    # Not SIGKILL: the processes below are to end with us, and their daemons too.
    prctl(SEND_ON_PARENTS_DEATH, signal.SIGTERM)
    prctl(ADOPT_ORPHANS, 1)
    try:
        server.serve()
    except (_Stopped, BrokenPipeError):
        pass
    finally:
        server.end()
        os._exit(0)


class _Stopped(Exception):
    """The parent has gone, or wants no more."""


def _import_probes() -> None:
    """Import our own probes until something is asked: the processes then need not, each for itself."""
    poller = select.poll()
    poller.register(0, select.POLLIN)
    registry.names(registry.PROBES)  # those of other distributions are looked for once
    for name in (*OPENED_FIRST, *sorted(registry.own_names(registry.PROBES))):
        if poller.poll(0):
            return
        with contextlib.suppress(Exception):  # the process that needs it reports why
            registry.load(registry.PROBES, name)


class _Server:
    """The requests that wait, the processes at work, and the pipe to the parent."""

    def __init__(self, output: int) -> None:
        self.output = output
        self.waiting: deque[Request] = deque()
        #: The processes, by their numbers.
        self.at_work: dict[int, Forked] = {}
        self.at_once = (os.cpu_count() or 1) + 1
        self.more = True
        self._signals = os.pipe()
        self._unread = bytearray()
        self._decoder = msgspec.json.Decoder(Request)
        # SIGTERM and SIGCHLD come by a pipe: an exception could interrupt the clearing up. A process can
        # end while a daemon of its library keeps its pipes open: then only SIGCHLD reports it.
        for pipe in self._signals:
            os.set_blocking(pipe, False)
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def serve(self) -> None:
        """Work until nothing is left to do and no more can come. Raises _Stopped and BrokenPipeError."""
        os.set_blocking(0, False)
        _import_probes()
        while self.more or self.waiting or self.at_work:
            self._start()
            poller = select.poll()
            poller.register(self.output, 0)  # errors are always reported: the reader has gone
            poller.register(self._signals[0], select.POLLIN)
            if self.more:
                poller.register(0, select.POLLIN)
            talking = {pipe: task for task in self.at_work.values() for pipe in task.open}
            for pipe in talking:
                poller.register(pipe, select.POLLIN)
            due = [task.seconds_left() for task in self.at_work.values()]
            if self.waiting and self.at_work:
                due.append(GLANCE)
            for pipe, event in poller.poll(max(1, int(min(due) * 1000) + 1) if due else None):
                if pipe == self.output and event & (select.POLLERR | select.POLLNVAL):
                    raise _Stopped
                if pipe == 0:
                    data = read_some(0)
                    self.more = data != b""
                    self._unread += data or b""
                    *lines, self._unread = self._unread.split(b"\n")
                    del self._unread[REPLY_LIMIT:]
                    for line in lines:
                        with contextlib.suppress(msgspec.DecodeError):  # none of ours
                            self.waiting.append(self._decoder.decode(line))
                elif pipe == self._signals[0]:
                    if signal.SIGTERM in (read_some(pipe) or b""):
                        raise _Stopped
                elif pipe in talking:
                    self._send(talking[pipe].request, talking[pipe].listen(pipe))
            for task in [task for task in self.at_work.values() if task.is_over()]:
                del self.at_work[task.pid]
                replies, rest = task.end()
                self._send(task.request, replies)
                if rest:
                    self.waiting.appendleft(rest)

    def _start(self) -> None:
        """Start processes, as many as this machine may have at once."""
        if not self.waiting:
            return
        busy = sum(task.is_busy() for task in self.at_work.values())
        while self.waiting and busy < self.at_once:
            request = self.waiting.popleft()
            ours = [self.output, *self._signals]
            for task in self.at_work.values():
                ours += (task.replies, task.noise)
            try:
                started = Forked(request, ours)
            except OSError as error:
                if self.at_work:  # one that ends makes room
                    self.waiting.appendleft(request)
                    return
                message = f"no process could be started to open it: {error.strerror}"
                reason = Reason("not-asked", message)
                self._send(request, [Reply(job.id, Presence.FOUND, None, reason) for job in request.jobs])
                continue
            self.at_work[started.pid] = started
            busy += 1

    def _send(self, request: Request, replies: Iterable[Reply]) -> None:
        for reply in replies:
            send(self.output, reply, request.seal)

    def end(self) -> None:
        """End every process below, whatever session it has."""
        for pid in self.at_work:
            kill(pid)
        for pid in self.at_work:
            reap(pid)
        kill_orphans()
