"""Which libstdc++ a process gets, and the newest symbols that it has.

What was compiled by a newer GCC asks for symbols that an older libstdc++ lacks, and the first copy that
a process opens serves all of it.

Source: GCC, libstdc++ manual, "ABI Policy and Guidelines", the list of GLIBCXX versions.
"""

from mlbackends.host.host import Host
from mlbackends.libraries.elf import NotElf, version_definitions
from mlbackends.libraries.search import libraries_named
from mlbackends.model.patterns import pattern

_SYMBOL_VERSION = pattern(r"GLIBCXX_([0-9]{1,3}(?:\.[0-9]{1,3}){1,2})")


def cxx_library(host: Host) -> tuple[str, str]:
    """Return its path and the highest of its symbol versions, "3.4.30"; "" for what cannot be told."""
    if host.platform != "linux":
        return "", ""
    for library in libraries_named(host, "libstdcxx", "libstdc++"):
        if library.wins and library.soname == "libstdc++.so.6":
            try:
                versions = version_definitions(host.real(host.realpath(library.path)))
            except (NotElf, OSError):
                return library.path, ""
            return library.path, highest(versions)
    return "", ""


def highest(versions: tuple[str, ...]) -> str:
    """Return the highest of GLIBCXX_3.4.11 and its like, without the name; "" where none is one."""
    found = [match[1] for name in versions if (match := _SYMBOL_VERSION.fullmatch(name))]
    return max(found, key=lambda text: [int(part) for part in text.split(".")], default="")
