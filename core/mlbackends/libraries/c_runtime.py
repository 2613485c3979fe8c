"""The C and C++ libraries of this machine's programs, and a call of a C++ function without a compiler.

What was compiled by a newer GCC needs symbols that an older libstdc++ lacks, and the first copy that a
process opens serves the whole process.

Source: GCC, libstdc++ manual, "ABI Policy and Guidelines", the list of GLIBCXX versions.
"""

import os
import sys
from collections.abc import Iterable

from mlbackends.base.errors import NotALibrary
from mlbackends.base.patterns import bytes_pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.files import read_regular
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import libraries_named
from mlbackends.libraries.symbols import symbol_versions

_GLIBC = ("/lib/*-linux-gnu*/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6", "/lib/libc.so.6")
_MUSL = "/lib/ld-musl-*.so.1"
_BANNER = bytes_pattern(rb"GNU C Library [^\n\0]{0,200}version ([0-9]+\.[0-9]+)")
_ALPINE = "/lib/apk/db/installed"


def c_library(host: Host) -> tuple[str, str]:
    """Return "glibc", "musl" or "ucrt" with its version, "" for what is not known.

    A live machine has a call for it. On a recorded one the library's own banner has the version; without a
    banner it is at least the newest version whose symbols it defines.
    """
    running = host.system("libc")
    if isinstance(running, str) and running:
        name, _, version = running.partition(" ")
        return name, version
    if host.platform == "win32":
        from mlbackends.libraries.windows import file_version, system_folder

        version = file_version(host, f"{system_folder(host)}/ucrtbase.dll")
        return ("ucrt", version) if version else ("", "")
    if host.platform != "linux":
        return "", ""
    path = next((path for pattern in _GLIBC for path in host.glob(pattern)), "")
    if path:
        try:
            banner: str = host.extracted(path, glibc_version, str)
            versions = () if banner else symbol_versions(host, path)
        except (NotALibrary, OSError):
            return "glibc", ""
        return "glibc", banner or highest(versions, "GLIBC_")
    if host.glob(_MUSL):
        # musl prints its version only when it runs; Alpine's list of packages has it.
        for paragraph in host.read(_ALPINE).split("\n\n"):
            fields = dict(line.split(":", 1) for line in paragraph.splitlines() if ":" in line[:2])
            if fields.get("P") == "musl":
                return "musl", os.path.basename(fields.get("V", "")).split("-")[0]
        return "musl", ""
    return "", ""


def glibc_version(path: str) -> str:
    """Return the version in the banner of a libc.so.6, "" if it has none."""
    return b"".join(_BANNER.findall(read_regular(path))[:1]).decode()


def cxx_library(host: Host) -> tuple[str, str]:
    """Return libstdc++'s path and its highest symbol version, "3.4.30"; "" for what is not known."""
    if host.platform != "linux":
        return "", ""
    for library in libraries_named(host, "libstdcxx", "libstdc++"):
        if library.wins and library.soname == "libstdc++.so.6":
            try:
                return library.path, highest(symbol_versions(host, library.path), "GLIBCXX_")
            except (NotALibrary, OSError):
                return library.path, ""
    return "", ""


def highest(versions: Iterable[str], prefix: str) -> str:
    """Return the highest of versions such as GLIBCXX_3.4.11, without the prefix; "" if there is none."""
    numbers = max(
        (dotted_numbers(name.removeprefix(prefix)) for name in versions if name.startswith(prefix)),
        default=(),
    )
    return ".".join(map(str, numbers))


def returned_string(opened: CDLL, function: str) -> str | None:
    """Call a C++ function without parameters that returns a std::string; None if that is not possible.

    function: the mangled name without parameters, "_ZN2at18get_mkldnn_version". Such a result is written to
    an address that the caller passes: on x86-64, except on Windows, in the register of the first argument, so
    a pointer argument makes the same call. AArch64 uses a separate register, which ctypes cannot set. The
    string is leaked: the process is short-lived.
    Source: System V ABI for x86-64, 3.2.3; libstdc++'s two string layouts.
    """
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
        length = min(result[1], 1 << 16) if is_new else -1
        return ctypes.string_at(result[0], length).decode(errors="replace")
    return None
