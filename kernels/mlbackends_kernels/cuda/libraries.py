"""NVIDIA's libraries opened in this process: the copy that is mapped already, else the probes' first."""

import ctypes
import os
from functools import cache
from typing import TYPE_CHECKING

from mlbackends_kernels.cuda.errors import CudaError, CudaUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlbackends.host.host import Host
    from mlbackends.model.records import Finding, Library


class Opened:
    """An open library whose functions return a status.

    No argument types are declared, so each argument must be a ctypes object or a bytes object.
    """

    def __init__(self, handle: ctypes.CDLL, path: str, names: "Mapping[int, str]") -> None:
        self._handle = handle
        self.path = path
        self._names = names

    def __call__(self, function: str, *arguments: object) -> None:
        """Call a function. Raises CudaError where it returns another status than 0."""
        status = self.status(function, *arguments)
        if status:
            raise CudaError(function, status, self._name_of(status))

    def status(self, function: str, *arguments: object) -> int:
        """Call a function and return its status. Raises CudaUnavailable where it is missing."""
        entry = getattr(self._handle, function, None)
        if entry is None:
            raise CudaUnavailable(f"{self.path} has no function {function}: it is too old or new")
        entry.restype = ctypes.c_int
        return int(entry(*arguments))

    def has(self, function: str) -> bool:
        """Tell whether the library has a function."""
        return hasattr(self._handle, function)

    def _name_of(self, status: int) -> str:
        if self.has("cudaGetErrorName"):
            namer = self._handle.cudaGetErrorName
            namer.restype = ctypes.c_char_p
            if name := namer(ctypes.c_int(status)):
                return str(name.decode(errors="replace"))
        return self._names.get(status, "an unnamed status")


@cache
def open_library(probe: str, name: str, host: "Host | None" = None) -> Opened:
    """Open a library as its probe finds it, such as ("cublas", "cublasLt").

    name: that of the library's record, where the probe finds several. A copy that this process has
    mapped already is taken before all others: two copies of one library would not share handles.
    host: the machine to look at, ours unless given.
    Raises CudaUnavailable where none is found, or none opens.
    """
    from mlbackends.host.host import Host
    from mlbackends.libraries.c_calls import status_names
    from mlbackends.model import registry

    leaf = registry.load("mlbackends_probes", probe)
    found: Finding = leaf.find(host or Host())
    names = status_names(probe)
    candidates = [each for each in found.libraries if each.name == name and not each.reasons]
    for library in candidates:
        if (handle := _mapped(library.soname)) is not None:
            return Opened(handle, library.soname, names)
    tried = []
    for library in sorted(candidates, key=_newest_first):
        try:
            return Opened(ctypes.CDLL(library.path), library.path, names)
        except OSError as error:
            tried.append(str(error))
    reasons = [reason.message for reason in found.reasons]
    reasons += [reason.message for each in found.libraries for reason in each.reasons]
    message = "; ".join([*tried, *reasons]) or f"the probe {probe} found no copy"
    hint = f"`backends info {probe}` tells where it was looked for"
    raise CudaUnavailable(f"no {name} can be opened: {message}", hint)


def _newest_first(library: "Library") -> tuple[bool, bool, int]:
    """Order copies: what this process gets first, and of those the highest major version.

    A wheel's files may find their own copy by RPATH, before LD_LIBRARY_PATH; we have no RPATH.
    """
    major = library.soname.rpartition(".so.")[2].partition(".")[0]
    is_listed = library.found_by == "LD_LIBRARY_PATH"
    return not is_listed, not library.wins, -int(major) if major.isdecimal() else 0


def _mapped(soname: str) -> ctypes.CDLL | None:
    """Return the copy of a library that this process has open under a name, None where it has not."""
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    try:
        return ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
