"""The backend libraries that a process has mapped, with their versions from files; nothing is opened.

mapped.json has the file names of each library, under the name of its probe. A library that is built into
another, such as oneDNN in torch, has no file. Source: proc_pid_maps(5).
"""

import os
import re
import time
from contextlib import suppress
from functools import cache

from mlbackends.base import registry
from mlbackends.base.patterns import bytes_pattern
from mlbackends.base.tables import table
from mlbackends.base.writable import clean
from mlbackends.host.host import Host
from mlbackends.libraries.cuda.libraries import CudaLibrary, package_version, version_in_file_name
from mlbackends.libraries.library_names import stem_of
from mlbackends.libraries.owners import owner_of
from mlbackends.model.records import Library
from mlbackends.model.usage import MappedLibrary

#: Libraries that start a thread for each CPU that they detect.
POOLS = frozenset({"openmp", "openblas", "mkl", "blis", "tbb", "torch", "tensorflow", "onednn"})

#: A file's device and number, and its path.
_CODE = bytes_pattern(rb"^\S+ r.xp \S+ (\S+ \d+) +(/\S.*\.so\b.*)$", re.MULTILINE)
_DELETED = " (deleted)"
_SITE = re.compile(r"(.*/(?:site|dist)-packages)/")
#: How long the contents of an environment are cached.
_FRESH_SECONDS = 60.0


class Mapped:
    """Reads the mapped libraries of processes; versions and owners are looked up once per file."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._hosts: dict[tuple[int, str], Host] = {}
        self._read_at = 0.0
        self._names: dict[tuple[str, str, bytes], tuple[str, str]] = {}

    def libraries(self, pid: int) -> tuple[MappedLibrary, ...]:
        """Return a process's backend libraries, frameworks first.

        Raises OSError if the process has ended or belongs to another user.
        """
        with open(f"{self._proc}/{pid}/maps", "rb", buffering=0) as file:
            data = file.readall()
        libraries: dict[tuple[str, ...], MappedLibrary] = {}
        files = {os.fsdecode(path): file for file, path in _CODE.findall(data)}
        for path, file in sorted(files.items(), key=lambda item: len(item[0])):
            real = path.removesuffix(_DELETED)
            folder, file_name = os.path.split(real)
            name, shown_by = _library_of(file_name)
            # cuDNN and MKL are many files in one folder; two OpenMP runtimes in one folder are two libraries.
            key = (name, folder, shown_by if name == "openmp" else "")
            if name and key not in libraries:
                version, owner = self._lookup(pid, name, path, file) if path == real else ("", "")
                libraries[key] = MappedLibrary(name, clean(real), version, owner, path != real)
        order = [*table("usage/mapped")]
        return tuple(sorted(libraries.values(), key=lambda each: (order.index(each.name), each.path)))

    def _lookup(self, pid: int, name: str, path: str, file: bytes) -> tuple[str, str]:
        """Return a file's version and owner."""
        space = ours = ""
        with suppress(OSError):
            ours = os.readlink("/proc/self/ns/mnt")
            space = os.readlink(f"{self._proc}/{pid}/ns/mnt")
        if (space, path, file) not in self._names:
            if time.monotonic() > self._read_at + _FRESH_SECONDS:
                self._hosts.clear()
                self._read_at = time.monotonic()
            site = match[1] if (match := _SITE.match(path)) else ""
            prefix = "" if site or path.startswith(("/usr/lib", "/lib")) else path.partition("/lib/")[0]
            key = (pid if space != ours else 0, site or prefix)
            if key not in self._hosts:  # a host with only the environment of that file
                self._hosts[key] = Host(
                    pid=key[0] or None,
                    python={"path": [site] if site else []},
                    environment={"CONDA_PREFIX": prefix},
                )
            # A file's version and the package that installed it.
            host = self._hosts[key]
            soname = os.path.basename(path)
            found_by = "site-packages" if _SITE.match(path) else ""
            library = Library(name, path, soname, owner=owner_of(host, path), found_by=found_by)
            declared = getattr(registry.load(registry.PROBES, name), "LIBRARY", None)
            if isinstance(declared, CudaLibrary):
                library = declared.versioned(host, library)[0]
            elif describe := getattr(declared, "describe", None):
                library = describe(host, library)
            version = library.version
            if name.startswith("cuda_"):
                version = version_in_file_name(os.path.basename(host.realpath(path)))
            # A package of that name is the library itself; others include a copy.
            for word in filter(None, (name, name.replace("_", "-"), stem_of(soname).lower())):
                version = version or package_version(library, word)
            self._names[space, path, file] = clean(version), clean(library.owner)
        return self._names[space, path, file]


@cache
def _library_of(file_name: str) -> tuple[str, str]:
    """Return the library of a file name, and the part of the name that identifies it; "" for others."""
    for name, files in table("usage/mapped").items():
        if match := re.match(f"(?:{files})(?![a-z])", file_name):
            return name, match[0]
    return "", ""
