"""Where libraries are: every copy, found along every path by which a program could reach it.

Finding never opens a library. The steps are in the order in which a process started from this environment
would meet the copies; the first copy of a soname wins. search_steps.json lists the steps and why each of them
wins; variables such as CUDA_HOME come last, under their own names.

Source: ld.so(8), the order of RPATH, LD_LIBRARY_PATH, RUNPATH, cache and default folders.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary
from mlbackends.base.mounts import NotAnswering, is_silent
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import not_valid, steering
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import conda_prefix, python_folders
from mlbackends.libraries.consumers import is_found_by_rpath, marked
from mlbackends.libraries.elf import Elf, read_elf
from mlbackends.libraries.library_names import key_of, library_path, native_names, stem_of
from mlbackends.libraries.loader_cache import cached_libraries
from mlbackends.libraries.owners import owner_of
from mlbackends.libraries.symbols import extract_symbols
from mlbackends.model.records import Finding, Library

#: The folders of libraries in NVIDIA's wheels; the last two on Windows, up to CUDA 12 and from 13.
_NVIDIA_FOLDERS = ("lib", "lib64", "bin", "bin/x86_64")

#: A library file's stem, its path, and the step that found it.
Place = tuple[str, str, str]


class SharedLibrary(Struct, frozen=True):
    """A library as its probe declares it: its names, its folders, and what it is built into.

    stems, homes, wheels: as in `libraries_named`.
    folders: as there; "$MKLROOT" at the beginning is replaced by the value of that variable (the folder is
    left out if it is not set), and "{machine}" by the processor as the kernel spells it.
    symbols: functions of which at least one is defined by a torch that has the library built in.
    missing: what the reason of an absence names; the first stem by default.
    describe: adds facts to a copy.
    machines: the processors that it exists for, as the kernel spells them; any without. only_for: a sentence
    about that.
    """

    name: str
    stems: tuple[str, ...]
    homes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    missing: str = ""
    describe: Callable[[Host, Library], Library] | None = None
    machines: tuple[str, ...] = ()
    only_for: str = ""

    def find(self, host: Host) -> Finding:
        """Find every copy, the variables that steer it, and those that hold an invalid value."""
        folders = []
        for folder in self.folders:
            variable, slash, below = folder.partition("/")
            home = host.env(variable[1:]).rstrip("/")
            if home or not variable:
                folders.append(f"{home}{slash}{below}".replace("{machine}", host.machine))
        libraries = libraries_named(
            host, self.name, *self.stems, homes=self.homes, folders=folders, wheels=self.wheels
        )
        if self.describe:
            libraries = [self.describe(host, library) for library in libraries]
        is_for_this = not self.machines or host.machine in ("", *self.machines)
        if self.symbols and is_for_this:
            libraries += inside(host, self.name, "libtorch_cpu", self.symbols)
        libraries = marked(host, libraries)
        facts = steering(host, self.name.lower())
        if not libraries and not is_for_this:
            message = f"{self.only_for}; this is {host.machine}"
            return Finding(reasons=(Reason("not-this-platform", message),))
        if not libraries:
            # The system's own are among the loader's folders, which the reason names anyway.
            customary = [folder for folder in folders if not folder.startswith("/usr/")]
            reason = absent(host, self.missing or self.stems[0], self.homes, customary)
            return Finding(facts=facts, reasons=(reason,))
        return Finding(tuple(libraries), facts=facts, warnings=not_valid(host, self.name.lower()))


def with_file_version(host: Host, library: Library) -> Library:
    """Return a copy with the version in its file's full name: libze_loader.so.1.8.0."""
    match = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", host.realpath(library.path))
    return replace(library, version=match[1]) if match else library


def libraries_named(
    host: Host,
    name: str,
    *stems: str,
    homes: Sequence[str] = (),
    folders: Sequence[str] = (),
    wheels: Sequence[str] = (),
) -> list[Library]:
    """Return every copy of a library, in the order in which they would be met.

    stems: file names on Linux without version and ending: "libcudnn".
    homes: variables that name a toolkit's folder; its lib, lib64, bin and targets/*/lib are searched.
    folders: customary folders, with patterns ("/usr/local/cuda*/lib64").
    wheels: folders below site-packages, with patterns, beyond those that every search covers
    (nvidia/*/lib, *.libs, *.dylibs, torch/lib).
    """
    everywhere = _everywhere(host)
    keys = {key_of(host, stem) for stem in stems}
    places = [place for _, place in sorted(hit for stem in keys for hit in everywhere.get(stem, ()))]
    special = [
        (at, "site-packages")
        for wheel in wheels
        for base in python_folders(host)
        for at in host.glob(f"{base}/{wheel}")
    ]
    for variable in homes:
        if home := host.folders(variable)[0] if host.env(variable) else "":
            below = [f"{home}/{folder}" for folder in ("lib64", "lib", "bin", "bin/x64")]
            below += host.glob(f"{home}/targets/*/lib")
            special += [(folder, variable) for folder in below]
    special += [(at, "well-known-folder") for customary in folders for at in host.glob(customary)]
    for folder, step in special:
        places += [place for place in _in_folder(host, folder, step) if key_of(host, place[0]) in keys]
    # One record for each file, however many names lead to it, under the first name met.
    copies: dict[str, Library] = {}
    mapped = host.mapped_files()
    for _, path, step in places:
        real = host.realpath(path)
        if real in copies:
            continue
        library = replace(_described(host, path, real, step), name=name, found_by=step)
        if host.pid is not None:
            library = replace(library, used=path in mapped or real in mapped)
            if not mapped.get(path, mapped.get(real, True)) and not library.reasons:
                message = f"the process has an older {path} mapped: it was replaced since"
                library = replace(library, reasons=(Reason("replaced", message),))
        copies[real] = library
    return _mark_winners(host, list(copies.values()))


def absent(host: Host, library: str, homes: Sequence[str] = (), folders: Sequence[str] = ()) -> Reason:
    """Return the reason for a library that was not found, with the places that were searched."""
    places = []
    if python_folders(host):
        places.append("this Python's wheels")
    if conda_prefix(host):
        places.append("the conda environment")
    variable, listed = library_path(host)
    if host.platform == "win32":
        places += ["the program's folder", "System32"]
    if any(_is_absolute(folder) and host.is_dir(folder) for folder in listed):
        places.append(variable)
    if host.platform != "win32":
        places.append("the loader's cache" if cached_libraries(host) else "the loader's folders")
    places += [f"{variable} ({host.env(variable)})" for variable in homes if host.env(variable)]
    places += [folder for folder in folders if "*" not in folder][:2]
    library, searched = native_names(host, library), ", ".join(places)
    if host.pid is not None:
        return Reason("not-mapped", f"the process has mapped no {library}; nor is one in {searched}")
    return Reason("not-found", f"no {library} in {searched}")


@once_per_host
def _everywhere(host: Host) -> dict[str, list[tuple[int, Place]]]:
    """Return every library in every general place by its stem, numbered in the order of the steps."""
    places: dict[str, list[tuple[int, Place]]] = {}
    for i, place in enumerate(_places(host)):
        places.setdefault(key_of(host, place[0]), []).append((i, place))
    return places


def _places(host: Host) -> Iterator[Place]:
    """Yield the libraries in every general place, in the order of the steps."""
    files = [(path, "mapped") for path in host.mapped_files()]
    preloaded = host.env("LD_PRELOAD").replace(":", " ").split()
    files += [(path, "LD_PRELOAD") for path in preloaded if path.startswith("/")]
    for path, step in files:
        yield stem_of(os.path.basename(path)), path, step
    is_windows = host.platform == "win32"
    variable, listed = library_path(host)
    for folder in () if is_windows else listed:
        # An empty or relative one depends on the current folder; a report must not.
        if _is_absolute(folder):
            yield from _in_folder(host, folder.rstrip("/"), variable)
    for base in python_folders(host):
        names = host.listdir(base)
        below = [name for name in names if name.endswith((".libs", ".dylibs"))]
        if "nvidia" in names:
            for part in host.listdir(f"{base}/nvidia"):
                below += [f"nvidia/{part}/{lib}" for lib in _NVIDIA_FOLDERS]
        if "torch" in names:
            below.append("torch/lib")
        for folder in below:
            yield from _in_folder(host, f"{base}/{folder}", "site-packages")
    if is_windows:
        from mlbackends.libraries import windows

        for folder, step in windows.folders(host):
            yield from _in_folder(host, folder, step)
        return
    conda = conda_prefix(host)
    if conda:
        yield from _in_folder(host, f"{conda}/lib", "conda")
    prefix = str(host.python.get("prefix", ""))
    if prefix and prefix not in ("/usr", conda):
        yield from _in_folder(host, f"{prefix}/lib", "python-prefix")
    cached = cached_libraries(host)
    for path in cached:
        yield stem_of(path.rpartition("/")[2]), path, "ld.so.cache"
    if not cached:
        listed = []
        for path in host.glob("/etc/ld-musl-*.path"):
            listed += host.read(path).replace(":", "\n").splitlines()
        usual = ["/lib", "/usr/local/lib", "/usr/lib", "/lib64", "/usr/lib64", "/opt/homebrew/lib"]
        for folder in listed or [*usual, *host.glob("/usr/lib/*-linux-gnu*")]:
            yield from _in_folder(host, folder, "system-folder")


def _is_absolute(folder: str) -> bool:
    return folder.startswith("/") or (len(folder) > 2 and folder[1] == ":")


def _in_folder(host: Host, folder: str, step: str) -> Iterator[Place]:
    for name in host.listdir(folder):
        if stem := stem_of(name):
            yield stem, f"{folder}/{name}", step


@once_per_host
def _described(host: Host, path: str, real: str, step: str) -> Library:
    """Return a file's record, with what its headers state and the package that owns it."""
    owner = owner_of(host, real) or owner_of(host, path)
    library = Library("", path, found_by=step, owner=owner, soname=os.path.basename(path))
    code = message = ""
    if not host.exists(real) and is_silent(real):
        code, message = "not-answering", f"{path} is on a file system that does not answer"
    elif not host.exists(real):
        code, message = "dangling-link", _why_gone(host, library, real)
    elif "/stubs/" in path:
        code = "stub-library"
        message = f"{path} is for linking only; the driver installs the real one"
    elif host.platform in ("linux", "win32", "darwin"):
        process, noun = host.machine, "machine"
        try:
            if host.platform == "linux":
                elf = host.extracted(real, read_elf, Elf)
                machine, library = (
                    elf.machine,
                    replace(library, soname=elf.soname or library.soname),
                )
            elif host.platform == "darwin":
                from mlbackends.libraries.macho import macho_headers

                machine = macho_headers(host, real).machine
            else:
                from mlbackends.libraries import windows
                from mlbackends.libraries.pe import pe_headers

                dll = pe_headers(host, real)
                machine, version = dll.machine, windows.version_of(dll)
                library = replace(library, soname=library.soname.lower(), version=version)
                process, noun = windows.process_machine(host), "Python"
        except NotALibrary as error:
            code, message = "not-a-library", f"{path}: {error}"
        except OSError as error:
            code = "not-answering" if isinstance(error, NotAnswering) else "permission-denied"
            message = f"{path}: {error.strerror}"
        else:
            if process and machine != process:
                code = "wrong-architecture"
                message = f"the file is for {machine}; this {noun} is {process}"
    return replace(library, reasons=(Reason(code, message),)) if code else library


def _why_gone(host: Host, library: Library, real: str) -> str:
    """Return where a name leads that leads to no file, or else what names it."""
    path = library.path
    if host.is_link(path):
        if host.is_link(real):
            return f"{path} is a link that leads back to itself"
        return f"{path} is a link to {host.readlink(path)}, which does not exist"
    if library.found_by == "mapped":
        return f"the process has {path} mapped, and the file was removed since"
    if real != path:
        return f"{path} leads to {real}, which does not exist"
    source = "the loader's cache" if library.found_by == "ld.so.cache" else library.found_by
    return f"{path} is named by {source} and does not exist"


def _mark_winners(host: Host, libraries: list[Library]) -> list[Library]:
    """Mark which copy of each soname wins, and what shadows the others."""
    whole = [library for library in libraries if not library.reasons]
    winners: dict[str, Library] = {}
    for library in whole:
        winners.setdefault(library.soname, library)
    # A wheel's copy that is found by RPATH comes before one in LD_LIBRARY_PATH.
    listed = {library.soname for library in libraries if library.found_by == "LD_LIBRARY_PATH"}
    by_rpath_names: set[str] = set()
    for library in whole:
        if library.soname in listed - by_rpath_names and library.found_by == "site-packages":
            before = winners[library.soname].found_by in ("LD_LIBRARY_PATH", "site-packages")
            if before and is_found_by_rpath(host, library.path, library.soname, library.owner):
                by_rpath_names.add(library.soname)
                winners[library.soname] = library
    by_rpath = "by RPATH, which is searched before LD_LIBRARY_PATH"
    done = []
    for library in libraries:
        winner = winners.get(library.soname)
        package = (winner.owner if winner else "").partition(" ")[0] or "its package"
        is_by_rpath = library.soname in by_rpath_names
        if winner is library:
            why = table("libraries/search_steps").get(
                library.found_by, f"{library.found_by} names its folder"
            )
            if is_by_rpath:
                why = f"what needs it in {package} finds it {by_rpath}"
            library = replace(library, wins=True, wins_because=why)
        elif winner is not None and not library.reasons:
            how = f"{package} finds it {by_rpath}" if is_by_rpath else winner.found_by
            library = replace(library, wins_because=f"{winner.path} is found first: {how}")
        done.append(library)
    return done


def inside(host: Host, name: str, carrier: str, symbols: Sequence[str]) -> list[Library]:
    """Return a record for each copy of another library that has this one built in.

    carrier: the stem of the other, such as "libtorch_cpu". symbols: the dynamic symbols of which at least
    one must be defined. No other file of the carrier is read.
    """
    copies = []
    for library in libraries_named(host, name, carrier):
        try:
            is_inside = not library.reasons and bool(extract_symbols(host, library.path, symbols))
        except (NotALibrary, OSError):  # macOS and Windows have other formats; damage shows here
            continue
        if is_inside:
            owner = library.owner.split(" ")[0] or carrier
            copies.append(replace(library, found_by=f"inside {owner}", wins=False, wins_because=""))
    return copies
