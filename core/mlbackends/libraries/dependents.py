"""The packages of a Python environment that need a library, and whether the loader finds it by their RPATH.

An RPATH (DT_RPATH) is searched before LD_LIBRARY_PATH, a RUNPATH (DT_RUNPATH) after it; a file that has
a RUNPATH has no RPATH for the loader, neither its own nor one of those that loaded it.

Source: ld.so(8), "library search order"; the System V ABI (generic), "Shared Object Dependencies".
"""

import os
from contextlib import suppress

from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import Distribution, distributions, record_bytes
from mlbackends.libraries.elf import Elf, NotElf, extract, read_elf

MOST_FILES = 4000
"""So many libraries of packages are read at most; an environment with every framework has 2,000."""


def is_found_by_rpath(host: Host, path: str, soname: str, owner: str) -> bool:
    """Tell whether all files of a package that need its own copy find it before LD_LIBRARY_PATH.

    owner: "NAME VERSION", as `mlbackends.libraries.owners` returns it; "" is a package without a list.
    Of what auditwheel brings that is taken for granted where none of them can be read: it writes
    an RPATH always.
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
    return all(_names(files, one, folder, frozenset()) for one in dependents)


def needed_of_the_system(host: Host, sonames: frozenset[str]) -> dict[str, list[str]]:
    """Return the packages whose files need a library and have none of that name where they point to.

    By soname; the packages' names in the order of the import path.
    """
    found: dict[str, list[str]] = {}
    left = MOST_FILES
    for all_of in distributions(host).values():
        dist = all_of[0]
        for path, elf in _libraries(host, dist).items():
            left -= 1
            if left < 0:
                return found
            for soname in sonames.intersection(elf.needed):
                folders = _expanded(path, elf.runpath or elf.rpath)
                if not any(host.exists(f"{folder}/{soname}") for folder in folders):
                    packages = found.setdefault(soname, [])
                    packages += [dist.name] if dist.name not in packages else []
    return found


@once_per_host
def _libraries(host: Host, dist: Distribution) -> dict[str, Elf]:
    """Return the ELF headers of a package's shared libraries, extension modules among them, by path."""
    found: dict[str, Elf] = {}
    for line in record_bytes(host, dist).splitlines():
        name = (
            line.rsplit(b",", 2)[0].strip(b'"').decode(errors="replace") if b".so" in line else ""
        )
        if name.endswith(".so") or ".so." in os.path.basename(name):
            path = os.path.normpath(f"{dist.folder}/{name}")
            with suppress(NotElf, OSError):
                found[path] = extract(host, path, read_elf)
        if len(found) == MOST_FILES:
            break
    return found


def _dependents(files: dict[str, Elf], names: set[str]) -> list[str]:
    return [path for path, elf in files.items() if not names.isdisjoint(elf.needed)]


def _names(files: dict[str, Elf], path: str, folder: str, met: frozenset[str]) -> bool:
    """Tell whether a file's RPATH, or that of all that load it, leads to a folder."""
    elf = files[path]
    if elf.runpath or path in met:
        return False
    if folder in _expanded(path, elf.rpath):
        return True
    loading = _dependents(files, {elf.soname, os.path.basename(path)} - {""})
    return bool(loading) and all(_names(files, one, folder, met | {path}) for one in loading)


def _expanded(path: str, folders: tuple[str, ...]) -> list[str]:
    origin = os.path.dirname(path)
    return [
        os.path.normpath(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
        for folder in folders
    ]
