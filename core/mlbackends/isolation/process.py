"""One process that opens one file: started, read, and ended with everything that it started."""

import contextlib
import ctypes
import os
import select
import signal
import time
from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from mlbackends.isolation.opening import work
from mlbackends.isolation.protocol import (
    REPLY_LIMIT,
    Reply,
    Request,
    read_reply,
    reason_of,
    unanswered,
)

#: Seconds after which a process no longer counts against the number that run at once, whatever it does.
PATIENCE = 0.15

#: Seconds after which it no longer counts if it waits for something, as one that hangs does.
GLANCE = 0.02

#: Bytes of what a library prints that are kept for the message.
MOST_NOISE = 2000

#: How often a pipe is read at the end: what a full pipe holds, and not what a daemon goes on writing.
PIPE_READS = 64


class Forked:
    """A forked process at work on a request. Raises OSError where no process can be had.

    inherited: the descriptors of this process that the new one must not have: with them a library
    could answer for others.
    """

    def __init__(self, request: Request, inherited: Iterable[int]) -> None:
        self.request = request
        self.todo = deque(request.jobs)
        self.replies, self.noise, self.pid = _fork(request, inherited)
        #: The pipes whose other end is still open: the rest would make us listen without a pause.
        self.open = {self.replies, self.noise}
        self.printed = bytearray()
        self.pending = bytearray()
        self.started = self.replied = time.monotonic()
        self.last: Reply | None = None
        self._faults = 0

    def is_busy(self) -> bool:
        """Return whether it loads: it takes pages in, and has not done so for long.

        So several that hang do not hang one after the other, and big ones do not all load at once.
        """
        age = time.monotonic() - self.started
        if age < GLANCE:
            return True
        if age >= PATIENCE:
            return False
        fields = process_status(self.pid)
        # R, S, D, ...; and how often it took a page in.
        state, faults = ("", 0)
        if len(fields) > 9:
            state, faults = fields[0], int(fields[7]) + int(fields[9])
        before, self._faults = self._faults, faults
        return state == "D" or (state != "S" and (faults == 0 or faults != before))

    def listen(self, descriptor: int) -> list[Reply]:
        """Take in what it wrote, and return the final replies among it."""
        data = read_some(descriptor)
        if data == b"":
            self.open.discard(descriptor)
        if not data:
            return []
        if descriptor == self.noise:
            self.printed.extend(data)
            del self.printed[:-MOST_NOISE]
            return []
        self.pending.extend(data)
        *lines, rest = self.pending.split(b"\n")
        self.pending = rest if len(rest) < REPLY_LIMIT else bytearray()
        final = []
        for line in lines:
            reply = read_reply(bytes(line), self.request.seal)
            if reply is not None and self.todo and reply.id == self.todo[0].id:
                self.replied = time.monotonic()
                self.last = None if reply.final else reply
                if reply.final:
                    self.todo.popleft()
                    final.append(reply)
        return final

    def seconds_left(self) -> float:
        """Return how long it may still take for the answer that is due."""
        return self.replied + self.request.timeout - time.monotonic()

    def is_over(self) -> bool:
        """Return whether it has ended, run out of time or answered everything."""
        return not self.todo or self.seconds_left() <= 0 or has_ended(self.pid)

    def end(self) -> tuple[list[Reply], Request | None]:
        """End it; return its last replies, one for the job that ended it among them, and the jobs left."""
        stopped = not has_ended(self.pid)
        kill(self.pid)
        status = reap(self.pid)
        replies = []
        for pipe in (self.replies, self.noise):
            poller = select.poll()
            poller.register(pipe, select.POLLIN)
            for _ in range(PIPE_READS):
                if pipe not in self.open or not poller.poll(0):
                    break
                replies += self.listen(pipe)
            os.close(pipe)
        if self.todo:
            job, seconds = self.todo.popleft(), time.monotonic() - self.started
            code = None if stopped else os.waitstatus_to_exitcode(status)
            doing = "using it " if self.last else "opening it "
            reason = reason_of(code, self.request.timeout, bytes(self.printed), doing)
            replies.append(unanswered(job, self.last, reason, seconds))
        return replies, replace(self.request, jobs=tuple(self.todo)) if self.todo else None


def read_some(descriptor: int) -> bytes | None:
    """Return the bytes that can be read now; None if there are none yet, b"" at the end."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _fork(request: Request, inherited: Iterable[int]) -> tuple[int, int, int]:
    """Start the process; return its pipes for replies and noise, and its number."""
    pipes: list[int] = []
    try:
        pipes += os.pipe()
        pipes += os.pipe()
        replies, replies_end, noise, noise_end = pipes
        parent = os.getpid()
        pid = os.fork()
    except OSError:
        for descriptor in pipes:
            os.close(descriptor)
        raise
    if pid == 0:
        code = 70
        try:
            for descriptor in (*inherited, replies, noise):
                os.close(descriptor)
            code = _be_forked(request, replies_end, noise_end, parent)
        finally:  # never back into the code of the process that was forked
            os._exit(code)
    os.close(replies_end)
    os.close(noise_end)
    for descriptor in (replies, noise):
        os.set_blocking(descriptor, False)
    return replies, noise, pid


def _be_forked(request: Request, replies: int, noise: int, parent: int) -> int:
    signal.set_wakeup_fd(-1)
    for caught in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(caught, signal.SIG_DFL)
    os.setsid()
    prctl(DUMPABLE, 1)  # the library's own process is as any other
    prctl(SEND_ON_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != parent:  # another library has killed it before that: no signal comes
        return 1
    # Nothing to read: a pipe with nobody at its other end, since /dev/null need not be there.
    empty, other_end = os.pipe()
    os.close(other_end)
    for descriptor, number in ((empty, 0), (noise, 1), (noise, 2)):
        os.dup2(descriptor, number)
    os.close(empty)
    os.close(noise)
    import resource  # Unix only

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file in the user's folder
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # what takes all memory is killed before the program that asks
    try:
        work(request, replies)
    except OSError:  # the library has closed our pipe; the exit code reports it
        return 1
    return 0


#: PR_SET_PDEATHSIG, with a signal; PR_SET_DUMPABLE, with 0: no unprivileged process opens
#: /proc/PID/fd and /proc/PID/mem of this one; PR_SET_CHILD_SUBREAPER, with 1: daemons below become our
#: children too.
SEND_ON_PARENTS_DEATH, DUMPABLE, ADOPT_ORPHANS = 1, 4, 36


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def has_ended(pid: int) -> bool:
    """Return whether a child has ended. It is not reaped: its number still names it and its group."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def kill(pid: int) -> None:
    """Kill a process that leads its own session, and its group."""
    for how in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            how(pid, signal.SIGKILL)


def reap(pid: int) -> int:
    """Return a killed process's status; one that hangs in the kernel and cannot die is not waited for."""
    for _ in range(50):
        try:
            reaped, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if reaped:
            return status
        time.sleep(0.002)
    return 0


def kill_orphans() -> None:
    """Kill what libraries have left behind: daemons in other sessions, which this process adopted.

    Killing one hands its children over to us, so it takes rounds; a library that forks faster than
    we kill is given up.
    """
    for _ in range(20):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:  # nothing is left, which costs no look into /proc
            return
        try:
            pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        except OSError:
            return
        left = [pid for pid in pids if process_status(pid)[1:2] == [str(os.getpid())]]
        for pid in left:
            kill(pid)
        for pid in left:
            reap(pid)


def process_status(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the name, which may hold spaces and brackets."""
    try:
        handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.read(handle, 4096).decode(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    finally:
        os.close(handle)
