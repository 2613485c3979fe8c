"""Programs that run side by side, end together when one of them fails, and what they print.

With logs, a program writes straight into its files; they are read again for the console, where each line
is tagged by its instance. So nothing is lost when the launcher is killed, and a slow console delays no
program.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import count

from msgspec import Struct

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import which
from mlbackends.launch.notices import Refused
from mlbackends.launch.signals import RESTORED, WaitedSignals, ended, send

_BEAT_SECONDS = 0.5
_BEAT_WITH_LOGS_SECONDS = 0.05
_GRACE_SECONDS = 30.0

_SIGNALS = {each.value: each.name for each in signal.Signals}
_PIECE = 1 << 16
_LONGEST_LINE = 1 << 20
_PAUSE_SECONDS = 0.01


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
        logs: list[Log] = []
        if log_path:
            run_folder = new_run_folder(log_path)
            for index in range(len(children)):
                folder = os.path.join(run_folder, "attempt_0", str(index))
                for stream in (1, 2):
                    logs.append(Log(folder, stream, f"[{log_file_prefix}{index}]:"))
                    stack.callback(logs[-1].close)
        signals = stack.enter_context(WaitedSignals())
        running = _Running(children, say, grace_seconds)
        stack.callback(running.end)
        for index, program in enumerate(programs):
            running.start(index, program, logs[2 * index : 2 * index + 2], signals)
        while running.processes:
            number = signals.next(_BEAT_WITH_LOGS_SECONDS if logs else _BEAT_SECONDS)
            if number:
                send(number, running.processes)
            running.reap()
            for log in logs:
                log.show()
    return running.code


def executable(name: str, environment: dict[str, str]) -> str:
    """Return the file that a command's first word names; raises Refused where there is none."""
    if path := which(name, os.pathsep.join(os.get_exec_path(environment))):
        return path
    if "/" in name and os.path.exists(name):
        raise Refused(f"{name} is no program that may be executed")
    place = "" if "/" in name else " on PATH"
    raise Refused(f"there is no program {name!r}{place}")


class _Running:
    """The programs that run, by process id, and how the first failure ended."""

    def __init__(
        self, children: Sequence[Child], say: Callable[[str, str], None], grace_seconds: float
    ) -> None:
        self.processes: dict[int, int] = {}
        self.code = 0
        self._children = children
        self._log = say
        self._grace_seconds = grace_seconds
        self._killed_at = float("inf")

    def start(
        self, index: int, program: str, logs: "Sequence[Log]", signals: WaitedSignals
    ) -> None:
        child = self._children[index]
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_DUP2, log.writer, log.stream) for log in logs
        ]
        if len(self._children) > 1:
            actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
        before = os.sched_getaffinity(0)
        try:
            if child.cpus:
                os.sched_setaffinity(0, child.cpus)  # what this thread starts inherits it
            process = os.posix_spawn(
                program,
                child.command,
                child.environment,
                file_actions=actions,
                setsigmask=signals.mask,
                setsigdef=RESTORED,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise Refused(f"{program} cannot be started: {reason}") from None
        finally:
            if child.cpus:
                os.sched_setaffinity(0, before)
        self.processes[process] = index

    def reap(self) -> None:
        """Collect the programs that ended; after the first failure, end the others."""
        for process, status in ended(list(self.processes)):
            index = self.processes.pop(process)
            code = os.waitstatus_to_exitcode(status)
            if code == 0 or self.code:
                continue
            self.code = code if code > 0 else 128 - code
            how = f"exit code {code}" if code > 0 else _SIGNALS.get(-code, f"signal {-code}")
            if len(self._children) > 1:
                self._log("ERROR", f"instance {index} (process {process}) failed by {how}")
            if self.processes:
                self._killed_at = time.monotonic() + self._grace_seconds
                send(signal.SIGTERM, self.processes)
        if time.monotonic() > self._killed_at:
            send(signal.SIGKILL, self.processes)

    def end(self) -> None:
        """End what still runs, after an error of ours."""
        if not self.processes:
            return
        self.code = self.code or 1  # so that those which end now are not reported
        send(signal.SIGTERM, self.processes)
        self._killed_at = time.monotonic() + min(self._grace_seconds, 5)
        while self.processes:
            self.reap()
            time.sleep(_PAUSE_SECONDS if self.processes else 0)


def new_run_folder(log_path: str) -> str:
    """Make and return the folder of this run, <log_path>/run_<time>_<process>.

    Another container may have a process of that number in that second: then a number follows.
    Raises BadInput where it cannot be made.
    """
    name = f"run_{time.strftime('%Y%m%d-%H%M%S')}_{os.getpid()}"
    folder, numbers = os.path.join(log_path, name), count(1)
    while True:
        try:
            os.makedirs(folder)
        except FileExistsError:
            folder = os.path.join(log_path, f"{name}_{next(numbers)}")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise BadInput(f"logs cannot be written below {log_path}: {reason}") from None
        else:
            return folder


class Log:
    """What an instance prints on one stream: <folder>/stdout.log or stderr.log, shown on the console.

    writer: the descriptor that the program gets as its stream, 1 or 2.
    """

    def __init__(self, folder: str, stream: int, tag: str) -> None:
        path = os.path.join(folder, "stdout.log" if stream == 1 else "stderr.log")
        try:
            os.makedirs(folder, exist_ok=True)
            self.writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._reader = os.open(path, os.O_RDONLY)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise BadInput(f"logs cannot be written in {folder}: {reason}") from None
        self.stream = stream
        self._tag = tag.encode(errors="surrogateescape")
        self._rest = b""

    def show(self) -> None:
        """Print the lines that were written since, each behind the tag."""
        while piece := os.read(self._reader, _PIECE):
            *lines, self._rest = (self._rest + piece).split(b"\n")
            if len(self._rest) > _LONGEST_LINE:
                lines.append(self._rest)
                self._rest = b""
            self._print(lines)

    def close(self) -> None:
        """Print what is left, a last line without an end included, and close the file."""
        self.show()
        self._print([self._rest] if self._rest else [])
        os.close(self.writer)
        os.close(self._reader)

    def _print(self, lines: list[bytes]) -> None:
        text = b"".join(self._tag + line + b"\n" for line in lines)
        with suppress(OSError):  # the console is gone; the files go on
            while text:
                try:
                    text = text[os.write(self.stream, text) :]
                except BlockingIOError:
                    time.sleep(_PAUSE_SECONDS)
