"""A process of ours that makes calls which may never return, and can be left behind.

It keeps neither our pipes nor our folder open, so nobody waits for it.
"""

import atexit
import contextlib
import errno
import os
import sys
from _thread import allocate_lock
from collections.abc import Callable, Mapping
from typing import Any

_START_SECONDS = 30.0
#: Bytes of sys.path on a command line; the system takes 128 KiB for one argument.
_PATH_LIMIT = 64 << 10

_SERVE = "from mlbackends.base.reader import serve; serve()"


class TooLate(Exception):
    """The process gave no answer in time."""


class Reader:
    """A process that makes calls, one after another. Raises OSError where none can be had."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        import subprocess
        from multiprocessing.connection import Pipe

        self._connection, theirs = Pipe()
        end, command = theirs.fileno(), python_command(_SERVE)
        options: dict[str, Any] = {"stdin": end, "start_new_session": True}
        if os.name == "nt":  # where the end of a pipe is not a file
            set_inheritable, startup = (
                vars(os)["set_handle_inheritable"],
                vars(subprocess)["STARTUPINFO"],
            )
            set_inheritable(end, True)
            command = python_command(f"{_SERVE[:-1]}{end})")
            options = {"startupinfo": startup(lpAttributeList={"handle_list": [end]})}
        with theirs:
            # It keeps nothing of ours open, neither a folder nor a pipe whose reader would wait for it.
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=dict(variables),
                **options,
            )
        self._is_ready = False
        self.owner = os.getpid()

    def answer(self, seconds: float, question: tuple[Any, ...]) -> Any:
        """Return what `serve` sends for a question. Raises TooLate, and EOFError where it has ended."""
        if not self._is_ready:
            if not self._connection.poll(_START_SECONDS):
                raise TooLate
            self._is_ready = self._connection.recv()
        self._connection.send(question)
        if not self._connection.poll(seconds):
            raise TooLate
        return self._connection.recv()

    def end(self) -> None:
        """Kill it; one that sleeps in the kernel dies when its file system answers."""
        import subprocess

        self._connection.close()
        if self.owner == os.getpid():
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        self._process.returncode = self._process.returncode or -9  # nobody else is to wait for it


_reader: Reader | None = None
_lock = allocate_lock()


def answer(variables: Callable[[], Mapping[str, str]], seconds: float, *question: Any) -> Any:
    """Make a call in the process that can be left behind; here where no process can be had.

    variables: returns the environment in which the process starts.
    """
    global _reader  # noqa: PLW0603  under the lock
    with _lock:
        try:
            if _reader is None or _reader.owner != os.getpid():
                _reader = Reader(variables())
        except OSError:
            return question[0](*question[1:])
        try:
            is_result, answer = _reader.answer(seconds, question)
        except BaseException as error:  # also an interrupt: the next answer would be the wrong one
            end()
            if isinstance(error, EOFError | OSError):
                raise OSError(errno.EIO, "the process that reads it has ended") from None
            raise
    if is_result:
        return answer
    raise answer


@atexit.register
def end() -> None:
    """End the process; the next call starts another one."""
    global _reader  # noqa: PLW0603  under the lock, or at the interpreter's end
    if _reader is not None:
        _reader.end()
    _reader = None


def serve(end: int = 0) -> None:
    """Be the process that makes calls: each comes over a pipe, and its answer goes back there.

    end: the pipe's; standard input by default, a handle on Windows.
    """
    from multiprocessing import connection as connections

    kind = "PipeConnection" if os.name == "nt" else "Connection"
    connection = vars(connections)[kind](end)
    connection.send(True)
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, *arguments = connection.recv()
            try:
                answer = True, function(*arguments)
            except Exception as error:  # noqa: BLE001  it is raised where the call was made
                answer = False, error
            connection.send(answer)


def python_command(name: str) -> list[str]:
    """Return the command that runs Python code in a child. Raises OSError where no interpreter is there."""
    if not sys.executable or getattr(sys, "frozen", False):
        # A frozen program is its own sys.executable: it would start itself, and ask again.
        raise FileNotFoundError(2, "this program has no Python interpreter of its own to start")
    finders = sys.path_importer_cache  # None for a folder from which nothing can be imported
    path = [folder for folder in dict.fromkeys(sys.path) if finders.get(folder, finders) is not None]
    if len(repr(path)) > _PATH_LIMIT:
        # Only the folders from which something is imported already, and of those what fits.
        files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
        path = [folder for folder in path if folder and any(f.startswith(folder) for f in files)]
    while len(repr(path)) > _PATH_LIMIT:
        path = path[: len(path) // 2]
    # -S and our own sys.path: site's start-up files are foreign code too, and cost time.
    return [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:] = {path!r}; {name}"]
