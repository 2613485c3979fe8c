"""The Python program that a command starts, and the torch in its environment; nothing of it is imported.

Where the command is no Python that can be told of (a shell script, mpirun, env), there is no target:
what its programs have is found out in them.
"""

import os
import shutil
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.host.interpreter import ask
from mlbackends.host.python.frameworks import assigned_text, package
from mlbackends.host.python.packages import module_location
from mlbackends.inject.python_arguments import python_arguments
from mlbackends.inject.shebang import interpreter_of
from mlbackends.model.errors import BadInput
from mlbackends.model.patterns import pattern

_PYTHON = pattern(r"(?:python|pypy|graalpy)\d*(?:\.\d+)*t?d?$")
_DISTRIBUTIONS = ("torch", "torch-nightly", "torch-cpu", "torch-rocm", "torch-xpu", "pytorch")


class Torch(Struct, frozen=True):
    """A torch as its files tell of it.

    version: "" where version.py does not say. parts: which of "cuda", "cudnn" and "xpu" it was built
    with; None where its files do not tell.
    """

    location: str
    version: str
    parts: frozenset[str] | None


class Target(Struct, frozen=True):
    """The Python that runs, and what its environment has.

    hook_ignored_by: the option of Python that passes over the import hook, "" if none.
    modules: which of mlbackends and opt_einsum can be imported.
    """

    executable: str
    hook_ignored_by: str
    torch: Torch | None
    modules: frozenset[str]


def target_of(command: Sequence[str], environment: Mapping[str, str]) -> Target | None:
    """Find a command's interpreter and ask it where it imports from; None where there is none to ask.

    environment: what the command gets; its PATH and PYTHONPATH count.
    """
    python = python_command(command, environment.get("PATH", os.defpath))
    if not python:
        return None
    try:
        described = ask(python[0])
    except BadInput:  # no Python, or one that does not start: then it will say so itself
        return None
    arguments = python_arguments(python[1:])
    folders = list(described["path"])
    if arguments.has_own_folder:
        folders.insert(0, _own_folder(arguments.program))
    host = Host(python={**described, "path": folders}, environment=dict(environment))
    modules = ("mlbackends", "opt_einsum")
    return Target(
        python[0],
        arguments.hook_ignored_by,
        _torch(host),
        frozenset(name for name in modules if module_location(host, name)),
    )


def _own_folder(program: str) -> str:
    """Return the folder that Python puts first on the import path: the script's, or the current one."""
    try:
        return os.path.dirname(os.path.realpath(program)) if program else os.getcwd()
    except (OSError, ValueError):  # the current folder was deleted; a null byte
        return os.devnull


def python_command(command: Sequence[str], search_path: str) -> tuple[str, ...]:
    """Return the interpreter's path, its options and the program; () where the command is no Python's."""
    path = _which(command[0], search_path)
    if not path:
        return ()
    if _is_python(path) or _is_python(command[0]):
        return (path, *command[1:])
    interpreter = interpreter_of(path)
    started = _which(interpreter[0], search_path) if interpreter else ""
    if not started or not _is_python(interpreter[0]):
        return ()
    return (started, *interpreter[1:], path, *command[1:])


def _which(program: str, search_path: str) -> str:
    try:
        return shutil.which(program, path=search_path) or ""
    except ValueError:  # a null byte
        return ""


def _is_python(path: str) -> bool:
    return bool(_PYTHON.match(os.path.basename(path)))


def _torch(host: Host) -> Torch | None:
    found = package(host, _DISTRIBUTIONS, "torch", "version.py")
    if found is None or not found.location:
        return None
    text = host.read(f"{found.location}/version.py", 1 << 16)
    version = assigned_text(text, "__version__")
    on_nvidia, on_amd = assigned_text(text, "cuda"), assigned_text(text, "hip")
    parts = {"cuda", "cudnn"} if on_nvidia or on_amd else set()
    if assigned_text(text, "xpu"):
        parts.add("xpu")
    return Torch(found.location, version or found.version, frozenset(parts) if version else None)
