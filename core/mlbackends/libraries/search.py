"""Where libraries are: every copy, by every way that a program could come to it.

Finding never opens a library. The steps are in the order in which a process that is started from this
environment would meet the copies; the first copy of a soname wins. search_steps.json has the steps and what
makes each of them win; last come variables such as CUDA_HOME, by their own names.

Source: ld.so(8), the order of RPATH, LD_LIBRARY_PATH, RUNPATH, cache and default folders.
"""

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache

from msgspec.structs import replace

from mlbackends.base.mounts import NotAnswering, is_silent
from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import conda_prefix, python_folders
from mlbackends.libraries.file_image import NotALibrary
from mlbackends.libraries.headers import elf_headers, extract_symbols, macho_headers, pe_headers
from mlbackends.libraries.loader_cache import cached_libraries
from mlbackends.libraries.owners import is_found_by_rpath, owner_of
from mlbackends.model.records import Library

_ENDING = pattern(r"\.(?:so(?:\.[0-9]\w*)*|(?:[0-9][0-9.]*\.)?dylib)$")
_NUMBERS = pattern(r"[_.-]?[0-9][0-9._-]*$")
_LINUX_NAME = pattern(r"\b(lib[\w-]+)(\.so(?:\.[0-9]+)*)?")
_HASH_LENGTHS = range(6, 41)
_HASH_DIGITS = frozenset("0123456789abcdef")

#: Where wheels of NVIDIA put libraries; the last two under Windows, to CUDA 12 and from 13.
_NVIDIA_FOLDERS = ("lib", "lib64", "bin", "bin/x86_64")

#: A library file's stem, its path, and the step that found it.
Place = tuple[str, str, str]


def stem_of(file_name: str) -> str:
    """Return a library file's name without hash and version; "" for what is no shared library.

    libcudnn.so.9 -> libcudnn; libgomp-24e2ab19.so.1.0.0 -> libgomp; libomp.5.dylib -> libomp.
    """
    stem, so, version = file_name.partition(".so")
    numbers = version[1:].split(".")
    is_plain = not version or (
        version[0] == "." and all(each[:1].isdecimal() and each.isalnum() for each in numbers)
    )
    # As most are named; the pattern takes longer to compile than all of them to split.
    if not (stem and so and is_plain):
        if file_name[-4:].lower() == ".dll":
            stem = file_name[:-4].partition("_v0.")[0]  # libopenblas_v0.3.27--3aa239bc...: scipy's
        elif not so and ".dylib" not in file_name:
            return ""
        elif ending := _ENDING.search(file_name, 1):
            stem = file_name[: ending.start()]
        else:
            return ""
    if "-" not in stem:
        return stem
    # auditwheel adds a hash to a name, which may stand before a version.
    name, _, mark = stem.rpartition("-")
    digits, _, rest = mark.partition(".")
    is_hash = len(digits) in _HASH_LENGTHS and _HASH_DIGITS.issuperset(digits)
    is_marked = name and is_hash and all(sign.isalnum() or sign in "._" for sign in rest)
    return name if is_marked else stem


def libraries_named(
    host: Host,
    name: str,
    *stems: str,
    homes: Sequence[str] = (),
    folders: Sequence[str] = (),
    wheels: Sequence[str] = (),
) -> list[Library]:
    """Return every copy of a library, in the order in which they would be met.

    stems: Linux' file names without version and extension: "libcudnn".
    homes: variables that name a toolkit's folder; its lib, lib64, bin and targets/*/lib are searched.
    folders: customary folders, with patterns ("/usr/local/cuda*/lib64").
    wheels: folders below site-packages, with patterns, beyond those that every search covers
    (nvidia/*/lib, *.libs, *.dylibs, torch/lib).
    """
    everywhere = _everywhere(host)
    keys = {key_of(host, stem) for stem in stems}
    places = [
        place for _, place in sorted(hit for stem in keys for hit in everywhere.get(stem, ()))
    ]
    special = [
        (at, "site-packages")
        for wheel in wheels
        for base in python_folders(host)
        for at in host.glob(f"{base}/{wheel}")
    ]
    for variable in homes:
        if home := host.folders(variable)[0] if host.env(variable) else "":
            inside = [f"{home}/{below}" for below in ("lib64", "lib", "bin", "bin/x64")]
            inside += host.glob(f"{home}/targets/*/lib")
            special += [(folder, variable) for folder in inside]
    special += [(at, "well-known-folder") for customary in folders for at in host.glob(customary)]
    for folder, step in special:
        places += [
            place for place in _in_folder(host, folder, step) if key_of(host, place[0]) in keys
        ]
    return _mark_winners(host, _distinct(host, name, places))


def key_of(host: Host, stem: str) -> str:
    """Return what a stem is compared by: on Windows Linux' name, without case and without numbers at its end.

    cublas64_12 and libcublas are one: names.json has what Windows calls a library.
    """
    if host.platform != "win32":
        return stem
    bare = _NUMBERS.sub("", stem.lower())
    return _names_of_windows().get(bare, bare)


@cache
def _names_of_windows() -> dict[str, str]:
    return {
        _NUMBERS.sub("", file.lower().removesuffix(".dll")): _NUMBERS.sub("", name.lower())
        for name, files in table("libraries/names").items()
        for file in files
    }


def native_names(host: Host, text: str) -> str:
    """Return a text about libraries by Linux' names with those that their files have on this system."""
    if host.platform == "linux":
        return text

    def native_name(match: re.Match[str]) -> str:
        if host.platform == "win32":
            return str(table("libraries/names").get(match[1], [match[1]])[0])
        return f"{match[1]}.dylib" if match[2] else match[0]

    return _LINUX_NAME.sub(native_name, text)


def searched(host: Host, homes: Sequence[str] = (), folders: Sequence[str] = ()) -> str:
    """Say in a phrase where `libraries_named` looks, for the reason of an absence."""
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
    return ", ".join(places)


def absent(
    host: Host, library: str, homes: Sequence[str] = (), folders: Sequence[str] = ()
) -> Reason:
    """Return the reason for a library that is nowhere, with the places that were searched."""
    library, places = native_names(host, library), searched(host, homes, folders)
    if host.pid is not None:
        return Reason("not-mapped", f"the process has mapped no {library}; nor is one in {places}")
    return Reason("not-found", f"no {library} in {places}")


def absent_but_on_linux(host: Host, library: str, homes: Sequence[str] = ()) -> Reason:
    """Return the same of what exists for Linux alone, which elsewhere does not apply."""
    if host.platform in ("win32", "darwin"):
        return Reason("not-this-platform", f"it is for Linux alone; this is {host.platform}")
    return absent(host, library, homes)


@once_per_host
def _everywhere(host: Host) -> dict[str, list[tuple[int, Place]]]:
    """Return every library in every general place by its stem, numbered in the steps' order: once a host."""
    found: dict[str, list[tuple[int, Place]]] = {}
    for i, place in enumerate(_places(host)):
        found.setdefault(key_of(host, place[0]), []).append((i, place))
    return found


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
        inside = [name for name in names if name.endswith((".libs", ".dylibs"))]
        if "nvidia" in names:
            for part in host.listdir(f"{base}/nvidia"):
                inside += [f"nvidia/{part}/{lib}" for lib in _NVIDIA_FOLDERS]
        if "torch" in names:
            inside.append("torch/lib")
        for folder in inside:
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


def library_path(host: Host) -> tuple[str, list[str]]:
    """Return the variable that lists folders for the loader, and its elements as they are written."""
    if host.platform == "win32":
        return "PATH", host.folders("PATH")
    variable = "DYLD_LIBRARY_PATH" if host.platform == "darwin" else "LD_LIBRARY_PATH"
    value = host.env(variable)
    if host.platform != "darwin":
        value = value.replace(";", ":")  # ld.so(8) takes either
    return variable, value.split(":") if value else []


def _is_absolute(folder: str) -> bool:
    return folder.startswith("/") or (len(folder) > 2 and folder[1] == ":")


def _in_folder(host: Host, folder: str, step: str) -> Iterator[Place]:
    for name in host.listdir(folder):
        if stem := stem_of(name):
            yield stem, f"{folder}/{name}", step


def _distinct(host: Host, name: str, places: list[Place]) -> list[Library]:
    """One record for each file, however many names lead to it, under the first name met."""
    found: dict[str, Library] = {}
    mapped = host.mapped_files()
    for _, path, step in places:
        real = host.realpath(path)
        if real not in found:
            library = replace(_described(host, path, real, step), name=name, found_by=step)
            if host.pid is not None:
                library = replace(library, used=path in mapped or real in mapped)
                if not mapped.get(path, mapped.get(real, True)) and not library.reasons:
                    message = f"the process has an older {path} mapped: it was replaced since"
                    library = replace(library, reasons=(Reason("replaced", message),))
            found[real] = library
    return list(found.values())


@once_per_host
def _described(host: Host, path: str, real: str, step: str) -> Library:
    """Return a file's record, with what its ELF headers say and the package that owns it: once a host."""
    owner = owner_of(host, real) or owner_of(host, path)
    library = Library("", path, found_by=step, owner=owner, soname=os.path.basename(path))
    code = message = ""
    if not host.exists(real) and is_silent(real):
        code, message = "not-answering", f"{path} is on a file system that does not answer"
    elif not host.exists(real):
        code, message = "dangling-link", _why_gone(host, library, real)
    elif "/stubs/" in path:
        code, message = (
            "stub-library",
            f"{path} is for linking only; the driver brings the real one",
        )
    elif host.platform in ("linux", "win32", "darwin"):
        try:
            library, machine, ours = _with_headers(host, library, real)
        except NotALibrary as error:
            code, message = "not-a-library", f"{path}: {error}"
        except OSError as error:
            is_late = isinstance(error, NotAnswering)
            code = "not-answering" if is_late else "permission-denied"
            message = f"{path}: {error.strerror}"
        else:
            if ours and machine != ours:
                code, noun = (
                    "wrong-architecture",
                    "Python" if host.platform == "win32" else "machine",
                )
                message = f"the file is for {machine}; this {noun} is {ours}"
    return replace(library, reasons=(Reason(code, message),)) if code else library


def _with_headers(host: Host, library: Library, path: str) -> tuple[Library, str, str]:
    """Return a library with its own name and version, its processor, and that of a process here."""
    if host.platform == "linux":
        elf = elf_headers(host, path)
        return replace(library, soname=elf.soname or library.soname), elf.machine, host.machine
    if host.platform == "darwin":
        return library, macho_headers(host, path).machine, host.machine
    from mlbackends.libraries import windows

    pe = pe_headers(host, path)
    library = replace(library, soname=library.soname.lower(), version=windows.version_of(pe))
    return library, pe.machine, windows.process_machine(host)


def _why_gone(host: Host, library: Library, real: str) -> str:
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
    whole = [library for library in libraries if not library.reasons]
    winners: dict[str, Library] = {}
    for one in whole:
        winners.setdefault(one.soname, one)
    # A wheel's copy that is found by RPATH comes before one in LD_LIBRARY_PATH.
    listed = {one.soname for one in libraries if one.found_by == "LD_LIBRARY_PATH"}
    by_rpath_names: set[str] = set()
    for one in whole:
        if one.soname in listed - by_rpath_names and one.found_by == "site-packages":
            before = winners[one.soname].found_by in ("LD_LIBRARY_PATH", "site-packages")
            if before and is_found_by_rpath(host, one.path, one.soname, one.owner):
                by_rpath_names.add(one.soname)
                winners[one.soname] = one
    by_rpath = "by RPATH, which is searched before LD_LIBRARY_PATH"
    marked = []
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
        marked.append(library)
    return marked


def inside(host: Host, name: str, carrier: str, symbols: Sequence[str]) -> list[Library]:
    """Return a record for each copy of another library that has this one built in.

    carrier: the stem of the other, such as "libtorch_cpu". symbols: the dynamic symbols of which one
    must be defined. No other file of the carrier is read.
    """
    found = []
    for library in libraries_named(host, name, carrier):
        try:
            is_inside = not library.reasons and bool(extract_symbols(host, library.path, symbols))
        except (
            NotALibrary,
            OSError,
        ):  # macOS and Windows have other formats; damage shows only here
            continue
        if is_inside:
            owner = library.owner.split(" ")[0] or carrier
            found.append(replace(library, found_by=f"inside {owner}", wins=False, wins_because=""))
    return found
