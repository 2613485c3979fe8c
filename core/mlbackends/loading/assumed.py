"""Libraries of another machine that are not read: they are assumed to be there, with what is theirs by name.

A versioned symbol is linked from a library, which the file that lacks it names; of the others the beginnings
of their names show it, or the library of that name on this machine. Sources: PyPA, auditwheel's policy for
manylinux_2_17 and newer; CUDA Driver API and NVML reference.
"""

import re
from collections.abc import Collection, KeysView
from contextlib import suppress

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host
from mlbackends.loading.dynamic_symbols import DynamicSymbols, Symbol
from mlbackends.loading.linker import ObjectFile, cached_paths, object_file

#: The libraries that wheels may need of a system, and how their unversioned symbols begin.
SYSTEM = {
    "libc.so.6": "", "libm.so.6": "", "libdl.so.2": "", "librt.so.1": "", "libpthread.so.0": "",
    "libutil.so.1": "", "libnsl.so.1": "", "libresolv.so.2": "", "libanl.so.1": "", "libmvec.so.1": "",
    "libgcc_s.so.1": "_Unwind_", "libstdc++.so.6": "_ZNSt|_ZSt", "libatomic.so.1": "__atomic_",
    "libz.so.1": "deflate|inflate|compress|uncompress|crc32|adler32|gz|zlib|zError", "libexpat.so.1": "XML_",
    "libX11.so.6": "X|_X", "libXext.so.6": "X", "libXrender.so.1": "XRender", "libICE.so.6": "Ice",
    "libSM.so.6": "Sm", "libGL.so.1": "gl", "libglib-2.0.so.0": "g_", "libgobject-2.0.so.0": "g_",
    "libgthread-2.0.so.0": "g_", "ld-linux-aarch64.so.1": "_dl_|__tls_",
    "ld-linux-x86-64.so.2": "_dl_|__tls_",
}  # fmt: skip
#: Those of NVIDIA's driver.
DRIVER = {
    "libcuda.so.1": "cu[A-Z]", "libnvidia-ml.so.1": "nvml", "libnvcuvid.so.1": "cuvid",
    "libnvidia-encode.so.1": "NvEncode",
}  # fmt: skip
#: What an interpreter defines.
PYTHON = "_?Py"


class _Symbols(DynamicSymbols):
    def __init__(self, name: str, beginnings: str, like: DynamicSymbols | None) -> None:
        self.lacking, self.needs, self.versions = {}, {}, frozenset()
        self._own, self._begins, self._like = name, re.compile((beginnings or "(?!)").encode()), like

    def may_define(self, hashes: KeysView[int]) -> Collection[int]:
        """Return all, as what they are of is not known."""
        return hashes

    def defines(self, symbol: Symbol) -> bool:
        """Return whether a symbol is linked from this library, or is one of it by its name."""
        if symbol.file:
            return symbol.file == self._own
        return bool(self._begins.match(symbol.name)) or bool(self._like and self._like.defines(symbol))


class Assumed(ObjectFile):
    """A library that is assumed to be on a machine. here: one that may have a file of that name."""

    def __init__(self, name: str, beginnings: str, machine: str, here: Host | None = None) -> None:
        self.machine, self.bits, self.soname, self.needed = machine, 64, name, ()
        like = None
        if here and (paths := cached_paths(here, here.machine).get(name)):
            with suppress(NotALibrary, OSError):
                like = object_file(here, here.realpath(paths[0])).symbols
        self.symbols = _Symbols(name, beginnings, like)
