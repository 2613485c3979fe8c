"""Which package takes which copy of a BLAS and of an OpenMP runtime, by the headers of its compiled files.

A package's extension modules name what they need; the loader finds that by RPATH, LD_LIBRARY_PATH, RUNPATH
and its cache, in this order, on Windows as `windows` has it. Where the headers are not to be had (macOS, old
recordings), a package takes what lies in its own folders, NAME.libs and NAME/.dylibs, where its wheel's
builder puts just that.

Sources: ld.so(8); auditwheel and delocate; scikit-learn, sklearn/utils/_cython_blas.pyx, which calls
scipy.linalg.cython_blas.
"""

import os
import posixpath
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from mlbackends.base.errors import joined
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import module_location
from mlbackends.libraries.file_image import NotALibrary
from mlbackends.libraries.headers import elf_headers, headers, macho_headers
from mlbackends.libraries.loader_cache import cached_libraries
from mlbackends.libraries.owners import expanded
from mlbackends.libraries.search import library_path, stem_of
from mlbackends.model.records import Library

#: libblas.so.3 leads to libopenblas.so.0; no front end leads to another one.
_DEEPEST = 3


@once_per_host
def consumers(host: Host) -> dict[str, tuple[str, ...]]:
    """Return the packages that take each file, by its path without links; files of their own among them."""
    packages = table("libraries/consumers")["packages"]
    used = {name: _used_by(host, package) for name, package in packages.items()}
    for name, package in packages.items():
        if used[name]:
            used[name] += [
                each
                for each in used.get(package.get("blas_of"), ())
                if "omp" not in os.path.basename(each)
            ]
    files = dict.fromkeys(file for name in used for file in used[name])
    return {file: tuple(name for name in used if file in used[name]) for file in files}


def marked(host: Host, libraries: list[Library]) -> list[Library]:
    """Say of the copies of one library who takes which, and let one win for each that takes one.

    Where no package takes any, those stay that the loader finds first. Of a process what it has mapped wins.
    """
    users = [
        consumers(host).get(host.realpath(library.path), ()) or _bringing(library)
        for library in libraries
    ]
    done = []
    for library, names in zip(libraries, users, strict=True):
        if host.pid is not None:
            is_mapped = library.used is True
            why = "the process has it mapped" if is_mapped else ""
            library = replace(library, wins=is_mapped, wins_because=why)
            names = names if is_mapped else ()
        elif names and not library.reasons:
            verb = "takes" if len(names) == 1 else "take"
            why = ": ".join([f"{joined(names)} {verb} it", *[library.wins_because] * library.wins])
            library = replace(library, wins=True, wins_because=why)
        elif any(users) and library.wins:
            nobody = f"none of {joined(tuple(table('libraries/consumers')['packages']))} takes it"
            why = f"{nobody}; a program that asks for {library.soname} gets it"
            library = replace(library, wins=False, wins_because=why)
        done.append(replace(library, used_by=names))
    return done


def _bringing(library: Library) -> tuple[str, ...]:
    """Return the package in whose NAME.libs a copy lies: auditwheel puts there what that needs itself."""
    is_own = library.owner and os.path.dirname(library.path).endswith((".libs", "/.dylibs"))
    return (library.owner.split(" ")[0],) if is_own and not library.reasons else ()


def _used_by(host: Host, package: dict[str, Any]) -> list[str]:
    """Return a package's file, and the BLAS and OpenMP files that it takes; all without links."""
    location = module_location(host, package["module"])
    if not location:
        return []
    path = next(
        filter(None, (_beginning(host, f"{location}/{name}") for name in package["files"])), ""
    )
    found = {host.realpath(path): None} if path else {}
    own = tuple(posixpath.normpath(f"{location}/{folder}") for folder in package["folders"])
    has_headers = False
    with suppress(NotALibrary, OSError):  # a recording may hold a file that needs nothing
        has_headers = bool(headers(host, path).needed)
    if has_headers:
        _follow(host, path, own, found, _DEEPEST)
        return list(found)
    for folder in own:
        for name in filter(_is_ours, host.listdir(folder)):
            found[host.realpath(f"{folder}/{name}")] = None
    return list(found)


def _beginning(host: Host, start: str) -> str:
    """Return the first path that begins so, "" where none does."""
    folder, name = os.path.split(start)
    names = (each for each in host.listdir(folder) if each.startswith(name))
    return next((f"{folder}/{each}" for each in names), "")


def _follow(host: Host, path: str, own: tuple[str, ...], found: dict[str, None], left: int) -> None:
    """Add what a file takes. own: where else what it needs was loaded before, as torch/__init__.py does."""
    for name, target in _targets(host, path, own):
        found[host.realpath(target)] = None
        if left and stem_of(name).startswith(tuple(table("libraries/consumers")["front_ends"])):
            with suppress(NotALibrary, OSError):
                _follow(host, host.realpath(target), (), found, left - 1)


def _targets(host: Host, path: str, own: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield what a file needs of ours, by the name that it asks for, with the file that it gets."""
    if host.platform == "win32":
        from mlbackends.libraries import windows

        for name in filter(_is_ours, windows.needs(host, path)):
            if target := windows.resolved(host, path, name, own):
                yield name.lower(), target
        return
    if host.platform == "darwin":
        yield from _targets_of_dyld(host, path)
        return
    elf = elf_headers(host, path)
    runpath = elf.runpath or (own if not elf.rpath else ())
    for name in filter(_is_ours, elf.needed):
        if target := _resolved(host, path, name, elf.rpath if not elf.runpath else (), runpath):
            yield name, target


def _targets_of_dyld(host: Host, path: str) -> Iterator[tuple[str, str]]:
    """Yield the same on macOS: by DYLD_LIBRARY_PATH, then by run paths or the whole name; see dyld(1)."""
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


def _resolved(
    host: Host, path: str, name: str, rpath: tuple[str, ...], runpath: tuple[str, ...]
) -> str:
    """Return the file that the loader takes for a name that another file needs; "" where it finds none."""
    # Intel's and LLVM's runtimes have the functions of GNU's too, and what is preloaded comes first.
    names = (name, "libiomp5", "libomp") if name.startswith("libgomp") else (name,)
    preloaded = host.env("LD_PRELOAD").replace(":", " ").split()
    if first := next((at for at in preloaded if os.path.basename(at).startswith(names)), ""):
        return first
    listed = [folder for folder in library_path(host)[1] if folder.startswith("/")]
    for folder in (*expanded(path, rpath), *listed, *expanded(path, runpath)):
        found = f"{folder}/{name}"
        if host.exists(found) and (folder not in listed or _is_loadable(host, found)):
            return found
    cached = _cached_by_name(host).get(name, "")
    usual = (f"{folder}/{name}" for folder in ("/lib64", "/usr/lib64", "/lib", "/usr/lib"))
    return cached or next(filter(host.exists, usual), "")


def _is_loadable(host: Host, path: str) -> bool:
    """Tell whether the loader stops at a file: at a broken one too, not at one for another processor."""
    try:
        return not host.machine or elf_headers(host, host.realpath(path)).machine == host.machine
    except (NotALibrary, OSError):
        return True


@once_per_host
def _cached_by_name(host: Host) -> dict[str, str]:
    return {path.rpartition("/")[2]: path for path in reversed(cached_libraries(host))}


def _is_ours(name: str) -> bool:
    return bool(stem_of(name)) and any(
        word in name.lower() for word in table("libraries/consumers")["names"]
    )
