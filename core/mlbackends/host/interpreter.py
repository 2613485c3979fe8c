"""The Python environment of another interpreter (`--python`) or process (`--pid`)."""

import contextlib
import os
import sys
from typing import Any

import msgspec

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import call, call_or, which
from mlbackends.base.patterns import pattern
from mlbackends.host.command import ending, outcome_of
from mlbackends.host.files import with_slashes

# A Python of any age must be able to run it, so that a version that is too old can be reported.
_QUESTION = """
import sys
if sys.path and sys.path[0] == "":  # before Python 3.11: a json.py there is not ours to import
    del sys.path[0]
import json, os
print(json.dumps({
    "executable": sys.executable, "version": ".".join(map(str, sys.version_info[:3])),
    "implementation": sys.implementation.name if hasattr(sys, "implementation") else "",
    "prefix": sys.prefix, "base_prefix": getattr(sys, "base_prefix", sys.prefix),
    "path": [os.path.abspath(p) for p in sys.path]}))
"""

#: Older Pythons record what is installed in a form that is not read here.
_OLDEST = (3, 6)

_PYTHON = pattern(r"(?:python|pypy|graalpy)[\d.]*[a-z]*(?:-\w+)?$")


def query(executable: str, timeout: float = 10.0) -> dict[str, Any]:
    """Return another interpreter's description of itself, made with its standard library only.

    Raises BadInput if it is not a Python, is too old, fails or does not answer within the limit (seconds).
    """
    program = which(executable, os.environ.get("PATH", os.defpath), timeout)
    if not program:
        inside = "Scripts/python.exe" if os.name == "nt" else "bin/python"
        at = with_slashes(os.path.join(executable, inside))
        exists = call_or(False, os.path.isfile, at)
        hint = f"write --python {at if exists else f'venv/{inside}'}"
        if os.name == "nt" and not exists:
            hint += "; `py -0p` lists the interpreters"
        is_missing = "/" in executable and not call_or(True, os.path.exists, executable)
        why = "does not exist" if is_missing else "is not a program that can be run"
        raise BadInput(f"{executable} {why}", hint)
    # A bare -I would also hide the user's site-packages.
    outcome = outcome_of((program, "-c", _QUESTION), timeout, os.environ)
    if outcome.timed_out:
        hint = f"see how long `{executable} -c pass` takes, or raise --timeout where a command has it"
        raise BadInput(f"{executable} did not answer within {timeout:g} s", hint)
    kind, how = ending(outcome.status or 0)
    if kind == "crashed":
        raise BadInput(f"{executable} died of {how} when it was queried")
    lines = outcome.output.splitlines()
    try:
        description = msgspec.json.decode(lines[-1] if lines else "", type=dict[str, Any])
    except msgspec.DecodeError:
        description = {}
    version = description.get("version")
    is_complete = isinstance(version, str) and isinstance(description.get("path"), list)
    if outcome.status != 0 or not is_complete:
        hint = "name an interpreter, such as venv/bin/python"
        raise BadInput(f"{executable} did not answer like a Python interpreter", hint)
    numbers = tuple(int(part) for part in str(version).split(".")[:2] if part.isdecimal())
    if numbers < _OLDEST:
        needed = "3.x" if numbers < (3,) else ".".join(map(str, _OLDEST)) + " or newer"
        raise BadInput(f"{executable} is Python {version}; {needed} is needed")
    # Not checked by the interpreter: a folder that does not answer would lose its whole description.
    folders = [with_slashes(folder) for folder in description["path"] if isinstance(folder, str)]
    texts = {name: with_slashes(text) for name, text in description.items() if isinstance(text, str)}
    return {**texts, "path": [at for at in folders if call_or(True, os.path.isdir, at)]}


def of_process(pid: int, timeout: float = 10.0, proc: str = "/proc") -> dict[str, Any]:
    """Return the description of the interpreter of a running process, {} if it is not a Python.

    A virtual environment is recognised by the path that started the process. Another user's process is {} as
    well: querying it would run that user's files with our rights.
    Raises BadInput if the process does not exist or this user may not inspect it.
    proc: where procfs is mounted.
    """
    if sys.platform == "win32":
        from mlbackends.host.windows.processes import interpreter_of

        path = interpreter_of(pid)
        with contextlib.suppress(BadInput):
            return query(path, timeout) if path else {}
        return {}
    folder = f"{proc}/{pid}"
    try:
        owner = os.stat(folder).st_uid
        program = os.readlink(f"{folder}/exe")
    except OSError as error:
        why, hint = f"process {pid} cannot be inspected: {error.strerror}", ""
        if not os.path.isdir(proc):
            why = f"process {pid} cannot be inspected: this system has no {proc}"
        elif isinstance(error, FileNotFoundError):
            why, hint = f"there is no process {pid}", "`ps -e` lists them"
        elif isinstance(error, PermissionError):
            hint = "run this as root (sudo), or outside of the container if you are root"
        raise BadInput(why, hint) from None
    is_ours = owner == os.geteuid() and _PYTHON.match(os.path.basename(program))
    # In a container the name is that of another file; after an upgrade it may be no file's.
    if is_ours and _is_file_of(program, f"{folder}/exe"):
        with contextlib.suppress(BadInput):
            return query(_started_by(folder, program), timeout)
    return {}


def _started_by(folder: str, program: str) -> str:
    """Return the path by which a process's interpreter was started; a virtual environment's is a link."""
    # A process can write anything here: only a path to the program that really runs is used.
    items = os.fsdecode(_read(f"{folder}/environ")).split("\0")
    variables = dict(item.split("=", 1) for item in items if "=" in item)
    first = os.fsdecode(_read(f"{folder}/cmdline").split(b"\0")[0])
    # It may have left the folder in which it was started, which its shell has put into PWD.
    try:
        current = os.readlink(f"{folder}/cwd")
    except OSError:
        current = ""
    for base in (current, variables.get("PWD", "")):
        if "/" in first:
            path = os.path.join(base, first)
        else:
            search_path = variables.get("PATH", os.defpath).split(":")
            folders = ":".join(os.path.join(base, folder) for folder in search_path)
            path = which(first, folders) if first else ""
        if os.path.isabs(path) and _is_file_of(path, program):
            return path
    environment = variables.get("VIRTUAL_ENV", "")
    if _is_file_of(*[os.path.join(environment, "pyvenv.cfg")] * 2):
        for name in (os.path.basename(first), "python", "python3"):
            path = os.path.join(environment, "bin", name)
            if name and _is_file_of(path, program):
                return path
    return program


def _is_file_of(path: str, other: str) -> bool:
    try:
        return os.path.samestat(call(os.stat, path), call(os.stat, other))
    except (OSError, ValueError):
        return False


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4 << 20)
    except OSError:
        return b""
