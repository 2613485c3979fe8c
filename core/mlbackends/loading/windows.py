"""What Windows' loader would do in a process, from files alone.

The search is that of libraries/windows.py; what the process has already is found by its name without a
folder, and API sets are no files. The first file of that name is taken, and one for another processor ends
the search. Functions are looked up in the DLL that they are imported from, by name or number, or where that
forwards them to. What is imported with delay is not looked at. Of the system's own DLLs only the exports are
read, where the machine has them.

Sources: Microsoft, "Dynamic-link library search order", "LoadLibraryExW", "Windows API sets" and "PE Format";
CPython, Python/dynload_win.c and Modules/_ctypes/callproc.c.
"""

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

from mlbackends.base.errors import NotALibrary
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import distributions, python_folders
from mlbackends.libraries.pe import exports, imported_functions, pe_headers
from mlbackends.libraries.windows import (
    file_names,
    library_folders,
    process_machine,
    program_folder,
    searched,
    system_folder,
)
from mlbackends.loading.imports import module_file, shared_objects
from mlbackends.loading.linker import Mapped, ObjectFile, Process, Refused
from mlbackends.model.loading import Fault

#: What Python says of GetLastError's codes.
_WORDS = {
    126: "The specified module could not be found.",
    127: "The specified procedure could not be found.",
    193: "%1 is not a valid Win32 application.",
}
_MOST_STEPS = 8
_NAMES = {"application": "application folder", "system-folder": "System32"}
_PYTHON = re.compile(r"python(3)(\d+t?)\.dll")
#: What a machine has in System32, without its being a part of Windows: Visual C++'s runtime, and drivers.
_OF_MACHINE = re.compile(
    r"(?i)((vcruntime|msvcp|concrt|vcomp|libomp)140[\w.]*|nvcuda|nvml|nvapi64|opencl|vulkan-1)\.dll$"
)


class Dll(ObjectFile):
    """A DLL or extension module on the disk. imports: the names and numbers of functions by DLL."""

    def __init__(self, host: Host, real: str) -> None:
        self.machine, self.soname = pe_headers(host, real).machine, posixpath.basename(real)
        self.imports = host.extracted(real, imported_functions, dict[str, tuple[str | int, ...]])
        self.needed = tuple(self.imports)


dll = once_per_host(Dll)


class WindowsProcess(Process):
    """The DLLs that a process has, as `Process` of the linker."""

    passed_over = ()

    def _start(self, program: str) -> None:
        super()._start(f"{program_folder(self.host)}/{posixpath.basename(program)}")

    # ---- searching --------------------------------------------------------------------------------

    def _key(self, name: str) -> str:
        return name.lower()

    def _read(self, real: str) -> ObjectFile:
        file, ours = dll(self.host, real), process_machine(self.host)
        if file.machine != ours:
            raise Refused("wrong-architecture", f"the file is for {file.machine}; this Python is {ours}")
        return file

    def _places(self, name: str, _: Mapped | None) -> Iterator[tuple[str, str, str]]:
        key = name.lower()
        if key.startswith(("api-ms-win-", "ext-ms-")):
            yield "", "API set", ""
        for folder, step in self._searched(name):
            if file_name := file_names(self.host, folder).get(posixpath.basename(key)):
                yield f"{folder}/{file_name}", step, folder
        # What is not among the files comes with Windows, or with Python itself.
        major, minor = (*str(self.host.python.get("version", "3")).split("."), "")[:2]
        own = (f"python{major}{minor}.dll", "python3.dll", "vcruntime140.dll", "vcruntime140_1.dll")
        is_of_system = key.removesuffix(".dll") in table("loading/windows.toml")["system"].split()
        if is_of_system or (self.program is None and key in own):
            yield "", "System32", ""

    def _searched(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the folders that are searched for a name, each with the step."""
        if "/" in name:
            yield posixpath.dirname(name), "path"
            return
        tops = [_top_of(self.host, self.root), *(module.partition(".")[0] for module in self.imported)]
        added = chain.from_iterable(added_folders(self.host, top) for top in dict.fromkeys(tops))
        file = self.root if "/" in self.root else ""
        for folder, step in searched(self.host, file, added, by_python=not self.opener):
            yield folder, _NAMES.get(step, step)

    def _refusal(self, name: str, asking: Mapped | None, tried: dict[str, tuple[str, str]]) -> Fault | None:
        route = asking.route if asking else ()
        for path, (code, words) in tried.items():
            return Fault(code, name, self._message(193), (*route, path), f"{path}: {words}")
        code, cause, needs = "missing-library", "", f"{route[-1]} needs {name}" if route else ""
        if needs and (match := _PYTHON.fullmatch(name.lower())):
            code, cause = "wrong-python", f"{needs}: it is built for Python {match[1]}.{match[2]}"
        elif needs and _OF_MACHINE.match(name) and not self.host.listdir(system_folder(self.host)):
            code, cause = "not-read", f"{needs}; what this Windows has in System32 is not known"
        return Fault(code, name, self._message(126), (*route, name), cause)

    def _message(self, error: int) -> str:
        """Return what Python prints for an error of LoadLibraryExW."""
        name = posixpath.basename(self.root)
        if name.lower().endswith(".pyd"):
            return f"DLL load failed while importing {name.partition('.')[0]}: {_WORDS[error]}"
        if error == 126:
            shown = self.root.replace("/", "\\")
            how = "Try using the full path with constructor syntax."
            return f"Could not find module '{shown}' (or one of its dependencies). {how}"
        return f"[WinError {error}] {_WORDS[error]}"

    # ---- functions --------------------------------------------------------------------------------

    def _unbound(self, mapped: Mapped, _: list[Mapped]) -> Iterator[Fault]:
        """Yield the functions that one of an object's DLLs lacks as one fault, of the first."""
        imports = mapped.file.imports if isinstance(mapped.file, Dll) else {}  # a driver's is assumed
        for need in mapped.needs if imports else ():
            faults: list[Fault] = []
            lacking = self._lacking(need.path, imports[need.name], mapped, faults)
            yield from faults
            if lacking:
                what = f"function number {lacking[0]}" if lacking[0].isdecimal() else lacking[0]
                cause = f"{mapped.path} needs {what} of {need.name}, and {need.path} does not have it"
                route, others = (*mapped.route, need.path), tuple(lacking[1:])
                yield Fault("missing-symbol", lacking[0], self._message(127), route, cause, others=others)
                return

    def _lacking(
        self, path: str, functions: tuple[str | int, ...], asking: Mapped, faults: list[Fault], depth: int = 0
    ) -> list[str]:
        """Return the functions that a file neither has nor leads to; none where it cannot be read.

        faults: a DLL that it leads to and that is not found is added.
        """
        found: dict[str | int, str] = dict.fromkeys(functions, "")
        with suppress(NotALibrary, OSError):
            if path:
                found = self.host.extracted(path, partial(exports, functions=functions), Any, "exports")
        lacking = [str(function) for function in functions if function not in found]
        for function, target in found.items():
            library, _, name = target.rpartition(".")
            if library and depth <= _MOST_STEPS:
                at = self._find(f"{library}.dll", asking, faults)[0].path
                of_it = (int(name[1:]) if name[:1] == "#" else name,)
                lacking += [str(function)] * bool(self._lacking(at, of_it, asking, faults, depth + 1))
        return lacking


@once_per_host
def _top_of(host: Host, path: str) -> str:
    """Return the package at the top that a file is in, which is imported before it; "" for none."""
    below = [path.removeprefix(f"{folder}/") for folder in python_folders(host)]
    return min((rest for rest in below if rest != path), key=len, default="").partition("/")[0]


@once_per_host
def added_folders(host: Host, module: str) -> tuple[str, ...]:
    """Return the folders that importing a package adds to the search, or opens the DLLs of.

    They are those of its distribution's DLLs, and Library/bin, that are named in code which calls
    os.add_dll_directory, as delvewheel's and torch's does, and the module's own folder.
    """
    own = posixpath.dirname(module_file(host, module))
    texts = [host.read(f"{own}/{name}.py") for name in ("__init__", "_distributor_init") if own]
    text = "\n".join(text for text in texts if "add_dll_directory" in text)
    dists = [dists[0] for dists in distributions(host).values() if text and own.startswith(dists[0].folder)]
    paths = (path for dist in dists for path in shared_objects(host, dist) if path.lower().endswith(".dll"))
    return tuple(
        folder
        for folder in dict.fromkeys([*map(posixpath.dirname, paths), *library_folders(host)])
        if f"{folder}/".startswith(f"{own}/") or folder.endswith((".libs", "/Library/bin"))
        if folder == own or re.search(rf"[\"'/\\]{re.escape(posixpath.basename(folder))}[\"'/\\]", text)
    )
