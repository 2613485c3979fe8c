"""Which Python environment is looked at: our own, or that of another interpreter (`--python`)."""

import os
import sys
from typing import Any

from mlbackends.model.errors import BadInput

_QUESTION = """
import sys
if sys.path and sys.path[0] == "":  # a json.py in the current folder is not ours to import
    del sys.path[0]
import json, os
print(json.dumps({
    "executable": sys.executable, "version": ".".join(map(str, sys.version_info[:3])),
    "implementation": sys.implementation.name, "prefix": sys.prefix,
    "base_prefix": getattr(sys, "base_prefix", sys.prefix),
    "path": [p for p in map(os.path.abspath, sys.path) if os.path.isdir(p)]}))
"""


def describe() -> dict[str, Any]:
    """Describe the interpreter that runs us."""
    return {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "path": [folder for folder in map(_absolute, sys.path) if os.path.isdir(folder)],
    }


def _absolute(folder: str) -> str:
    try:
        return os.path.abspath(folder)
    except OSError:  # relative, and the current folder was deleted
        return ""


def ask(executable: str, timeout: float = 10.0) -> dict[str, Any]:
    """Ask another interpreter to describe itself; it imports only its own standard library.

    Raises BadInput where it is no Python, fails or does not answer within the limit (seconds).
    """
    import shutil

    import msgspec

    from mlbackends.probing.command import output_of

    found = shutil.which(executable)
    if found is None:
        raise BadInput(f"{executable} is not a program that can be run")
    # A bare -I would also hide the user's site-packages.
    output = output_of((found, "-c", _QUESTION), timeout, os.environ)
    try:
        return msgspec.json.decode(output.splitlines()[-1] if output else "", type=dict[str, Any])
    except msgspec.DecodeError:
        raise BadInput(f"{executable} did not answer as a Python interpreter does") from None


def of_process(pid: int) -> dict[str, Any]:
    """Describe the interpreter that a running process is, or {} where it is no Python.

    A virtual environment is told by the path that started the process. Another user's process is {}
    as well: to ask it would run, with our rights, what that user has put there.
    Raises BadInput where there is no such process, or this user may not look at it.
    """
    try:
        program = os.readlink(f"/proc/{pid}/exe")
        owner = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            first = file.read(4096).split(b"\0")[0].decode(errors="surrogateescape")
    except FileNotFoundError:
        raise BadInput(f"there is no process {pid}") from None
    except OSError as error:
        raise BadInput(f"process {pid} cannot be looked at: {error.strerror}") from None
    if "python" not in os.path.basename(program) or owner != os.geteuid():
        return {}
    # The executable of a virtual environment is a link; the process was started by the link's name.
    started_by = first if os.path.isabs(first) and os.path.realpath(first) == program else program
    try:
        return ask(started_by)
    except BadInput:
        return {}
