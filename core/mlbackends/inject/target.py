"""The Python program that a command starts, and the torch in its environment; nothing of it is imported.

Where the command is not recognised as Python (a shell script, mpirun, env), the target is unknown: the
import hook checks what its programs have.
Source: Python documentation, "Command line and environment"; execve(2), "Interpreter scripts"; env(1); the
launchers that pip and uv write for console scripts.
"""

import os
import shlex
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import which
from mlbackends.base.patterns import pattern
from mlbackends.host.files import with_slashes
from mlbackends.host.host import Host
from mlbackends.host.interpreter import query
from mlbackends.host.python.frameworks import assigned_text, package
from mlbackends.host.python.packages import module_location

_PYTHON = pattern(r"(?:pythonw?|pypy|graalpy)\d*(?:\.\d+)*t?d?$")
_DISTRIBUTIONS = ("torch", "torch-nightly", "torch-cpu", "torch-rocm", "torch-xpu", "pytorch")
#: -I and -E read no PYTHONPATH; -S imports no sitecustomize.
_WITHOUT_HOOK = "IES"
_WITH_VALUE = "WX"
_LIMIT = 4096
_SHELLS = ("sh", "bash", "dash")


class Torch(Struct, frozen=True):
    """A torch, by its files.

    version: "" if version.py has none. parts: which of "cuda", "cudnn" and "xpu" it was built
    with; None if its files do not show it.
    """

    location: str
    version: str
    parts: frozenset[str] | None


class Target(Struct, frozen=True):
    """The Python that runs, and what its environment has.

    hook_ignored_by: the option of Python that ignores the import hook, "" if none.
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
        described = query(python[0])
    except BadInput:  # not a Python, or one that does not start: it will report that itself
        return None
    arguments = python_arguments(python[1:])
    folders = list(described["path"])
    if arguments.has_own_folder:
        try:
            program = arguments.program
            folders.insert(0, os.path.dirname(os.path.realpath(program)) if program else os.getcwd())
        except (OSError, ValueError):  # the current folder was deleted; a null byte
            folders.insert(0, os.devnull)
    host = Host(python={**described, "path": folders}, environment=dict(environment))
    found = package(host, _DISTRIBUTIONS, "torch", "version.py")
    torch = None
    if found is not None and found.location:
        text = host.read(f"{found.location}/version.py", 1 << 16)
        version = assigned_text(text, "__version__")
        parts = {"xpu"} if assigned_text(text, "xpu") else set()
        if assigned_text(text, "cuda") or assigned_text(text, "hip"):
            parts |= {"cuda", "cudnn"}
        torch = Torch(found.location, version or found.version, frozenset(parts) if version else None)
    modules = ("mlbackends", "opt_einsum")
    importable = frozenset(name for name in modules if module_location(host, name))
    return Target(with_slashes(python[0]), arguments.hook_ignored_by, torch, importable)


def python_command(command: Sequence[str], search_path: str) -> tuple[str, ...]:
    """Return the interpreter's path, its options and the program; () if the command is not run by Python."""
    path = which(command[0], search_path)
    if not path:
        return ()
    if _is_python(path) or _is_python(command[0]):
        return (path, *command[1:])
    interpreter = interpreter_of(path)
    started = which(interpreter[0], search_path) if interpreter else ""
    if not started or not _is_python(interpreter[0]):
        return ()
    return (started, *interpreter[1:], path, *command[1:])


def _is_python(path: str) -> bool:
    return bool(_PYTHON.match(os.path.basename(path).lower().removesuffix(".exe")))


class PythonArguments(Struct, frozen=True):
    """hook_ignored_by: the option that makes Python ignore PYTHONPATH or sitecustomize, "" if none.

    program: the script that runs, "" for code, a module or none. has_own_folder: whether the script's
    folder, or the current one, is first on the import path.
    """

    hook_ignored_by: str
    program: str
    has_own_folder: bool


def python_arguments(arguments: Sequence[str]) -> PythonArguments:
    """Read an interpreter's arguments up to the program and its own."""
    ignored_by, has_own_folder, program, at = "", True, "", 0
    while at < len(arguments):
        argument = arguments[at]
        at += 1
        if argument == "--":
            program = arguments[at] if at < len(arguments) else ""
            break
        if argument == "-" or not argument.startswith("-"):
            program = argument.removeprefix("-") if argument == "-" else argument
            break
        if argument.startswith("--"):
            at += argument == "--check-hash-based-pycs"
            continue
        letters = argument[1:]
        code = next((i for i, letter in enumerate(letters) if letter in f"cm{_WITH_VALUE}"), None)
        for letter in letters[:code]:
            has_own_folder = has_own_folder and letter not in "IP"
            if letter in _WITHOUT_HOOK:
                ignored_by = ignored_by or f"-{letter}"
        if code is not None and letters[code] in "cm":
            break
        # -W and -X have their value behind them, or in the next argument.
        at += code is not None and code == len(letters) - 1
    return PythonArguments(ignored_by, program, has_own_folder)


def interpreter_of(path: str) -> tuple[str, ...]:
    """Return the interpreter of a script and the options before the script's name; () where there is none.

    () as well where a shell runs it, and may start anything.
    The first is a path, or a bare name that is looked up on PATH.
    """
    try:
        with open(path, "rb") as file:
            lines = file.read(_LIMIT).decode(errors="surrogateescape").split("\n")
    except (OSError, ValueError):
        return ()
    if not lines[0].startswith("#!"):
        return ()
    # The kernel passes all that follows the interpreter as one argument.
    interpreter, _, argument = lines[0][2:].strip().partition(" ")
    argument = argument.strip()
    name = os.path.basename(interpreter)
    if name not in ("env", *_SHELLS):
        return (interpreter, argument) if argument else (interpreter,) if interpreter else ()
    try:
        if name in _SHELLS:
            # Shell and Python at once: '''exec' /python "$0" "$@".
            line = lines[1] if len(lines) > 1 else ""
            words = shlex.split(line) if line.startswith("'''exec'") else []
            command = words[1 : words.index("$0")] if words[:1] == ["exec"] and "$0" in words else []
            return () if any("$" in word for word in command) else tuple(command)
        words = [argument]
        for beginning in ("-S", "--split-string=", "-vS"):
            if argument.startswith(beginning):
                words = shlex.split(argument.removeprefix(beginning))
    except ValueError:  # an open quote
        return ()
    while words and "=" in words[0] and not words[0].startswith("-"):
        del words[0]
    # With options, such as -i, what it starts may not get our variables.
    return () if not words or not words[0] or words[0].startswith("-") else tuple(words)
