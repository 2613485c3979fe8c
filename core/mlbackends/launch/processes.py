"""Start programs together, wait for them, and end all of them when one fails."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import which
from mlbackends.host.signals import RESTORED, WaitedSignals, ended, send
from mlbackends.launch.options import Refused

_BEAT_SECONDS = 0.5
_GRACE_SECONDS = 30.0
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Child(Struct, frozen=True):
    """A program to start.

    command: the program, which is looked up on the PATH of its environment, and its arguments.
    cpus: those that the launcher binds it to; () if the command binds itself, or is not bound.
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

    0 if none failed, 128 + N for one that signal N ended. When one fails, the others get SIGTERM, and
    SIGKILL after `grace_seconds`. Signals that other processes send to us are sent on. A single program has
    our stdin; several have an empty one. With log_path, their output goes into files below it, in a folder
    for this run, whose name begins with the prefix. say: receives each failure as a level and a sentence.
    Raises Refused if a program cannot be started, and BadInput if logs cannot be written; then none
    is left running.
    """
    programs = [executable(child.command[0], child.environment) for child in children]
    folder = ""
    if log_path:
        stamp = f"{log_file_prefix}_{time.strftime('%Y%m%d-%H%M%S')}_{os.getpid()}_{os.urandom(2).hex()}"
        folder = os.path.join(log_path, stamp, "attempt_0")
        say("INFO", f"the output is in {folder}")
    running: dict[int, int] = {}
    failure = 0
    killed_at = float("inf")
    with WaitedSignals() as signals:
        try:
            for index, (program, child) in enumerate(zip(programs, children, strict=True)):
                files = _log_files(folder, index) if folder else []
                if len(children) > 1:
                    files.append((0, os.devnull, os.O_RDONLY))
                running[_started(program, child, files, signals.mask)] = index
            while running:
                if number := signals.next(_BEAT_SECONDS):
                    send(number, running)
                for process, status in ended(list(running)):
                    index = running.pop(process)
                    code = os.waitstatus_to_exitcode(status)
                    if code == 0 or failure:
                        continue
                    failure = code if code > 0 else 128 - code
                    if len(children) > 1:
                        how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
                        say("ERROR", f"instance {index} (process {process}) failed by {how}")
                    killed_at = time.monotonic() + grace_seconds
                    send(signal.SIGTERM, running)
                if time.monotonic() > killed_at:
                    send(signal.SIGKILL, running)
        finally:  # after an error of ours
            send(signal.SIGKILL, running)
            for process in running:
                with suppress(ChildProcessError):
                    os.waitpid(process, 0)
    return failure


def executable(name: str, environment: dict[str, str]) -> str:
    """Return the file that a command's first word names; raises Refused if there is none."""
    if path := which(name, os.pathsep.join(os.get_exec_path(environment))):
        return path
    if "/" in name and os.path.exists(name):
        raise Refused(f"{name} is not an executable program")
    place = "" if "/" in name else " on PATH"
    raise Refused(f"there is no program {name!r}{place}")


def _log_files(folder: str, index: int) -> list[tuple[int, str, int]]:
    """Return the descriptors, paths and flags of an instance's logs, in a folder that is made."""
    folder = os.path.join(folder, str(index))
    try:
        os.makedirs(folder)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"logs cannot be written in {folder}: {reason}") from None
    names = ((1, "stdout.log"), (2, "stderr.log"))
    return [(stream, os.path.join(folder, name), _APPEND) for stream, name in names]


def _started(
    program: str, child: Child, files: list[tuple[int, str, int]], mask: set[signal.Signals | int]
) -> int:
    """Start a program, bound to its CPUs, and return its process id. files: what its streams are."""
    before = os.sched_getaffinity(0)
    try:
        if child.cpus:
            os.sched_setaffinity(0, child.cpus)  # a program inherits it from this thread
        return os.posix_spawn(
            program,
            child.command,
            child.environment,
            file_actions=[(os.POSIX_SPAWN_OPEN, *file, 0o644) for file in files],
            setsigmask=mask,
            setsigdef=RESTORED,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Refused(f"{program} cannot be started: {reason}") from None
    finally:
        if child.cpus:
            os.sched_setaffinity(0, before)
