"""Which C library this machine's programs use: glibc or musl, and its version.

Which libstdc++ a process gets, and the newest symbols that it has.

What was compiled by a newer GCC asks for symbols that an older libstdc++ lacks, and the first copy that
a process opens serves all of it.

Source: GCC, libstdc++ manual, "ABI Policy and Guidelines", the list of GLIBCXX versions.

Call a C++ function that takes nothing and returns a std::string, without a compiler.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from mlbackends.libraries.elf import NotElf, version_definitions
from mlbackends.libraries.search import libraries_named
from mlbackends.model.patterns import bytes_pattern, pattern

_GLIBC = ("/lib/*-linux-gnu*/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6", "/lib/libc.so.6")
_MUSL = "/lib/ld-musl-*.so.1"
_BANNER = bytes_pattern(rb"GNU C Library [^\n\0]{0,200}version ([0-9]+\.[0-9]+)")
_GLIBC_SYMBOL = pattern(r"GLIBC_([0-9]{1,3})\.([0-9]{1,3})")
_ALPINE = "/lib/apk/db/installed"


def c_library(host: Host) -> tuple[str, str]:
    """Return "glibc" or "musl" with its version, "" for what cannot be told.

    A live machine is asked. In a folder the library's own banner tells; one without is at least the
    newest version that it defines symbols of.
    """
    told = host.system("libc")
    if isinstance(told, str) and told:
        name, _, version = told.partition(" ")
        return name, version
    if host.platform != "linux":
        return "", ""
    path = next((path for pattern in _GLIBC for path in host.glob(pattern)), "")
    if path:
        return "glibc", _glibc_version(host, path)
    if host.glob(_MUSL):
        return "musl", _musl_version(host)
    return "", ""


def _glibc_version(host: Host, path: str) -> str:
    banner = _BANNER.search(host.read_bytes(path))
    if banner:
        return banner[1].decode()
    try:
        names = version_definitions(host.real(path))
    except (NotElf, OSError):
        return ""
    found = [_GLIBC_SYMBOL.fullmatch(name) for name in names]
    versions = [(int(match[1]), int(match[2])) for match in found if match]
    return ".".join(map(str, max(versions))) if versions else ""


def _musl_version(host: Host) -> str:
    """Return what Alpine's package list says: musl itself tells only by being run."""
    paragraphs = host.read(_ALPINE).split("\n\n")
    for paragraph in paragraphs:
        fields = dict(line.split(":", 1) for line in paragraph.splitlines() if ":" in line[:2])
        if fields.get("P") == "musl":
            return os.path.basename(fields.get("V", "")).split("-")[0]
    return ""


_GLIBCXX = pattern(r"GLIBCXX_([0-9]{1,3}(?:\.[0-9]{1,3}){1,2})")


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
    found = [match[1] for name in versions if (match := _GLIBCXX.fullmatch(name))]
    return max(found, key=lambda text: [int(part) for part in text.split(".")], default="")


if TYPE_CHECKING:
    import ctypes

    from mlbackends.host.host import Host


def returned_string(opened: ctypes.CDLL, function: str) -> str | None:
    """Return what the function returns; None where the rules of such a call are not known.

    function: the name without parameters as it is mangled, "_ZN2at18get_mkldnn_version". Such a
    result is written to an address that the caller passes: on x86-64, outside Windows, in the
    register of the first argument, so a pointer argument is the same call. AArch64 has a register
    of its own for it, which ctypes cannot set. The string is leaked: the process is short-lived.
    Source: System V ABI for x86-64, 3.2.3; libstdc++'s two string layouts.
    """
    import ctypes

    if sys.platform != "linux" or os.uname().machine != "x86_64" or sys.maxsize < 2**32:
        return None
    for name, is_new in ((f"{function}B5cxx11Ev", True), (f"{function}Ev", False)):
        call = getattr(opened, name, None)
        if call is None:
            continue
        # New: address, length, 16 bytes. Old, before GCC 5: the address of text that ends in NUL.
        result = (ctypes.c_uint64 * 8)()
        call.restype = None
        call.argtypes = [ctypes.c_void_p]
        call(result)
        if not result[0]:
            return None
        length = min(result[1], 4096) if is_new else -1
        return ctypes.string_at(result[0], length).decode(errors="replace")
    return None
