"""The shim that is preloaded into the command, and whether it fits: it is Linux's and optional.

It takes lines that a dynamic program prints to C's `stdout` by printf, puts, fputs, fwrite, putc and their
like, in one piece or several, and what MKL appends to its file. It leaves in the output, unchanged and
in order, what never comes by such a function: lines written by write(2), as shells' own printf does, or put
into the buffer letter by letter (coreutils' printf), and those of programs that it is not in. No library
prints so; a pipe or terminal takes such lines as well.
"""

import contextlib
import os
import stat
from collections.abc import Mapping
from importlib.util import find_spec

from mlbackends.base.errors import NotALibrary
from mlbackends.base.mounts import which
from mlbackends.base.registry import KERNELS
from mlbackends.inject.target import interpreter_of
from mlbackends.libraries.elf import ElfImage

_PT_INTERP = 3
_MOST_INTERPRETERS = 4
# The loader treats these as separators, or as the start of a substitution.
_SPECIAL = " :$"


def shim_path() -> str:
    """Return the path of the installed shim, or ""."""
    package = find_spec(KERNELS)
    folder = os.path.dirname(str(package.origin)) if package else ""
    path = os.path.join(folder, "lib", "trace_shim.so")
    return path if os.path.isfile(path) else ""


def why_not(path: str, shim: str, environment: Mapping[str, str]) -> str:
    """Return why the shim cannot be preloaded into a program, "" where it can.

    path: the program's file; for a script, the program that its first line names counts. What is not
    known counts as fitting: the shim does no harm where it is not wanted.
    """
    if os.name == "nt":
        return "the shim is for Linux alone"
    if not shim:
        return "this installation has no shim: it was built without a C compiler"
    path = _behind_scripts(path, environment)
    try:
        has_rights = bool(os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID))
        with contextlib.suppress(OSError, AttributeError):
            has_rights = has_rights or bool(os.getxattr(path, "security.capability"))
        if has_rights:
            return f"{path} runs with more rights than ours, so nothing is preloaded into it"
        with ElfImage(path) as program, ElfImage(shim) as ours:
            if program.machine != ours.machine:
                return f"{path} is for {program.machine}, the shim for {ours.machine}"
            if not any(segment[0] == _PT_INTERP for segment in program.segments):
                return f"{path} is linked statically"
    except (NotALibrary, OSError):
        pass
    return ""


def _behind_scripts(path: str, environment: Mapping[str, str]) -> str:
    for _ in range(_MOST_INTERPRETERS):
        try:
            with open(path, "rb") as file:
                line = file.readline(256)
        except (OSError, ValueError):
            break
        if not line.startswith(b"#!"):
            break
        words = interpreter_of(path) or os.fsdecode(line[2:]).split()
        name = words[0] if words else ""
        path = which(name, environment.get("PATH", os.defpath)) or name
    return path


def preload_value(shim: str, environment: Mapping[str, str], stack: contextlib.ExitStack) -> str:
    """Return LD_PRELOAD with the shim appended: some libraries must be first.

    stack: keeps the shim open as long as it is needed, where the loader could not read its name.
    Raises OSError where it cannot be opened.
    """
    if set(_SPECIAL) & set(shim):
        descriptor = os.open(shim, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, descriptor)
        shim = f"/proc/{os.getpid()}/fd/{descriptor}"
    before = environment.get("LD_PRELOAD", "")
    if shim in before.replace(":", " ").split():
        return before
    return f"{before}:{shim}" if before else shim
