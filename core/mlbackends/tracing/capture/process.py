"""The command as a process: found, started with our streams, sent what signals we get, and waited for."""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from mlbackends.base.errors import MlBackendsError
from mlbackends.base.mounts import call, call_or
from mlbackends.host.signals import FROM_THE_TERMINAL, RESTORED, SENT_ON, WaitedSignals, ended, send

NOT_EXECUTABLE = 126
NOT_FOUND = 127
_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.05


class NotStarted(MlBackendsError, RuntimeError):
    """A command that does not exist (exit code 127) or cannot be executed (126)."""

    def __init__(self, message: str, exit_code: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


def executable(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the file to execute, and then the arguments, the zeroth included.

    A file of unknown format is run by the shell, as in execvp(3). Raises NotStarted, as a shell does.
    """
    name = command[0]
    if "/" in name and call(os.path.isdir, name):
        raise NotStarted(f"{name} is a folder, not a program", NOT_EXECUTABLE)
    paths = [os.path.join(folder, name) for folder in os.get_exec_path(environment)]
    paths = [path for path in paths if call_or(False, os.path.isfile, path)]
    if "/" in name:
        paths = [name] if os.path.exists(name) else []
    if not paths:
        place = "" if "/" in name else " on PATH"
        raise NotStarted(f"program {name!r} not found{place}", NOT_FOUND)
    files = [path for path in paths if os.path.isfile(path)]  # a FIFO has no end, nor a start
    path = next((path for path in files if os.access(path, os.X_OK)), "")
    if not path:
        hint = "start it by its interpreter" if files else ""
        raise NotStarted(f"{paths[0]} is not executable", NOT_EXECUTABLE, hint)
    try:
        with open(path, "rb") as file:
            head = file.read(256)
    except OSError:  # executable and not readable: a program
        return [path, *command]
    # The system refuses a file of unknown format; shells run it as a script.
    is_text = b"\0" not in head.partition(b"\n")[0]
    is_script = is_text and not head.startswith((b"#!", b"\x7fELF"))
    return ["/bin/sh", "sh", path, *command[1:]] if is_script else [path, *command]


class HandledSignals:
    r"""A scope in which signals come one by one, where they cannot be waited for (macOS).

    The sender is not known: Ctrl-C and Ctrl-\ are assumed to come from our terminal, which signals
    the command itself. Outside the main thread Python can handle none: nothing is sent on then.
    """

    def __init__(self) -> None:
        self.mask: set[signal.Signals | int] = set()
        self._before: dict[signal.Signals, Any] = {}
        self._received: deque[int] = deque()

    def __enter__(self) -> Self:
        self.mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if threading.current_thread() is threading.main_thread():
            for number in SENT_ON:
                handler = signal.signal(number, lambda number, _: self._received.append(number))
                self._before[number] = handler
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def next(self, seconds: float) -> int:
        """Wait for a moment; return a signal to send on, or 0."""
        time.sleep(min(seconds, _POLL_SECONDS))
        number = self._received.popleft() if self._received else 0
        has_terminal = any(os.isatty(stream) for stream in (0, 1, 2))
        return 0 if number in FROM_THE_TERMINAL and has_terminal else number


def signals() -> WaitedSignals | HandledSignals:
    """Return the scope that this system can do."""
    return WaitedSignals() if hasattr(signal, "sigtimedwait") else HandledSignals()


def start(
    program: Sequence[str],
    environment: Mapping[str, str],
    mask: "set[signal.Signals | int]",
    stdout: int | None = None,
) -> int:
    """Start a file with arguments, as `executable` gives them, and return the process id.

    stdout: a descriptor to print to instead of ours. Raises NotStarted.
    """
    path, *arguments = program
    actions = [] if stdout is None else [(os.POSIX_SPAWN_DUP2, stdout, 1)]
    try:
        return os.posix_spawn(
            path,
            arguments,
            dict(environment),
            file_actions=actions,
            setsigmask=mask,
            setsigdef=RESTORED,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        is_removed = isinstance(error, FileNotFoundError) and not os.path.exists(path)
        if isinstance(error, FileNotFoundError) and not is_removed:
            why = "its interpreter does not exist"
        code = NOT_FOUND if is_removed else NOT_EXECUTABLE
        raise NotStarted(f"{path} cannot be started: {why}", code) from None


def wait(
    process: int,
    handed_out: WaitedSignals | HandledSignals,
    beat_seconds: float,
    on_beat: Callable[[], None],
) -> int:
    """Wait for a process, and return its exit code, -N where signal N ended it.

    Signals that a process sends us are sent on. on_beat: called now and then meanwhile. After an
    error of ours the process is ended: SIGTERM, and SIGKILL some seconds later.
    """
    try:
        while True:
            for _, status in ended([process]):
                return os.waitstatus_to_exitcode(status)
            if number := handed_out.next(beat_seconds):
                send(number, [process])
            on_beat()
    except BaseException:
        deadline = time.monotonic() + _GRACE_SECONDS
        send(signal.SIGTERM, [process])
        while not os.waitpid(process, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                send(signal.SIGKILL, [process])
            time.sleep(0.01)
        raise
