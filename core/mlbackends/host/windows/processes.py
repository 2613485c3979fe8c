"""Another process of Windows: its modules, environment and interpreter; imported under Windows alone.

Source: Microsoft, EnumProcessModulesEx and GetModuleFileNameEx; CPython, PC/venvlauncher.c.
"""

import ctypes
import os
import sys
from contextlib import suppress
from ctypes import wintypes

import psutil

from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import pattern

assert sys.platform == "win32"

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel32.OpenProcess.restype = wintypes.HANDLE
_psapi = ctypes.WinDLL("psapi", use_last_error=True)
_QUERY_AND_READ = 0x0410
_ALL = 3
_LONGEST = 32768
#: ERROR_INVALID_PARAMETER, as OpenProcess has it for a number that no process has.
_NO_PROCESS = 87
_PYTHON = pattern(r"(?:python|pypy|graalpy)[\d.]*[a-z]*$")


def modules(pid: int) -> list[str]:
    """Return the files that a process has loaded, as Windows writes them. Raises OSError."""
    process = _kernel32.OpenProcess(_QUERY_AND_READ, False, pid)
    if not process:
        raise ctypes.WinError(ctypes.get_last_error())
    handle, needed = wintypes.HANDLE(process), wintypes.DWORD()
    try:
        size, handles = 0, (wintypes.HMODULE * 0)()
        while size == 0 or needed.value > size:  # more may be loaded meanwhile
            handles = (wintypes.HMODULE * (needed.value // ctypes.sizeof(wintypes.HMODULE) + 64))()
            size = ctypes.sizeof(handles)
            if not _psapi.EnumProcessModulesEx(handle, handles, size, ctypes.byref(needed), _ALL):
                raise ctypes.WinError(ctypes.get_last_error())
        name, path_of = ctypes.create_unicode_buffer(_LONGEST), _psapi.GetModuleFileNameExW
        return [
            name.value
            for module in handles[: needed.value // ctypes.sizeof(wintypes.HMODULE)]
            if path_of(handle, wintypes.HMODULE(module), name, _LONGEST)
        ]
    finally:
        _kernel32.CloseHandle(handle)


def environment(pid: int) -> dict[str, str]:
    """Return a process's variables, {} if they cannot be read."""
    with suppress(psutil.Error, OSError):
        return dict(psutil.Process(pid).environ())
    return {}


def is_ours(pid: int) -> bool:
    """Return whether a process belongs to the user of this one."""
    with suppress(psutil.Error, OSError):
        return psutil.Process(pid).username() == psutil.Process().username()
    return False


def interpreter_of(pid: int) -> str:
    """Return the interpreter of a process, "" if it is not a Python or another user's.

    Raises BadInput if the process does not exist or this user may not inspect it.
    """
    try:
        program = modules(pid)[0]
    except (OSError, IndexError) as error:
        if getattr(error, "winerror", 0) == _NO_PROCESS:
            raise BadInput(f"there is no process {pid}", "`tasklist` lists them") from None
        why = getattr(error, "strerror", "it has no program")
        hint = "run as administrator, with a Python of the same word size (32 or 64 bits)"
        raise BadInput(f"process {pid} cannot be inspected: {why}", hint) from None
    name = os.path.basename(program).lower().removesuffix(".exe")
    return _started_by(pid, program) if is_ours(pid) and _PYTHON.match(name) else ""


def _started_by(pid: int, program: str) -> str:
    """Return the program that started a process's interpreter: a virtual environment's starts its base's."""
    arguments, current = [""], ""
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        arguments, current = process.cmdline() or arguments, process.cwd()
    variables = {name.upper(): value for name, value in environment(pid).items()}
    for path in (
        variables.get("__PYVENV_LAUNCHER__", ""),
        os.path.join(current, arguments[0]),
        os.path.join(variables.get("VIRTUAL_ENV", ""), "Scripts", os.path.basename(program)),
    ):
        above = os.path.dirname(os.path.dirname(path))
        if os.path.isfile(os.path.join(above, "pyvenv.cfg")) and os.path.isfile(path):
            return path
    return program
