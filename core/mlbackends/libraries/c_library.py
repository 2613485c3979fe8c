"""Which C library this machine's programs use: glibc or musl, and its version."""

import os

from mlbackends.host.host import Host
from mlbackends.libraries.elf import NotElf, version_definitions
from mlbackends.model.patterns import bytes_pattern, pattern

_GLIBC = ("/lib/*-linux-gnu*/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6", "/lib/libc.so.6")
_MUSL = "/lib/ld-musl-*.so.1"
_BANNER = bytes_pattern(rb"GNU C Library [^\n\0]{0,200}version ([0-9]+\.[0-9]+)")
_SYMBOL_VERSION = pattern(r"GLIBC_([0-9]{1,3})\.([0-9]{1,3})")
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
    found = [_SYMBOL_VERSION.fullmatch(name) for name in names]
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
