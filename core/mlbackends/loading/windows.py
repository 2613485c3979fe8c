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
from array import array
from collections.abc import Iterator

from mlbackends.base.errors import NotALibrary
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import conda_prefix, distributions
from mlbackends.libraries.pe import PeImage
from mlbackends.libraries.windows import (
    REDISTRIBUTABLE,
    is_runtime,
    library_folders,
    process_machine,
    program_folder,
    system_folder,
)
from mlbackends.loading.imports import module_file, shared_objects
from mlbackends.loading.linker import Found, Mapped, ObjectFile, Opening, Process
from mlbackends.model.loading import Fault, Need

#: What Python says of GetLastError's codes.
_WORDS = {
    126: "The specified module could not be found.",
    127: "The specified procedure could not be found.",
    193: "%1 is not a valid Win32 application.",
}
_PYTHON = re.compile(r"python(3\d+t?)\.dll")
_NAME_BYTES = 4096
_DRIVER = ("nvcuda.dll", "nvml.dll", "nvapi64.dll", "opencl.dll", "vulkan-1.dll")


class Dll(ObjectFile):
    """A DLL or extension module on the disk. imports: the names and numbers of functions by DLL."""

    def __init__(self, path: str) -> None:
        with PeImage(path) as image:
            self.machine, self.bits = image.machine, 64 if image.is_wide else 32
            self.soname = self.interpreter = ""
            self.imports: dict[str, tuple[str | int, ...]] = {}
            for at, library in image.imports(1, 20, 12):
                lookups, bound = image.unpack("I12xI", at)
                functions = tuple(image.functions(lookups or bound))
                self.imports[library] = self.imports.get(library, ()) + functions
            self.needed = tuple(self.imports)
            self._first = 0
            self._functions, self._names, self._numbers = array("I"), array("I"), array("H")
            self._directory = range(0)
            if image.exports:
                start, size = image.directories[0]
                self._directory = range(start, start + size)
                self._first, count, named, *tables = image.unpack("6I", image.exports + 16)
                for kind, length, address in zip(
                    (self._functions, self._names, self._numbers), (count, named, named), tables, strict=True
                ):
                    if length:
                        kind.frombytes(image.exactly(image.offset_of(address), length * kind.itemsize))
                # Linkers write the names into the directory; the format lets them be elsewhere.
                self._start = min([start, *self._names])
                end = max(
                    [start + size, *(name + _NAME_BYTES for name in self._names if name >= start + size)]
                )
                at = image.offset_of(self._start)
                self._data = image.exactly(at, min(end - self._start, image.size - at))

    def export(self, function: str | int) -> str | None:
        """Return where a function is: None without it, "" in this file, or "DLL.NAME" that it leads to."""
        index = self._indexed(function) if isinstance(function, str) else function - self._first
        if not 0 <= index < len(self._functions) or not self._functions[index]:
            return None
        is_forwarded = self._functions[index] in self._directory
        return self._text(self._functions[index]).decode("ascii", "replace") if is_forwarded else ""

    def _indexed(self, function: str) -> int:
        """Return the number of a function, -1 without one: the names are sorted."""
        name, low, high = function.encode(), 0, len(self._names)
        while low < high:
            middle = (low + high) // 2
            listed = self._text(self._names[middle])
            if listed == name:
                return self._numbers[middle]
            low, high = (middle + 1, high) if listed < name else (low, middle)
        return -1

    def _text(self, address: int) -> bytes:
        at = address - self._start
        return self._data[at : self._data.find(b"\0", at)] if 0 <= at < len(self._data) else b""


@once_per_host
def dll(host: Host, real: str) -> Dll:
    """Return a DLL of a host. Raises NotALibrary and OSError."""
    return host.extracted(real, Dll, Dll, "dll")


class WindowsProcess(Process):
    """The DLLs that a process has, as `Process` of the linker."""

    _root, _is_native = "", False

    def _start(self, program: str) -> None:
        at = f"{program_folder(self.host)}/{posixpath.basename(program)}"
        if self.host.is_file(at):
            faults: list[Fault] = []
            self.program = self._find(at, None, faults).mapped
            self._map_needed([self.program] if self.program else [], faults)
            self.faults = tuple(faults)

    def open(
        self, name: str, *, visible: bool = False, binds: bool = True, asking: Mapped | None = None
    ) -> Opening:
        """Open a DLL as Python does, or as the code of an object does, by its path or a name."""
        self._root, self._is_native = name.replace("\\", "/"), asking is not None
        return super().open(self._root, visible=visible, binds=binds, asking=asking)

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
            file_name = _names(self.host, folder).get(posixpath.basename(key))
            if not file_name:
                continue
            path = f"{folder}/{file_name}"
            if step == "System32" and asking:
                return Found(Need(name, path, step), None)
            real = self.host.realpath(path)
            try:
                file = dll(self.host, real)
            except (NotALibrary, OSError) as error:
                code = "not-a-library" if isinstance(error, NotALibrary) else "not-read"
                self._add_fault(faults, code, name, asking, 193, f"{path}: {error}", path)
                return Found(Need(name, path, step), None)
            if file.machine != process_machine(self.host):
                cause = f"{path} is for {file.machine}; this Python is {process_machine(self.host)}"
                self._add_fault(faults, "wrong-architecture", name, asking, 193, cause, path)
                return Found(Need(name, path, step), None)
            mapped = Mapped(path, real, file, asking)
            self._add(mapped, path.lower(), real.lower(), file_name.lower())
            return Found(Need(name, path, step, folder), mapped)
        if not self._is_given(key):
            self._add_missing(name, asking, faults)
            return Found(Need(name), None)
        return Found(Need(name, "", "System32"), None)

    def _searched(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the folders that are searched for a name, each with the step."""
        if "/" in name:
            yield posixpath.dirname(name), "path"
            return
        if "/" in self._root:
            yield posixpath.dirname(self._root), "folder of the module"
        if self._is_native:  # LOAD_WITH_ALTERED_SEARCH_PATH, or for a name LoadLibraryW
            yield from () if "/" in self._root else [(program_folder(self.host), "application folder")]
            yield system_folder(self.host), "System32"
            yield from ((folder, "PATH") for folder in self.host.folders("PATH"))
            return
        yield program_folder(self.host), "application folder"
        tops = (module.partition(".")[0] for module in self.imported)
        for top in dict.fromkeys([_top_of(self.host, self._root), *tops]):
            for folder in added_folders(self.host, top):
                yield folder, "os.add_dll_directory"
        if conda_prefix(self.host):
            yield from ((folder, "conda") for folder in library_folders(self.host))
        yield system_folder(self.host), "System32"
        if conda_prefix(self.host):
            yield from ((folder, "PATH") for folder in self.host.folders("PATH"))

    def _is_given(self, key: str) -> bool:
        """Return whether a DLL that is not among the files comes with Windows, or with Python itself."""
        if key.removesuffix(".dll") in _system_dlls():
            return True
        major, minor = (*str(self.host.python.get("version", "3")).split("."), "")[:2]
        own = (f"python{major}{minor}.dll", "python3.dll", "vcruntime140.dll", "vcruntime140_1.dll")
        return self.program is None and key in own

    def _add_missing(self, name: str, asking: Mapped | None, faults: list[Fault]) -> None:
        by = asking.path if asking else ""
        if not by:
            self._add_fault(faults, "missing-library", name, asking, 126, "")
            return
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
        self._add_fault(faults, code, name, asking, 126, cause, name, hint=hint, command=command)

    def _add_fault(
        self, faults: list[Fault], code: str, name: str, asking: Mapped | None, error: int, cause: str,
        *path: str, hint: str = "", command: str = "",
    ) -> None:  # fmt: skip
        if all(known.name != name for known in faults):
            route = (*asking.route(), *path) if asking else path or (name,)
            faults.append(Fault(code, name, self._message(error), route, cause, hint, command))

    def _message(self, error: int) -> str:
        """Return what Python prints for an error of LoadLibraryExW."""
        name = posixpath.basename(self._root)
        if name.lower().endswith(".pyd"):
            return f"DLL load failed while importing {name.partition('.')[0]}: {_WORDS[error]}"
        if error == 126:
            shown = self._root.replace("/", "\\")
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
            lacking = [
                str(function)
                for function in (mapped.file.imports[need.name] if need.path else ())
                if not self._is_exported(need.path, function, mapped, faults)
            ]
            yield from faults
            if lacking:
                what = f"function number {lacking[0]}" if lacking[0].isdecimal() else lacking[0]
                cause = f"{mapped.path} needs {what} of {need.name}, and {need.path} does not have it"
                yield Fault(
                    "missing-symbol", lacking[0], self._message(127), (*mapped.route(), need.path), cause,
                    others=tuple(lacking[1:]),
                )  # fmt: skip
                return

    def _is_exported(
        self, path: str, function: str | int, asking: Mapped, faults: list[Fault], depth: int = 0
    ) -> bool:
        """Return whether a file has a function, or leads to one; True where it cannot be read.

        faults: a DLL that it leads to and that is not found is added.
        """
        try:
            target = dll(self.host, self.host.realpath(path)).export(function)
        except (NotALibrary, OSError):
            return True
        if not target or depth > 8:
            return target is not None
        name: str | int
        library, _, name = target.rpartition(".")
        at = self._find(f"{library}.dll", asking, faults).need.path
        name = int(name[1:]) if name[:1] == "#" else name
        return not at or self._is_exported(at, name, asking, faults, depth + 1)


@once_per_host
def _names(host: Host, folder: str) -> dict[str, str]:
    return {name.lower(): name for name in host.listdir(folder)}


def _system_dlls() -> frozenset[str]:
    return frozenset(table("loading/windows.toml")["system"].split())


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
    folders: dict[str, None] = {}
    for dists in distributions(host).values():
        for path in shared_objects(host, dists[0]) if own.startswith(dists[0].folder) else ():
            folder = posixpath.dirname(path)
            is_ours = f"{folder}/".startswith(f"{own}/") or folder.endswith(".libs")
            is_named = folder == own or re.search(
                rf"[\"'/\\]{re.escape(posixpath.basename(folder))}[\"'/\\]", text
            )
            if path.lower().endswith(".dll") and is_ours and is_named:
                folders[folder] = None
    return tuple(folders)
