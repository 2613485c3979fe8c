"""Where Python on Windows looks for a DLL, and which file it gets.

Python opens an extension module, and ctypes a library, with LOAD_LIBRARY_SEARCH_DEFAULT_DIRS and
LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR. Windows looks for each DLL that this needs, in this order: among the modules
that the process has already, by name without folder; among the system's own (KnownDLLs, API sets); in the
folder of the file that Python opens, in that of the program, in those of os.add_dll_directory, in System32.
PATH is searched only in the old mode: by ctypes with winmode=0 and ctypes.util.find_library, by torch's
second try, by conda's Python, and by other programs. SafeDllSearchMode moves only the current folder, and
KnownDLLs and side-by-side manifests name no library that computes: they are left out.

Sources: Microsoft, "Dynamic-link library search order"; CPython, Python/dynload_win.c and
Modules/_ctypes/callproc.c; torch/__init__.py, _load_dll_libraries; delvewheel; conda-forge/python-feedstock,
Add-CondaEcosystemModifyDllSearchPath.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from mlbackends.base.errors import NotALibrary, joined
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import conda_prefix, python_folders
from mlbackends.libraries.pe import Pe, imported_functions, pe_headers
from mlbackends.libraries.symbols import extract_symbols
from mlbackends.model.records import FactValue

#: The beginning of the file version of CUDA's libraries, from an old driver model.
_NVIDIA = "6.14.11."
_MKL_LAYERS = {"": "intel_thread", "INTEL": "intel_thread", "TBB": "tbb_thread"}
_MOST_FILES = 500
#: Errors of LoadLibrary: a file is missing, lacks a function, is not a DLL, does not start.
NO_MODULE, _NO_FUNCTION, _OTHER_FORMAT, _INITIALISATION = 126, 127, 193, 1114
#: Its other errors for a file: no access, no memory, no signature, ...
_REFUSED = (5, 8, 577, 998, 1455, 4551)
REDISTRIBUTABLE = "install Microsoft's Visual C++ Redistributable: https://aka.ms/vc14/vc_redist.x64.exe"


def system_folder(host: Host) -> str:
    """Return the folder of the system's DLLs."""
    root = host.folders("SYSTEMROOT") or host.folders("WINDIR") or ["C:/Windows"]
    return f"{root[0]}/System32"


@once_per_host
def library_folders(host: Host) -> list[str]:
    """Return the folders Library/bin of the environment, where conda, and wheels of Intel, put their DLLs."""
    python = host.python
    bases = [str(python.get(name, "")) for name in ("prefix", "base_prefix")]
    bases += [
        os.path.dirname(os.path.dirname(folder))
        for folder in python_folders(host)
        if folder.endswith("/site-packages")
    ]
    folders = (f"{base}/Library/bin" for base in filter(None, [conda_prefix(host), *bases]))
    return [folder for folder in dict.fromkeys(folders) if host.is_dir(folder)]


@once_per_host
def program_folder(host: Host) -> str:
    """Return the folder of the interpreter's program; a virtual environment's starts that of its base."""
    base = str(host.python.get("base_prefix", ""))
    return base or os.path.dirname(str(host.python.get("executable", "")))


def searched(
    host: Host, file: str = "", added: Iterable[str] = (), *, by_python: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield the folders in which Windows looks for a DLL that is not open yet, each with the step.

    file: what is opened, by its path; "" for a name. added: the folders of os.add_dll_directory. by_python:
    whether Python's code opens it; other code calls LoadLibraryW, or with LOAD_WITH_ALTERED_SEARCH_PATH.
    """
    if file:
        yield os.path.dirname(file), "folder of the module"
    steps = ["application", "conda", "system-folder", *["PATH"] * bool(conda_prefix(host))]
    if not by_python:
        steps = [*["application"] * (not file), "system-folder", "PATH"]
    for folder, step in folders(host):
        if step in steps:
            yield folder, step
        if step == "application" and by_python:
            yield from ((folder, "os.add_dll_directory") for folder in added)


def folders(host: Host) -> Iterator[tuple[str, str]]:
    """Yield the folders in which a DLL is searched by its name, in order, with the step's name."""
    met = set()
    ordered = [(program_folder(host), "application")]
    inside_conda = conda_prefix(host)
    for folder in library_folders(host):
        is_conda = inside_conda and folder.startswith(f"{inside_conda}/")
        ordered.append((folder, "conda" if is_conda else "python-prefix"))
    ordered.append((system_folder(host), "system-folder"))
    ordered += [(folder, "PATH") for folder in host.folders("PATH")]
    for folder, step in ordered:
        # An empty or relative one depends on the current folder; a report must not.
        if folder[1:2] == ":" and folder.lower() not in met:
            met.add(folder.lower())
            yield folder, step


@once_per_host
def process_machine(host: Host) -> str:
    """Return the processor that the interpreter was built for, spelled as in `Pe.machine`."""
    with suppress(NotALibrary, OSError):
        return pe_headers(host, host.realpath(str(host.python.get("executable", "")))).machine
    return {"AMD64": "x86_64", "ARM64": "aarch64", "x86": "i386"}.get(host.machine, host.machine)


def version_of(pe: Pe) -> str:
    """Return the version in a DLL's resource, "" if its numbers are not those of a release."""
    product, text = pe.strings.get("ProductName", ""), pe.strings.get("FileVersion", "")
    if release := re.search(r"NVIDIA CUDA (\d+\.\d+\.\d+)", product):
        return release[1]
    if pe.file_version.startswith(_NVIDIA) or not pe.file_version.strip("0."):
        return ""
    if "OpenMP" in product and re.fullmatch(r"\d{8}", text):
        return f"{pe.strings.get('ProductVersion', '')}.{text}"  # as Intel's runtime itself prints it
    return pe.file_version.removesuffix(".0")


def file_version(host: Host, path: str) -> str:
    """Return the version of a file in four numbers, "" without a file or version."""
    with suppress(NotALibrary, OSError):
        return pe_headers(host, path).file_version if host.is_file(path) else ""
    return ""


# ---- which file is opened ------------------------------------------------------------------------


def needs(host: Host, path: str) -> list[str]:
    """Return the DLLs that a file needs, now or at a first call. Raises as `read_pe` does.

    For mkl_rt that includes what its threading layer needs, which it opens by name from its own folder.
    """
    pe = pe_headers(host, path)
    names = [*pe.needed, *pe.delayed, *pe.forwards]
    folder, name = os.path.split(path)
    layer = _MKL_LAYERS.get(host.env("MKL_THREADING_LAYER").upper())
    if layer and name.lower().startswith("mkl_rt"):
        with suppress(NotALibrary, OSError):
            threads = pe_headers(host, f"{folder}/{name.lower().replace('rt', layer, 1)}")
            names += [*threads.needed, *threads.delayed]
    return names


def resolved(host: Host, path: str, name: str, opened: tuple[str, ...] = ()) -> str:
    """Return the file that is opened for a name that a file needs which Python opens, "" if none is found.

    opened: folders whose files the package has opened by then, or has added to the search. What has its
    libraries in Library/bin adds that folder.
    """
    for folder in (*opened, *(folder for folder, _ in searched(host, path, library_folders(host)))):
        if file := file_names(host, folder).get(name.lower()):
            return f"{folder}/{file}"
    return ""


@once_per_host
def file_names(host: Host, folder: str) -> dict[str, str]:
    """Return the names in a folder by themselves in lower case."""
    return {name.lower(): name for name in host.listdir(folder)}


def missing(host: Host, path: str, opened: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Return each DLL that opening a file would not find, with the file that needs it.

    Delayed imports are not searched: the file opens without them.
    """
    lacking: dict[str, str] = {}
    todo, met = [path], set[str]()
    system = system_folder(host).lower()
    while todo and len(met) < _MOST_FILES:
        file = todo.pop()
        with suppress(NotALibrary, OSError):
            for name in pe_headers(host, file).needed:
                if name.lower() in met or name.lower().startswith(("api-ms-", "ext-ms-")):
                    continue
                met.add(name.lower())
                target = resolved(host, path, name, opened)
                if not target:
                    lacking[name] = file
                elif os.path.dirname(target).lower() != system:
                    todo.append(target)
    return list(lacking.items())


def cxx_runtime_facts(host: Host, path: str) -> dict[str, FactValue]:
    """Return what opening a file would not find, and the C++ runtime that it gets."""
    runtime = resolved(host, path, "msvcp140.dll")
    facts: dict[str, FactValue] = {"missing_libraries": [name for name, _ in missing(host, path)]}
    with suppress(NotALibrary, OSError):
        version = version_of(pe_headers(host, runtime)) if runtime else ""
        facts |= {"cxx_runtime_path": runtime, "cxx_runtime_version": version}
    return facts


def refusal(host: Host, path: str, code: int) -> Reason | None:
    """Return why Windows does not open a file, None for a GetLastError code that is not its loader's."""
    if code == NO_MODULE:
        lacking = missing(host, path)
        message, hint = "Windows does not find it, or a DLL that it opens while it starts", ""
        if lacking:
            named = [name if by == path else f"{name} (for {by})" for name, by in lacking[:3]]
            message = f"it needs {joined(named)}, which the loader does not find"
            hint = f"install the package with {lacking[0][0]}, or add its folder with os.add_dll_directory"
        if any(is_runtime(name) for name, _ in lacking):
            hint = REDISTRIBUTABLE
        return Reason("missing-dependency", message, hint)
    if code == _NO_FUNCTION:
        message = "a DLL that it needs lacks a function: another version of that is found first"
        with suppress(NotALibrary, OSError):
            kind = dict[str, tuple[str | int, ...]]
            for library, imported in host.extracted(path, imported_functions, kind).items():
                functions = [function for function in imported if isinstance(function, str)]
                target = resolved(host, path, library)
                defined = extract_symbols(host, target, functions) if target else set(functions)
                if absent := sorted(set(functions) - defined):
                    message = f"it needs {absent[0]} of {library}, and {target} does not have it"
                    break
        return Reason("missing-symbol", message)
    if code == _OTHER_FORMAT:
        with suppress(NotALibrary, OSError):
            machine, ours = pe_headers(host, path).machine, process_machine(host)
            if machine != ours:
                message = f"the file is for {machine}; this Python is {ours}"
                return Reason("wrong-architecture", message)
        return Reason("not-a-library", f"{path} is not a DLL for this Windows, or is damaged")
    if code == _INITIALISATION:
        message = "a DLL failed to initialise (WinError 1114): this one, or one that it needs"
        hint = f"an msvcp140.dll that is too old can cause this: {REDISTRIBUTABLE}"
        return Reason("dlopen-failed", message, hint)
    if code in _REFUSED:
        return Reason("dlopen-failed", f"Windows does not open it: WinError {code}")
    return None


def is_runtime(name: str) -> bool:
    """Return whether a DLL is part of Visual C++'s runtime."""
    return name.lower().startswith(("vcruntime", "msvcp", "concrt", "vcomp", "libomp140"))
