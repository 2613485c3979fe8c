"""The command as a process of Windows: found, started with our streams, and waited for.

Ctrl-C and Ctrl-Break reach it as they reach us, and it is for the command to end then.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from mlbackends.base.mounts import which
from mlbackends.host.job_object import Program, without_interrupts
from mlbackends.tracing.capture.process import NOT_EXECUTABLE, NOT_FOUND, NotStarted

_running: dict[int, Program] = {}


def executable(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the file to execute, and then the arguments, the zeroth included. Raises NotStarted."""
    name = command[0]
    path = which(name, environment.get("PATH", os.defpath))
    if not path:
        place = "" if os.path.dirname(name) else " on PATH"
        hint = "start it by its interpreter" if os.path.isfile(name) else ""
        if os.path.exists(name):
            raise NotStarted(f"{name} is not executable", NOT_EXECUTABLE, hint)
        raise NotStarted(f"program {name!r} not found{place}", NOT_FOUND)
    return [path, *command]


class Unhandled(ExitStack):
    """A scope in which Ctrl-C and Ctrl-Break are the command's alone."""

    mask: frozenset[signal.Signals | int] = frozenset()

    def __enter__(self) -> Self:
        self.enter_context(without_interrupts())
        return self


signals = Unhandled


def start(
    program: Sequence[str], environment: Mapping[str, str], _mask: Any, stdout: int | None = None
) -> int:
    """Start a file with arguments, as `executable` gives them, and return the process id.

    stdout: a descriptor to print to instead of ours. Raises NotStarted.
    """
    path, _, *arguments = program
    try:
        process = Program([path, *arguments], whole=False, env=dict(environment), stdout=stdout)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise NotStarted(f"{path} cannot be started: {why}", NOT_EXECUTABLE) from None
    _running[process.pid] = process
    return process.pid


def wait(process: int, _signals: Unhandled, beat_seconds: float, on_beat: Callable[[], None]) -> int:
    """Wait for a process, and return its exit code. on_beat: called now and then meanwhile.

    After an error of ours the process is ended.
    """
    program = _running.pop(process)
    try:
        while (code := program.poll_for(beat_seconds)) is None:
            on_beat()
    except BaseException:
        program.kill()
        raise
    return code


def waiting_bytes(descriptor: int) -> int:
    """Return how many bytes a pipe holds. Raises BrokenPipeError at its end."""
    import _winapi
    import msvcrt

    windows: Any = _winapi
    handle = msvcrt.get_osfhandle(descriptor)  # type: ignore[attr-defined]
    waiting: int = windows.PeekNamedPipe(handle, 0)[0]
    return waiting
