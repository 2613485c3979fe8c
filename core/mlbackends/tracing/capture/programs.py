"""The file that a command's first word names, and why it cannot be started: as a shell tells it."""

import os
from collections.abc import Mapping, Sequence

from mlbackends.model.errors import MlBackendsError

NOT_EXECUTABLE = 126
NOT_FOUND = 127

_SHELL = "/bin/sh"


class NotStarted(MlBackendsError, RuntimeError):
    """A command that does not exist (exit code 127) or cannot be executed (126)."""

    def __init__(self, message: str, exit_code: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


def found(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the file to execute, and then the arguments, the zeroth included.

    What has no format of its own is the shell's, as in execvp(3). Raises NotStarted.
    """
    path = _path(command[0], environment)
    if _is_left_to_the_shell(path):
        return [_SHELL, "sh", path, *command[1:]]
    return [path, *command]


def _path(name: str, environment: Mapping[str, str]) -> str:
    if not name or "\0" in name:
        raise NotStarted(f"there is no program {name!r}", NOT_FOUND)
    if "/" in name:
        if not os.path.exists(name):
            raise NotStarted(f"there is no program {name!r}", NOT_FOUND)
        _require_executable(name)
        return name
    folders = os.get_exec_path(environment)
    paths = [path for folder in folders if os.path.isfile(path := os.path.join(folder, name))]
    if not paths:
        raise NotStarted(f"there is no program {name!r} on PATH", NOT_FOUND)
    path = next((path for path in paths if os.access(path, os.X_OK)), paths[0])
    _require_executable(path)
    return path


def _require_executable(path: str) -> None:
    if os.path.isdir(path):
        raise NotStarted(f"{path} is a folder, not a program", NOT_EXECUTABLE)
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        hint = "start it by its interpreter" if os.path.isfile(path) else ""
        raise NotStarted(f"{path} is not executable", NOT_EXECUTABLE, hint)


def _is_left_to_the_shell(path: str) -> bool:
    """Tell whether the system would refuse a file as no program; shells take those for scripts."""
    try:
        with open(path, "rb") as file:
            head = file.read(256)
    except OSError:  # executable and not readable: a program
        return False
    is_text = b"\0" not in head.partition(b"\n")[0]
    return not head.startswith((b"#!", b"\x7fELF")) and is_text
