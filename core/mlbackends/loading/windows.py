"""What Windows' loader would do in a process, from files alone.

Python opens an extension module, and ctypes a path, with LOAD_LIBRARY_SEARCH_DEFAULT_DIRS and
LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR. The search for each DLL that this needs, in this order: what the process has
already, by name without folder; API sets, which are no files; the folder of the file that Python opens; that
of the program; those of os.add_dll_directory; System32. conda's Python searches PATH too. The first file of
that name is taken, and one for another processor ends the search. Functions are looked up in the DLL that
they are imported from, by name or number, or where that forwards them to. What is imported with delay is not
looked at. Of the system's own DLLs only the exports are read, where the machine has them.

Sources: Microsoft, "Dynamic-link library search order", "LoadLibraryExW", "Windows API sets" and "PE Format";
CPython, Python/dynload_win.c and Modules/_ctypes/callproc.c.
"""

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from mlbackends.base.errors import NotALibrary
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import conda_prefix, distributions
from mlbackends.libraries.pe import exports, imported_functions, pe_headers
from mlbackends.libraries.windows import (
    REDISTRIBUTABLE,
    file_names,
    folders,
    is_runtime,
    process_machine,
    program_folder,
    system_folder,
)
from mlbackends.loading.imports import module_file, shared_objects
from mlbackends.loading.linker import Found, Mapped, ObjectFile, Process
from mlbackends.model.loading import Fault, Need

#: What Python says of GetLastError's codes, and the one that each fault has.
_WORDS = {
    126: "The specified module could not be found.",
    127: "The specified procedure could not be found.",
    193: "%1 is not a valid Win32 application.",
}
_CODES = {"missing-symbol": 127, "wrong-architecture": 193, "not-a-library": 193}
_MOST_STEPS = 8
#: The steps of Python's search (conda's has PATH too), and of LoadLibrary's, as other code calls it.
_STEPS, _OTHER_STEPS = ("application", "conda", "system-folder"), ("application", "system-folder", "PATH")
_NAMES = {"application": "application folder", "system-folder": "System32"}
_PYTHON = re.compile(r"python(3\d+t?)\.dll")
_DRIVER = ("nvcuda.dll", "nvml.dll", "nvapi64.dll", "opencl.dll", "vulkan-1.dll")


class Dll(ObjectFile):
    """A DLL or extension module on the disk. imports: the names and numbers of functions by DLL."""

    soname = ""

    def __init__(self, host: Host, real: str) -> None:
        self.machine = pe_headers(host, real).machine
        self.imports = host.extracted(real, imported_functions, dict[str, tuple[str | int, ...]])
        self.needed = tuple(self.imports)


dll = once_per_host(Dll)


class WindowsProcess(Process):
    """The DLLs that a process has, as `Process` of the linker."""

    def _start(self, program: str) -> None:
        self._map_program(f"{program_folder(self.host)}/{posixpath.basename(program)}")

    def _version_faults(self, _: Mapped) -> Iterator[Fault]:
        return iter(())

    # ---- searching --------------------------------------------------------------------------------

    def _find(self, name: str, asking: Mapped | None, faults: list[Fault]) -> Found:
        key = name.lower()
        if known := self.by_name.get(key):
            return Found(Need(name, known.path, "already loaded"), known)
        if key.startswith(("api-ms-win-", "ext-ms-")):
            return Found(Need(name, "", "API set"), None)
        for folder, step in self._searched(name):
            file_name = file_names(self.host, folder).get(posixpath.basename(key))
            if not file_name:
                continue
            path = f"{folder}/{file_name}"
            need = Need(name, path, step)
            if step == "System32" and asking:
                return Found(need, None)
            real = self.host.realpath(path)
            try:
                file = dll(self.host, real)
            except (NotALibrary, OSError) as error:
                code = "not-a-library" if isinstance(error, NotALibrary) else "not-read"
                self._add_fault(faults, code, name, asking, f"{path}: {error}", path)
                return Found(need, None)
            if file.machine != process_machine(self.host):
                cause = f"{path} is for {file.machine}; this Python is {process_machine(self.host)}"
                self._add_fault(faults, "wrong-architecture", name, asking, cause, path)
                return Found(need, None)
            mapped = Mapped(path, real, file, asking)
            self._add(mapped, path.lower(), real.lower(), file_name.lower())
            return Found(Need(name, path, step, folder), mapped)
        if self._is_given(key):
            return Found(Need(name, "", "System32"), None)
        self._add_missing(name, asking, faults)
        return Found(Need(name), None)

    def _searched(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the folders that are searched for a name, each with the step."""
        if "/" in name:
            yield posixpath.dirname(name), "path"
            return
        is_path = "/" in self.root
        if is_path:
            yield posixpath.dirname(self.root), "folder of the module"
        steps = _STEPS + ("PATH",) * bool(conda_prefix(self.host))
        if self.opener:  # LOAD_WITH_ALTERED_SEARCH_PATH, or for a name LoadLibraryW
            steps = _OTHER_STEPS[is_path:]
        for folder, step in folders(self.host):
            if step in steps:
                yield folder, _NAMES.get(step, step)
            if step == "application" and not self.opener:
                tops = (module.partition(".")[0] for module in self.imported)
                for top in dict.fromkeys([_top_of(self.host, self.root), *tops]):
                    yield from ((added, "os.add_dll_directory") for added in added_folders(self.host, top))

    def _is_given(self, key: str) -> bool:
        """Return whether a DLL that is not among the files comes with Windows, or with Python itself."""
        if key.removesuffix(".dll") in table("loading/windows.toml")["system"].split():
            return True
        major, minor = (*str(self.host.python.get("version", "3")).split("."), "")[:2]
        own = (f"python{major}{minor}.dll", "python3.dll", "vcruntime140.dll", "vcruntime140_1.dll")
        return self.program is None and key in own

    def _add_missing(self, name: str, asking: Mapped | None, faults: list[Fault]) -> None:
        by = asking.path if asking else ""
        code, cause, hint, command = "missing-library", "", "", ""
        is_of_compiler = is_runtime(name) and "-" not in name  # delvewheel adds a hash to the name
        if is_of_compiler:
            cause = f"{by} needs {name}, a part of Visual C++'s runtime that Python does not bring"
            hint, command = REDISTRIBUTABLE, "winget install Microsoft.VCRedist.2015+.x64"
        if match := _PYTHON.fullmatch(name.lower()):
            code, version = "wrong-python", f"{match[1][0]}.{match[1][1:]}"
            cause = f"{by} needs {name}: it is built for Python {version}"
        if (is_of_compiler or name.lower() in _DRIVER) and not self.host.listdir(system_folder(self.host)):
            code, cause = "not-read", f"{by} needs {name}; what this Windows has in System32 is not known"
        if by:
            self._add_fault(faults, code, name, asking, cause, name, hint, command)
        else:
            self._add_fault(faults, "missing-library", name, None, "", name)

    def _add_fault(
        self, faults: list[Fault], code: str, name: str, asking: Mapped | None, cause: str, path: str,
        hint: str = "", command: str = "",
    ) -> None:  # fmt: skip
        error = 193 if code == "not-read" and path != name else _CODES.get(code, 126)
        if all(known.name != name for known in faults):
            route = (*(asking.route() if asking else ()), path)
            faults.append(Fault(code, name, self._message(error), route, cause, hint, command))

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
        if not isinstance(mapped.file, Dll):
            return  # a driver's, which is assumed
        for need in mapped.needs:
            faults: list[Fault] = []
            lacking = self._lacking(need.path, mapped.file.imports[need.name], mapped, faults)
            yield from faults
            if lacking:
                what = f"function number {lacking[0]}" if lacking[0].isdecimal() else lacking[0]
                cause = f"{mapped.path} needs {what} of {need.name}, and {need.path} does not have it"
                yield Fault(
                    "missing-symbol", lacking[0], self._message(127), (*mapped.route(), need.path), cause,
                    others=tuple(lacking[1:]),
                )  # fmt: skip
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
                at = self._find(f"{library}.dll", asking, faults).need.path
                of_it = (int(name[1:]) if name[:1] == "#" else name,)
                lacking += [str(function)] * bool(self._lacking(at, of_it, asking, faults, depth + 1))
        return lacking


@once_per_host
def _top_of(host: Host, path: str) -> str:
    """Return the package at the top that a file is in, which is imported before it; "" for none."""
    for dists in distributions(host).values():
        if path.startswith(f"{dists[0].folder}/"):
            return path[len(dists[0].folder) + 1 :].partition("/")[0]
    return ""


@once_per_host
def added_folders(host: Host, module: str) -> tuple[str, ...]:
    """Return the folders that importing a package adds to the search, or opens the DLLs of.

    They are those of its distribution's DLLs that are named in code which calls os.add_dll_directory, as
    delvewheel's does, and the module's own folder.
    """
    start = module_file(host, module)
    own = posixpath.dirname(start)
    texts = [host.read(f"{own}/{name}.py") for name in ("__init__", "_distributor_init")]
    text = "\n".join(text for text in texts if "add_dll_directory" in text)
    if not start or not text:
        return ()
    added: dict[str, None] = {}
    for dists in distributions(host).values():
        for path in shared_objects(host, dists[0]) if own.startswith(dists[0].folder) else ():
            folder, name = posixpath.split(path)
            if name.lower().endswith(".dll") and (
                f"{folder}/".startswith(f"{own}/") or folder.endswith(".libs")
            ):
                added[folder] = None
    named = r"[\"'/\\]{}[\"'/\\]"
    return tuple(
        folder
        for folder in added
        if folder == own or re.search(named.format(re.escape(posixpath.basename(folder))), text)
    )
