"""Which package installed a library; which packages need one, and whether the loader finds it by their RPATH.

A file's owner stands in Python's RECORD, conda's records or dpkg's lists. An RPATH (DT_RPATH) is searched
before LD_LIBRARY_PATH, a RUNPATH (DT_RUNPATH) after it; a file that has a RUNPATH has no RPATH for the
loader, neither its own nor one of those that loaded it.

Source: ld.so(8), "library search order"; the System V ABI (generic), "Shared Object Dependencies".
"""

import os
import posixpath
from collections.abc import Iterator
from contextlib import suppress

from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import (
    Distribution,
    conda_prefix,
    distributions,
    normalised,
    python_folders,
    record_bytes,
)
from mlbackends.libraries.elf import Elf
from mlbackends.libraries.file_image import NotALibrary
from mlbackends.libraries.headers import elf_headers

_DPKG = "/var/lib/dpkg"
_DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el"}
#: So many libraries of packages are read at most; an environment with every framework has 2,000.
MOST_FILES = 4000


def owner_of(host: Host, path: str) -> str:
    """Return "NAME VERSION" of the package that installed a file; "" where that is not known.

    Reads Python's RECORD files below the import path, conda's records below a conda prefix and dpkg's
    lists for the rest; those packages first whose name is like the file's.
    """
    # The innermost: the standard library's folder, which is on the path too, holds site-packages.
    for folder in sorted(python_folders(host), key=len, reverse=True):
        inside = path.startswith(folder + "/")
        if inside and (owner := _python_owner(host, folder, path[len(folder) + 1 :])):
            return owner
    own = str(host.python.get("prefix", ""))
    if own and path.startswith(own + "/"):
        # Some wheels put their libraries there; their RECORD says ../../../lib/libmkl_rt.so.2.
        for folder in python_folders(host):
            inside = folder.startswith(own + "/")
            if inside and (owner := _python_owner(host, folder, posixpath.relpath(path, folder))):
                return owner
    prefix = conda_prefix(host)
    if prefix and path.startswith(prefix + "/"):
        return _conda_owner(host, prefix, path[len(prefix) + 1 :])
    if path.startswith(("/usr/", "/lib")) and not path.startswith("/usr/local/"):
        spellings = {path.encode(), path.removeprefix("/usr").encode(), b"/usr" + path.encode()}
        for name in _dpkg_lists(host, os.path.basename(path)):
            lines = host.read_bytes(f"{_DPKG}/info/{name}").splitlines()
            if not spellings.isdisjoint(lines):
                return _dpkg_version(host, name.removesuffix(".list"))
    return ""


def _python_owner(host: Host, folder: str, relative: str) -> str:
    words = normalised(relative.partition(".libs/")[0])
    everything = (dist for dists in distributions(host).values() for dist in dists)
    own = [dist for dist in everything if dist.folder == folder]
    # Those first whose name is like the file's.
    own.sort(key=lambda dist: -sum(len(part) for part in dist.name.split("-") if part in words))
    line = f"{relative},".encode()
    for dist in own:
        data = record_bytes(host, dist)
        if data.startswith(line) or b"\n" + line in data:
            return f"{dist.name} {dist.version}"
    return ""


def _conda_owner(host: Host, prefix: str, relative: str) -> str:
    stem = normalised(os.path.basename(relative).split(".so")[0].removeprefix("lib"))
    quoted = f'"{relative}"'.encode()
    names = [name for name in host.listdir(f"{prefix}/conda-meta") if name.endswith(".json")]
    for name in sorted(names, key=lambda name: stem not in normalised(name)):
        if quoted in host.read_bytes(f"{prefix}/conda-meta/{name}", 16 << 20):
            package, version, _ = name.removesuffix(".json").rsplit("-", 2)
            return f"{package} {version}"
    return ""


def _dpkg_lists(host: Host, file_name: str) -> Iterator[str]:
    """Yield the lists that may name a library: first those that Debian's policy would give it.

    libgomp.so.1 is in libgomp1, libm4ri-0.0.so in libm4ri-0.0. Reading all the lists costs 20 ms
    and more, so a package that is not named after its library is not found.
    """
    stem, _, version = file_name.partition(".so")
    number = version.strip(".").split(".", 1)[0]
    dash = "-" if stem[-1:].isdigit() and number else ""
    usual = f"{stem}{dash}{number}".lower().replace("_", "-")
    architecture = _DEBIAN_ARCHITECTURES.get(host.machine, host.machine)
    likely = [f"{usual}:{architecture}.list", f"{usual}.list"]
    yield from likely
    word = stem.lower().removeprefix("lib")
    for name in host.listdir(f"{_DPKG}/info"):
        if name.endswith(".list") and word in name and name not in likely:
            yield name


@once_per_host
def _dpkg_version(host: Host, package: str) -> str:
    name, _, architecture = package.partition(":")
    status = _dpkg_status(host)
    opening = f"Package: {name}\n".encode()
    start = 0
    while (start := status.find(opening, start)) >= 0:
        end = status.find(b"\n\n", start)
        paragraph = status[start : end if end >= 0 else None].decode(errors="replace")
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        is_named = fields.get("Package") == name
        if not architecture or (is_named and fields.get("Architecture") in (architecture, "all")):
            return f"{name} {fields.get('Version', '')}".rstrip()
        start += len(opening)
    return name


@once_per_host
def _dpkg_status(host: Host) -> bytes:
    # As bytes: decoding a megabyte costs more than finding a line in it.
    return host.read_bytes(f"{_DPKG}/status", 32 << 20)


# ---- which packages need a library -------------------------------------------------------------


def is_found_by_rpath(host: Host, path: str, soname: str, owner: str) -> bool:
    """Tell whether all files of a package that need its own copy find it before LD_LIBRARY_PATH.

    owner: "NAME VERSION", as `owner_of` returns it; "" is a package without a list.
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
                folders = expanded(path, elf.runpath or elf.rpath)
                if not any(host.exists(f"{folder}/{soname}") for folder in folders):
                    packages = found.setdefault(soname, [])
                    packages += [dist.name] if dist.name not in packages else []
    return found


@once_per_host
def _libraries(host: Host, dist: Distribution) -> dict[str, Elf]:
    """Return the ELF headers of a package's shared libraries, extension modules among them, by path."""
    found: dict[str, Elf] = {}
    left = MOST_FILES
    for line in record_bytes(host, dist).splitlines():
        name = (
            line.rsplit(b",", 2)[0].strip(b'"').decode(errors="replace") if b".so" in line else ""
        )
        if name.endswith(".so") or ".so." in os.path.basename(name):
            path = posixpath.normpath(f"{dist.folder}/{name}")
            with suppress(NotALibrary, OSError):
                found[path] = elf_headers(host, path)
            left -= 1  # for those too that are not there
            if not left:
                break
    return found


def _dependents(files: dict[str, Elf], names: set[str]) -> list[str]:
    return [path for path, elf in files.items() if not names.isdisjoint(elf.needed)]


def _names(files: dict[str, Elf], path: str, folder: str, met: frozenset[str]) -> bool:
    """Tell whether a file's RPATH, or that of all that load it, leads to a folder."""
    elf = files[path]
    if elf.runpath or path in met:
        return False
    if folder in expanded(path, elf.rpath):
        return True
    loading = _dependents(files, {elf.soname, os.path.basename(path)} - {""})
    return bool(loading) and all(_names(files, one, folder, met | {path}) for one in loading)


def expanded(path: str, folders: tuple[str, ...]) -> list[str]:
    """Return the folders of a file's RPATH or RUNPATH as paths."""
    origin = os.path.dirname(path)
    return [
        posixpath.normpath(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
        for folder in folders
    ]
