"""Programs that run side by side, end together when one of them fails, and what they print.

With logs, a program writes straight into its files; they are read again for the console, where each line
is tagged by its instance. So nothing is lost when the launcher is killed, and a slow console delays no
program.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec import Struct

from mlbackends.launch.notices import Refused
from mlbackends.launch.signals import WaitedSignals, send
from mlbackends.model.errors import BadInput

_BEAT_SECONDS = 0.5
_BEAT_WITH_LOGS_SECONDS = 0.05
_GRACE_SECONDS = 30.0

# Python ignores these for itself; a program that is started expects the system's own answer.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
_SIGNALS = {each.value: each.name for each in signal.Signals}
_PIECE = 1 << 16
_LONGEST_LINE = 1 << 20
_PAUSE_SECONDS = 0.01
_STREAMS = {1: "stdout.log", 2: "stderr.log"}


class Child(Struct, frozen=True):
    """A program to start.

    command: the program, which is looked up on the PATH of its environment, and its arguments.
    cpus: what the launcher binds it to; () leaves that to the command.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    cpus: tuple[int, ...] = ()


def run(
    children: Sequence[Child],
    say: Callable[[str, str], None],
    *,
    log_path: str = "",
    log_file_prefix: str = "run",
    grace_seconds: float = _GRACE_SECONDS,
) -> int:
    """Start the programs, wait for all of them, and return the exit code of the first that failed.

    0 if none did, 128 + N for one that signal N ended. When one fails, the others get SIGTERM, and
    SIGKILL after `grace_seconds`. A signal that a process sends us is sent on. A single program has
    our stdin; several have none. say: gets each failure, as a level and a sentence.
    Raises Refused where one cannot be started, and BadInput where logs cannot be written; then none
    is left running.
    """
    programs = [executable(child.command[0], child.environment) for child in children]
    with ExitStack() as stack:
        logs: list[InstanceLogs] = []
        folder = new_run_folder(log_path) if log_path else ""
        for index in range(len(children) if folder else 0):
            logs.append(InstanceLogs(folder, index, log_file_prefix))
            stack.callback(logs[-1].close)
        signals = stack.enter_context(WaitedSignals())
        running = _Running(children, say, grace_seconds)
        stack.callback(running.end)
        for index, program in enumerate(programs):
            running.start(index, program, logs[index].writers if logs else {}, signals)
        for one in logs:
            one.close_writers()
        while running.processes:
            number = signals.next(_BEAT_WITH_LOGS_SECONDS if logs else _BEAT_SECONDS)
            if number:
                send(number, running.processes)
            running.reap()
            for one in logs:
                one.show()
    return running.code


def executable(name: str, environment: dict[str, str]) -> str:
    """Return the file that a command's first word names; raises Refused where there is none."""
    folders = [""] if "/" in name else os.get_exec_path(environment)
    paths = [os.path.join(folder, name) for folder in folders]
    for path in paths if "\0" not in name else ():
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    if "/" in name and os.path.exists(name):
        raise Refused(f"{name} is no program that may be executed")
    where = "" if "/" in name else " on PATH"
    raise Refused(f"there is no program {name!r}{where}")


class _Running:
    """The programs that run, by process id, and how the first failure ended."""

    def __init__(
        self, children: Sequence[Child], say: Callable[[str, str], None], grace_seconds: float
    ) -> None:
        self.processes: dict[int, int] = {}
        self.code = 0
        self._children = children
        self._say = say
        self._grace_seconds = grace_seconds
        self._killed_at = float("inf")

    def start(
        self, index: int, program: str, streams: dict[int, int], signals: WaitedSignals
    ) -> None:
        child = self._children[index]
        actions = [(os.POSIX_SPAWN_DUP2, handle, number) for number, handle in streams.items()]
        has_stdin = len(self._children) == 1
        nothing = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        try:
            with _bound(child.cpus):
                process = os.posix_spawn(
                    program,
                    child.command,
                    child.environment,
                    file_actions=actions if has_stdin else [*nothing, *actions],
                    setsigmask=signals.mask,
                    setsigdef=_RESTORED,
                )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise Refused(f"{program} cannot be started: {reason}") from None
        self.processes[process] = index

    def reap(self) -> None:
        """Collect the programs that ended; after the first failure, end the others."""
        for process, index in list(self.processes.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if not ended:
                continue
            del self.processes[process]
            code = os.waitstatus_to_exitcode(status)
            if code == 0 or self.code:
                continue
            self.code = code if code > 0 else 128 - code
            how = f"exit code {code}" if code > 0 else _SIGNALS.get(-code, f"signal {-code}")
            if len(self._children) > 1:
                self._say("ERROR", f"instance {index} (process {process}) failed by {how}")
            if self.processes:
                self._killed_at = time.monotonic() + self._grace_seconds
                send(signal.SIGTERM, self.processes)
        if time.monotonic() > self._killed_at:
            send(signal.SIGKILL, self.processes)

    def end(self) -> None:
        """End what still runs, after an error of ours."""
        send(signal.SIGTERM, self.processes)
        deadline = time.monotonic() + min(self._grace_seconds, 5)
        while self.processes:
            for process in list(self.processes):
                if os.waitpid(process, os.WNOHANG)[0]:
                    del self.processes[process]
            if time.monotonic() > deadline:
                send(signal.SIGKILL, self.processes)
            time.sleep(0.01 if self.processes else 0)


@contextmanager
def _bound(cpus: Sequence[int]) -> Iterator[None]:
    """Run this thread, and so what it starts, on the given CPUs alone; () changes nothing."""
    before = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        if cpus:
            os.sched_setaffinity(0, before)


def new_run_folder(log_path: str) -> str:
    """Make and return the folder of this run, <log_path>/run_<time>_<process>/attempt_0.

    Raises BadInput where it cannot be made.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for attempt in range(1000):
        suffix = f"_{attempt}" if attempt else ""
        run = os.path.join(log_path, f"run_{stamp}_{os.getpid()}{suffix}")
        try:
            os.makedirs(run)
        except FileExistsError:
            if os.path.isdir(run):
                continue
            raise BadInput(f"logs cannot be written below {log_path}: not a folder") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise BadInput(f"logs cannot be written below {log_path}: {reason}") from None
        return os.path.join(run, "attempt_0")
    raise BadInput(
        f"logs cannot be written below {log_path}: a thousand runs of this second are there"
    )


class InstanceLogs:
    """The two log files of an instance, <folder>/<index>/stdout.log and stderr.log.

    writers: for each standard stream, 1 and 2, the descriptor that the program gets.
    """

    def __init__(self, folder: str, index: int, prefix: str) -> None:
        place = os.path.join(folder, str(index))
        self.writers: dict[int, int] = {}
        self._followed: list[_FollowedFile] = []
        try:
            os.makedirs(place, exist_ok=True)
            for stream, name in _STREAMS.items():
                path = os.path.join(place, name)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self.writers[stream] = os.open(path, flags, 0o644)
                tag = f"[{prefix}{index}]:".encode(errors="surrogateescape")
                self._followed.append(_FollowedFile(path, stream, tag))
        except OSError as error:
            self.close()
            raise BadInput(f"logs cannot be written in {place}: {error.strerror}") from None

    def close_writers(self) -> None:
        """Close our copies of what the program got."""
        for descriptor in self.writers.values():
            os.close(descriptor)
        self.writers.clear()

    def show(self) -> None:
        """Print the lines that were written since."""
        for file in self._followed:
            file.show()

    def close(self) -> None:
        """Print what is left, a last line without an end included, and close all."""
        self.close_writers()
        for file in self._followed:
            file.close()
        self._followed.clear()


class _FollowedFile:
    def __init__(self, path: str, stream: int, tag: bytes) -> None:
        self._handle = os.open(path, os.O_RDONLY)
        self._stream = stream
        self._tag = tag
        self._rest = b""
        self._is_shown = True

    def show(self) -> None:
        while piece := os.read(self._handle, _PIECE):
            *lines, self._rest = (self._rest + piece).split(b"\n")
            if len(self._rest) > _LONGEST_LINE:
                lines.append(self._rest)
                self._rest = b""
            self._print(lines)

    def close(self) -> None:
        self.show()
        if self._rest:
            self._print([self._rest])
        os.close(self._handle)

    def _print(self, lines: list[bytes]) -> None:
        text = b"".join(self._tag + line + b"\n" for line in lines)
        while text and self._is_shown:
            try:
                text = text[os.write(self._stream, text) :]
            except BlockingIOError:
                time.sleep(_PAUSE_SECONDS)
            except OSError:  # the console is gone; the files go on
                self._is_shown = False
