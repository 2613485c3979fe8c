"""Which package uses which copy of a library, from the headers of its compiled files.

A package's extension modules name what they need. The loader finds that by RPATH (DT_RPATH),
LD_LIBRARY_PATH, RUNPATH (DT_RUNPATH) and its cache, in this order. For a file that has a RUNPATH the loader
ignores RPATHs, its own and those of the files that loaded it. `windows` has the order of Windows. If the
headers cannot be read (macOS, old recordings), a package uses the files in its own folders, NAME.libs and
NAME/.dylibs, where the builder of its wheel puts exactly those.

Sources: ld.so(8), "library search order"; the System V ABI (generic), "Shared Object Dependencies";
auditwheel and delocate; scikit-learn, sklearn/utils/_cython_blas.pyx, which calls scipy.linalg.cython_blas.
"""

import os
import posixpath
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary, joined
from mlbackends.base.patterns import bytes_pattern
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import (
    Distribution,
    distributions,
    listed_files,
    module_location,
    record_bytes,
)
from mlbackends.libraries.elf import Elf, elf_headers
from mlbackends.libraries.library_names import library_path, stem_of
from mlbackends.libraries.loader_cache import cached_libraries
from mlbackends.libraries.symbols import headers
from mlbackends.model.records import Library

#: libblas.so.3 leads to libopenblas.so.0; no front end leads to another one.
_DEEPEST = 3
#: The most libraries of packages that are read; an environment with every framework has 2,000.
MOST_FILES = 4000
_SHARED = bytes_pattern(rb'\.so(?=[.,"\s]|\Z)[^\n]*')


# ---- BLAS and OpenMP runtimes, by package ---------------------------------------------------------


@once_per_host
def consumers(host: Host) -> dict[str, tuple[str, ...]]:
    """Return the packages that use each file, by its path without links; their own files are included."""
    packages = table("libraries/consumers")["packages"]
    used = {name: _used_by(host, package) for name, package in packages.items()}
    for name, package in packages.items():
        if used[name]:
            used[name] += [
                file for file in used.get(package.get("blas_of"), ()) if "omp" not in os.path.basename(file)
            ]
    files = dict.fromkeys(file for name in used for file in used[name])
    return {file: tuple(name for name in used if file in used[name]) for file in files}


def marked(host: Host, libraries: list[Library]) -> list[Library]:
    """Mark the copies of one library with the packages that use them, and which copies win.

    A copy wins if a package uses it. If no package uses any, those win that the loader finds first. In a
    process, what it has mapped wins.
    """
    users = []
    for library in libraries:
        names = consumers(host).get(host.realpath(library.path), ())
        # auditwheel puts into NAME.libs what the package NAME itself needs.
        is_own = library.owner and os.path.dirname(library.path).endswith((".libs", "/.dylibs"))
        if not names and is_own and not library.reasons:
            names = (library.owner.split(" ")[0],)
        users.append(names)
    done = []
    for library, names in zip(libraries, users, strict=True):
        if host.pid is not None:
            is_mapped = library.used is True
            why = "the process has it mapped" if is_mapped else ""
            library = replace(library, wins=is_mapped, wins_because=why)
            names = names if is_mapped else ()
        elif names and not library.reasons:
            verb = "uses" if len(names) == 1 else "use"
            why = ": ".join([f"{joined(names)} {verb} it", *[library.wins_because] * library.wins])
            library = replace(library, wins=True, wins_because=why)
        elif any(users) and library.wins:
            nobody = f"none of {joined(tuple(table('libraries/consumers')['packages']))} uses it"
            why = f"{nobody}; a program that asks for {library.soname} gets it"
            library = replace(library, wins=False, wins_because=why)
        done.append(replace(library, used_by=names))
    return done


def _used_by(host: Host, package: dict[str, Any]) -> list[str]:
    """Return a package's file, and the BLAS and OpenMP files that it uses; all without links."""
    location = module_location(host, package["module"])
    if not location:
        return []
    path = ""
    for folder, _, start in (f"{location}/{name}".rpartition("/") for name in package["files"]):
        names = (name for name in host.listdir(folder) if name.startswith(start))
        path = path or next((f"{folder}/{name}" for name in names), "")
    files = {host.realpath(path): None} if path else {}
    own = tuple(posixpath.normpath(f"{location}/{folder}") for folder in package["folders"])
    has_headers = False
    with suppress(NotALibrary, OSError):  # a recording may hold a file that needs nothing
        has_headers = bool(headers(host, path).needed)
    if has_headers:
        _follow(host, path, own, files, _DEEPEST)
        return list(files)
    for folder in own:
        for name in filter(_is_ours, host.listdir(folder)):
            files[host.realpath(f"{folder}/{name}")] = None
    return list(files)


def _follow(host: Host, path: str, own: tuple[str, ...], files: dict[str, None], left: int) -> None:
    """Add the files that a file uses.

    own: folders from which what it needs was loaded before, as torch/__init__.py does.
    """
    for name, target in _targets(host, path, own):
        files[host.realpath(target)] = None
        if left and stem_of(name).startswith(tuple(table("libraries/consumers")["front_ends"])):
            with suppress(NotALibrary, OSError):
                _follow(host, host.realpath(target), (), files, left - 1)


def _targets(host: Host, path: str, own: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the name of each BLAS or OpenMP library that a file needs, and the file that it gets."""
    if host.platform == "win32":
        from mlbackends.libraries import windows

        for name in filter(_is_ours, windows.needs(host, path)):
            if target := windows.resolved(host, path, name, own):
                yield name.lower(), target
        return
    # DYLD_LIBRARY_PATH, then run paths or the whole name; see dyld(1)
    if host.platform == "darwin":
        from mlbackends.libraries.macho import macho_headers

        image = macho_headers(host, path)
        listed = library_path(host)[1]
        for name in image.needed:
            start, _, rest = name.partition("/")
            leaf = posixpath.basename(name)
            whole = [f"{folder}/{rest}" for folder in image.rpath] if start == "@rpath" else [name]
            folders = [place.replace("@loader_path", os.path.dirname(path)) for place in whole]
            places = [*(f"{folder}/{leaf}" for folder in listed), *map(posixpath.normpath, folders)]
            if _is_ours(leaf) and (target := next(filter(host.exists, places), "")):
                yield leaf, target
        return
    elf = elf_headers(host, path)
    runpath = elf.runpath or (own if not elf.rpath else ())
    for name in filter(_is_ours, elf.needed):
        if target := _resolved(host, path, name, elf.rpath if not elf.runpath else (), runpath):
            yield name, target


def _resolved(host: Host, path: str, name: str, rpath: tuple[str, ...], runpath: tuple[str, ...]) -> str:
    """Return the file that the loader opens for a name that another file needs, "" if it finds none."""
    # Intel's and LLVM's runtimes have the functions of GNU's too, and what is preloaded comes first.
    names = (name, "libiomp5", "libomp") if name.startswith("libgomp") else (name,)
    preloaded = host.env("LD_PRELOAD").replace(":", " ").split()
    if first := next((at for at in preloaded if os.path.basename(at).startswith(names)), ""):
        return first
    listed = [folder for folder in library_path(host)[1] if folder.startswith("/")]
    for folder in (*expanded(path, rpath), *listed, *expanded(path, runpath)):
        file = f"{folder}/{name}"
        if not host.exists(file):
            continue
        machine = ""
        if folder in listed and host.machine:
            with suppress(NotALibrary, OSError):
                machine = elf_headers(host, host.realpath(file)).machine
        # The loader stops at a broken file, and passes over one for another processor.
        if machine in ("", host.machine):
            return file
    cached = (file for file in cached_libraries(host) if file.rpartition("/")[2] == name)
    usual = (f"{folder}/{name}" for folder in ("/lib64", "/usr/lib64", "/lib", "/usr/lib"))
    return next(cached, "") or next(filter(host.exists, usual), "")


def _is_ours(name: str) -> bool:
    """Return whether a file is a BLAS or an OpenMP runtime by its name."""
    return bool(stem_of(name)) and any(word in name.lower() for word in table("libraries/consumers")["names"])


# ---- any library, by RPATH ------------------------------------------------------------------------


def is_found_by_rpath(host: Host, path: str, soname: str, owner: str) -> bool:
    """Return whether all files of a package that need its own copy find it before LD_LIBRARY_PATH.

    owner: "NAME VERSION", as `owner_of` returns it; "" is a package without a list.
    This is assumed of what auditwheel adds if none of the files can be read: it always writes an RPATH.
    """
    files = {
        file: elf
        for dist in distributions(host).get(owner.partition(" ")[0], ())
        if path.startswith(f"{dist.folder}/")
        for file, elf in _libraries(host, dist).items()
    }
    folder = os.path.dirname(path)
    dependents = _dependents(files, {soname, os.path.basename(path)})
    if not dependents:
        return folder.endswith(".libs")
    return all(_leads_to(files, file, folder, frozenset()) for file in dependents)


def needed_of_the_system(host: Host, sonames: frozenset[str]) -> dict[str, list[str]]:
    """Return by soname the packages whose files need a library that is not in any folder they point to.

    The packages' names are in the order of the import path.
    """
    needing: dict[str, list[str]] = {}
    left = MOST_FILES
    for dists in distributions(host).values():
        dist = dists[0]
        for path, elf in _libraries(host, dist).items():
            left -= 1
            if left < 0:
                return needing
            for soname in sonames.intersection(elf.needed):
                folders = expanded(path, elf.runpath or elf.rpath)
                if not any(host.exists(f"{folder}/{soname}") for folder in folders):
                    packages = needing.setdefault(soname, [])
                    packages += [dist.name] if dist.name not in packages else []
    return needing


@once_per_host
def _libraries(host: Host, dist: Distribution) -> dict[str, Elf]:
    """Return the ELF headers of a package's shared libraries and extension modules, by path."""
    files: dict[str, Elf] = {}
    left = MOST_FILES
    for name in listed_files(record_bytes(host, dist), _SHARED):
        if name.endswith(".so") or ".so." in os.path.basename(name):
            path = posixpath.normpath(f"{dist.folder}/{name}")
            with suppress(NotALibrary, OSError):
                files[path] = elf_headers(host, path)
            left -= 1  # for files too that do not exist
            if not left:
                break
    return files


def _dependents(files: dict[str, Elf], names: set[str]) -> list[str]:
    return [path for path, elf in files.items() if not names.isdisjoint(elf.needed)]


def _leads_to(files: dict[str, Elf], path: str, folder: str, met: frozenset[str]) -> bool:
    """Return whether a file's RPATH, or that of all that load it, leads to a folder."""
    elf = files[path]
    if elf.runpath or path in met:
        return False
    if folder in expanded(path, elf.rpath):
        return True
    loading = _dependents(files, {elf.soname, os.path.basename(path)} - {""})
    return bool(loading) and all(_leads_to(files, file, folder, met | {path}) for file in loading)


def expanded(path: str, folders: tuple[str, ...]) -> list[str]:
    """Return the folders of a file's RPATH or RUNPATH as paths."""
    origin = os.path.dirname(path)
    return [
        posixpath.normpath(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
        for folder in folders
    ]
