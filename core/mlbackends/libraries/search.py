"""Where libraries are: every copy, by every way that a program could come to it.

Finding never opens a library. The steps are small functions in the order in which a process that is
started from this environment would meet the copies; the first copy of a soname wins:

    mapped           the process that is inspected (--pid) has it mapped
    LD_PRELOAD       the loader takes it before all others
    LD_LIBRARY_PATH  searched before RUNPATH, so it shadows what wheels bring (DYLD_LIBRARY_PATH, PATH),
                     but not what all files of a wheel that need it find by RPATH
    site-packages    a wheel brought it; the packages of that environment open it by path
    conda            the active conda environment's lib folder
    python-prefix    the lib folder of the interpreter's prefix, where some wheels put theirs
    ld.so.cache      the loader's cache
    system-folder    a default folder of the loader, where there is no cache (musl, macOS, a broken image)
    NAME_HOME        the folder that a variable such as CUDA_HOME names
    well-known-folder a customary place such as /usr/local/cuda; nothing searches it by default

Source: ld.so(8), the order of RPATH, LD_LIBRARY_PATH, RUNPATH, cache and default folders.
"""

import os
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import conda_prefix, python_folders
from mlbackends.libraries.dependents import is_found_by_rpath
from mlbackends.libraries.elf import NotElf, extract, extract_symbols, read_elf
from mlbackends.libraries.loader_cache import cached_libraries
from mlbackends.libraries.owners import owner_of
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Library

_NAME = pattern(
    r"(?P<stem>.+?)"
    r"(?:-[0-9a-f]{6,40}(?:\.[\w.]*?)?)?"  # auditwheel's hash, which may stand before a version
    r"(?:\.so(?:\.[0-9]\w*)*|(?:\.[0-9][0-9.]*)?\.dylib|\.dll)$"
)

_WHY = {
    "mapped": "the process has it mapped",
    "LD_PRELOAD": "LD_PRELOAD names it, which comes before every search",
    "LD_LIBRARY_PATH": "LD_LIBRARY_PATH is searched before RUNPATH and the loader's cache",
    "DYLD_LIBRARY_PATH": "DYLD_LIBRARY_PATH is searched before everything else",
    "PATH": "PATH is where Windows looks for it",
    "site-packages": "the packages of this Python environment open it by path",
    "conda": "the conda environment's programs name its lib folder first",
    "python-prefix": "it lies in the lib folder of the interpreter's prefix",
    "ld.so.cache": "the loader's cache names it",
    "system-folder": "it lies in a default folder of the loader",
    "well-known-folder": "no other copy is there; only what is told of this folder finds it",
}

Place = tuple[str, str]
"""A path, and the step that found it."""


def stem_of(file_name: str) -> str:
    """Return a library file's name without hash and version; "" for what is no shared library.

    libcudnn.so.9 -> libcudnn; libgomp-24e2ab19.so.1.0.0 -> libgomp; libomp.5.dylib -> libomp.
    """
    match = _NAME.match(file_name)
    return match["stem"] if match else ""


def libraries_named(
    host: Host,
    name: str,
    *stems: str,
    homes: Sequence[str] = (),
    folders: Sequence[str] = (),
    wheels: Sequence[str] = (),
) -> list[Library]:
    """Return every copy of a library, in the order in which they would be met.

    stems: file names without version and extension ("libcudnn"; "cudnn64_9" for Windows).
    homes: variables that name a toolkit's folder; its lib, lib64, bin and targets/*/lib are searched.
    folders: customary folders, with patterns ("/usr/local/cuda*/lib64").
    wheels: folders below site-packages, with patterns, beyond those that every search covers
    (nvidia/*/lib, *.libs, *.dylibs, torch/lib).
    """
    wanted = frozenset(stems)
    everywhere = _everywhere(host)
    places = [
        place for _, place in sorted(hit for stem in wanted for hit in everywhere.get(stem, ()))
    ]
    for folder in (
        at
        for wheel in wheels
        for base in python_folders(host)
        for at in host.glob(f"{base}/{wheel}")
    ):
        places += _in_folder(host, folder, "site-packages", wanted)
    for variable in homes:
        if home := host.env(variable).rstrip("/"):
            inside = [f"{home}/lib64", f"{home}/lib", f"{home}/bin"]
            for folder in (*inside, *host.glob(f"{home}/targets/*/lib")):
                places += _in_folder(host, folder, variable, wanted)
    for customary in folders:
        for folder in host.glob(customary):
            places += _in_folder(host, folder, "well-known-folder", wanted)
    return _mark_winners(host, _distinct(host, name, places))


def searched(host: Host, homes: Sequence[str] = (), folders: Sequence[str] = ()) -> str:
    """Say in a phrase where `libraries_named` looks, for the reason of an absence."""
    places = []
    if python_folders(host):
        places.append("this Python's wheels")
    if conda_prefix(host):
        places.append("the conda environment")
    variable, listed = library_path(host)
    if any(_is_absolute(folder) and host.is_dir(folder) for folder in listed):
        places.append(variable)
    places.append("the loader's cache" if cached_libraries(host) else "the loader's folders")
    places += [f"{variable} ({host.env(variable)})" for variable in homes if host.env(variable)]
    places += [folder for folder in folders if "*" not in folder][:2]
    return ", ".join(places)


def absent(host: Host, what: str, homes: Sequence[str] = (), folders: Sequence[str] = ()) -> Reason:
    """Return the reason for a library that is nowhere, with the places that were searched."""
    return Reason("not-found", f"no {what} in {searched(host, homes, folders)}")


@once_per_host
def _everywhere(host: Host) -> dict[str, list[tuple[int, Place]]]:
    """Return every shared library in every general place by its stem, numbered in the steps' order.

    Made once a host: fifty probes search, and a system has a thousand libraries and more.
    """
    found: dict[str, list[tuple[int, Place]]] = {}
    for i, place in enumerate(_places(host)):
        found.setdefault(stem_of(os.path.basename(place[0])), []).append((i, place))
    return found


def _places(host: Host) -> Iterator[Place]:
    """Yield the libraries in every general place, in the order of the steps."""
    if host.pid is not None:
        for path in mapped_files(host):
            yield path, "mapped"
    for path in host.env("LD_PRELOAD").replace(":", " ").split():
        if path.startswith("/"):
            yield path, "LD_PRELOAD"
    variable, listed = library_path(host)
    for folder in listed:
        # An empty or relative one depends on the current folder; a report must not.
        if _is_absolute(folder):
            yield from _in_folder(host, folder.rstrip("/"), variable)
    for folder in _wheel_folders(host):
        yield from _in_folder(host, folder, "site-packages")
    conda = conda_prefix(host)
    if conda:
        yield from _in_folder(host, f"{conda}/lib", "conda")
    prefix = str(host.python.get("prefix", ""))
    if prefix and prefix not in ("/usr", conda):
        yield from _in_folder(host, f"{prefix}/lib", "python-prefix")
    for path in cached_libraries(host):
        yield path, "ld.so.cache"
    for folder in _system_folders(host):
        yield from _in_folder(host, folder, "system-folder")


def mapped_files(host: Host) -> list[str]:
    """Return the files that the inspected process has mapped as code, each once."""
    found: dict[str, None] = {}
    for line in host.read("/proc/self/maps", 32 << 20).splitlines():
        parts = line.split(None, 5)
        if len(parts) == 6 and parts[5].startswith("/"):
            found[parts[5].removesuffix(" (deleted)")] = None
    return list(found)


def library_path(host: Host) -> tuple[str, list[str]]:
    """Return the variable that lists folders for the loader, and its elements as they are written."""
    if host.platform == "win32":
        value, variable = host.env("PATH"), "PATH"
        return variable, value.split(";") if value else []
    variable = "DYLD_LIBRARY_PATH" if host.platform == "darwin" else "LD_LIBRARY_PATH"
    value = host.env(variable)
    if host.platform != "darwin":
        value = value.replace(";", ":")  # ld.so(8) takes either
    return variable, value.split(":") if value else []


def _is_absolute(folder: str) -> bool:
    return folder.startswith("/") or (len(folder) > 2 and folder[1] == ":")


def _wheel_folders(host: Host) -> Iterator[str]:
    for base in python_folders(host):
        names = host.listdir(base)
        inside = [name for name in names if name.endswith((".libs", ".dylibs"))]
        if "nvidia" in names:
            for part in host.listdir(f"{base}/nvidia"):
                inside += [f"nvidia/{part}/{lib}" for lib in ("lib", "lib64", "bin")]
        if "torch" in names:
            inside.append("torch/lib")
        yield from (f"{base}/{folder}" for folder in inside)


def _system_folders(host: Host) -> list[str]:
    """Return the loader's default folders where it has no cache."""
    if cached_libraries(host) or host.platform == "win32":
        return []
    listed = []
    for path in host.glob("/etc/ld-musl-*.path"):
        listed += host.read(path).replace(":", "\n").splitlines()
    usual = ["/lib", "/usr/local/lib", "/usr/lib", "/lib64", "/usr/lib64", "/opt/homebrew/lib"]
    return listed or [*usual, *host.glob("/usr/lib/*-linux-gnu*")]


def _in_folder(
    host: Host, folder: str, step: str, wanted: frozenset[str] = frozenset()
) -> list[Place]:
    names = [
        name for name in host.listdir(folder) if ".so" in name or ".dylib" in name or ".dll" in name
    ]
    return [
        (f"{folder}/{name}", step)
        for name in names
        if (stem := stem_of(name)) and (not wanted or stem in wanted)
    ]


def _distinct(host: Host, name: str, places: list[Place]) -> list[Library]:
    """One record for each file, however many names lead to it, under the first name met."""
    found: dict[str, Library] = {}
    mapped = set(mapped_files(host)) if host.pid is not None else None
    for path, step in places:
        real = host.realpath(path)
        if real in found:
            continue
        library = replace(_described(host, path, real, step), name=name, found_by=step)
        if mapped is not None:
            library = replace(library, used=path in mapped or real in mapped)
        found[real] = library
    return list(found.values())


@once_per_host
def _described(host: Host, path: str, real: str, step: str) -> Library:
    """Return a file's record with what its ELF headers say, and the package that owns it.

    Once a host: several probes ask for what is built into one library.
    """
    owner = owner_of(host, real) or owner_of(host, path)
    library = Library("", path, found_by=step, owner=owner, soname=os.path.basename(path))
    if not host.exists(real):
        return replace(library, reasons=(Reason("dangling-link", _gone(host, library, real)),))
    if "/stubs/" in path:
        message = f"{path} is for linking only; the driver brings the real one"
        return replace(library, reasons=(Reason("stub-library", message),))
    if host.platform != "linux":
        return library
    try:
        elf = extract(host, real, read_elf)
    except NotElf as error:
        return replace(library, reasons=(Reason("not-a-library", f"{path}: {error}"),))
    except OSError as error:
        message = f"{path}: {error.strerror}"
        return replace(library, reasons=(Reason("permission-denied", message),))
    library = replace(library, soname=elf.soname or library.soname)
    if host.machine and elf.machine != host.machine:
        message = f"the file is for {elf.machine}; this machine is {host.machine}"
        library = replace(library, reasons=(Reason("wrong-architecture", message),))
    return library


def _gone(host: Host, library: Library, real: str) -> str:
    """Say of a name that leads to no file where it leads, or else what names it."""
    path = library.path
    if host.is_link(path):
        if host.is_link(real):
            return f"{path} is a link that leads back to itself"
        return f"{path} is a link to {host.readlink(path)}, which is not there"
    if library.found_by == "mapped":
        return f"the process has {path} mapped, and the file was removed since"
    if real != path:
        return f"{path} leads to {real}, which is not there"
    by = {"ld.so.cache": "the loader's cache"}.get(library.found_by, library.found_by)
    return f"{path} is named by {by} and is not there"


def _mark_winners(host: Host, libraries: list[Library]) -> list[Library]:
    """Say of each soname which copy wins, and of the others what shadows them."""
    winners: dict[str, Library] = {}
    for library in libraries:
        if not library.reasons:
            winners.setdefault(library.soname, library)
    by_rpath = _found_by_rpath(host, libraries, winners)
    winners |= by_rpath
    marked = []
    for library in libraries:
        winner = winners.get(library.soname)
        kept = library.soname in by_rpath
        if winner is library:
            why = _WHY.get(library.found_by, f"{library.found_by} names its folder")
            if kept:
                why = f"what needs it in {_package_of(library)} finds it {_BY_RPATH}"
            library = replace(library, wins=True, wins_because=why)
        elif winner is not None and not library.reasons:
            how = f"{_package_of(winner)} finds it {_BY_RPATH}" if kept else winner.found_by
            library = replace(library, wins_because=f"{winner.path} is found first: {how}")
        marked.append(library)
    return marked


_BY_RPATH = "by RPATH, which is searched before LD_LIBRARY_PATH"


def _found_by_rpath(
    host: Host, libraries: list[Library], winners: dict[str, Library]
) -> dict[str, Library]:
    """Return the copies of wheels, by soname, that come before a copy in LD_LIBRARY_PATH."""
    listed = {one.soname for one in libraries if one.found_by == "LD_LIBRARY_PATH"}
    found: dict[str, Library] = {}
    for one in libraries:
        if one.soname not in listed or one.soname in found or one.reasons:
            continue
        before = winners[one.soname].found_by in ("LD_LIBRARY_PATH", "site-packages")
        is_of_wheel = one.found_by == "site-packages"
        if before and is_of_wheel and is_found_by_rpath(host, one.path, one.soname, one.owner):
            found[one.soname] = one
    return found


def _package_of(library: Library) -> str:
    return library.owner.partition(" ")[0] or "its package"


def inside(host: Host, name: str, carrier: str, symbols: Sequence[str]) -> list[Library]:
    """Return a record for each copy of another library that has this one built in.

    carrier: the stem of the other, such as "libtorch_cpu". symbols: the dynamic symbols of which one
    must be defined. No other file of the carrier is read.
    """
    found = []
    for library in libraries_named(host, name, carrier):
        try:
            is_inside = not library.reasons and bool(extract_symbols(host, library.path, symbols))
        except (NotElf, OSError):  # macOS and Windows have other formats; damage shows only here
            continue
        if is_inside:
            owner = library.owner.split(" ")[0] or carrier
            found.append(replace(library, found_by=f"inside {owner}", wins=False, wins_because=""))
    return found
