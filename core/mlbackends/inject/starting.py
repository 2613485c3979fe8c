"""Putting a program in the place of this process, so that signals, terminal and exit code are its own."""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from mlbackends.model.errors import BadInput

_SHELL = "/bin/sh"


def completed(command: Sequence[str], search_path: str) -> list[str]:
    """Return a command that can be started: a Python script that is not executable gets our python.

    Raises BadInput for what is no program.
    """
    program = command[0]
    if _which(program, search_path):
        return list(command)
    if is_plain_script(program, search_path):
        return [sys.executable, *command]
    if os.path.isfile(program) and os.sep in program:
        raise BadInput(f"{program} is not executable", "start it by its interpreter")
    raise BadInput(f"{program} is not a program that can be run")


def is_plain_script(program: str, search_path: str) -> bool:
    """Tell whether a program is a Python script that does not start by itself."""
    return program.endswith(".py") and os.path.isfile(program) and not _which(program, search_path)


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by a program. Raises BadInput where it cannot be started."""
    path = _which(command[0], environment.get("PATH", os.defpath))
    # Python ignores these two for itself, and what is ignored stays so in the next program.
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        try:
            os.execve(path, list(command), dict(environment))  # noqa: S606  it is asked for
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script that names no interpreter is the shell's, as in execvp(3).
            os.execve(_SHELL, [_SHELL, path, *command[1:]], dict(environment))  # noqa: S606
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"{command[0]} cannot be started: {why}") from None


def _which(program: str, search_path: str) -> str:
    try:
        return shutil.which(program, path=search_path) or ""
    except ValueError:  # a null byte
        return ""
