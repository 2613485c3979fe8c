"""Which package installed a file: Python's RECORD, conda's records, dpkg's lists, asked in that order."""

import os
from collections.abc import Iterator

from mlbackends.host.host import Host
from mlbackends.host.python.packages import (
    Distribution,
    conda_prefix,
    distributions,
    normalised,
    python_folders,
    record_bytes,
)


def owner_of(host: Host, path: str) -> str:
    """Return "NAME VERSION" of the package that installed a file; "" where that cannot be told.

    Asks Python's RECORD files below the import path, conda's records below a conda prefix and dpkg's
    lists for the rest; those packages first whose name is like the file's.
    """
    # The innermost: the standard library's folder, which is on the path too, holds site-packages.
    for folder in sorted(python_folders(host), key=len, reverse=True):
        if path.startswith(folder + "/"):
            return _python_owner(host, folder, path[len(folder) + 1 :])
    own = str(host.python.get("prefix", ""))
    if own and path.startswith(own + "/"):
        # Some wheels put their libraries there; their RECORD says ../../../lib/libmkl_rt.so.2.
        for folder in python_folders(host):
            inside = folder.startswith(own + "/")
            if inside and (owner := _python_owner(host, folder, os.path.relpath(path, folder))):
                return owner
    prefix = conda_prefix(host)
    if prefix and path.startswith(prefix + "/"):
        return _conda_owner(host, prefix, path[len(prefix) + 1 :])
    if path.startswith(("/usr/", "/lib")) and not path.startswith("/usr/local/"):
        return _dpkg_owner(host, path)
    return ""


def _python_owner(host: Host, folder: str, relative: str) -> str:
    words = normalised(relative.partition(".libs/")[0])
    here = [
        dist for all_of in distributions(host).values() for dist in all_of if dist.folder == folder
    ]

    def unlike(dist: Distribution) -> int:
        return -sum(len(word) for word in dist.name.split("-") if word in words)

    for dist in sorted(here, key=unlike):
        line = f"{relative},".encode()
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


def _dpkg_owner(host: Host, path: str) -> str:
    spellings = {path.encode(), path.removeprefix("/usr").encode(), b"/usr" + path.encode()}
    for name in _dpkg_lists(host, os.path.basename(path)):
        lines = host.read_bytes(f"/var/lib/dpkg/info/{name}").splitlines()
        if not spellings.isdisjoint(lines):
            return _dpkg_version(host, name.removesuffix(".list"))
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
    tried = [f"{usual}:{architecture}.list", f"{usual}.list"]
    yield from tried
    word = stem.lower().removeprefix("lib")
    for name in host.listdir("/var/lib/dpkg/info"):
        if name.endswith(".list") and word in name and name not in tried:
            yield name


_DPKG_STATUS = "/var/lib/dpkg/status"
_DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el"}


def _dpkg_version(host: Host, package: str) -> str:
    name, _, architecture = package.partition(":")
    # As bytes: decoding a megabyte costs more than finding a line in it.
    status: bytes | None = host.__dict__.get("_dpkg_status")
    if status is None:
        status = host.__dict__["_dpkg_status"] = host.read_bytes(_DPKG_STATUS, 32 << 20)
    opening = f"Package: {name}\n".encode()
    start = 0
    while (start := status.find(opening, start)) >= 0:
        end = status.find(b"\n\n", start)
        paragraph = status[start : end if end >= 0 else None].decode(errors="replace")
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        if fields.get("Package") == name and fields.get("Architecture") in (architecture, "all"):
            return f"{name} {fields.get('Version', '')}".rstrip()
        if not architecture:
            return f"{name} {fields.get('Version', '')}".rstrip()
        start += len(opening)
    return name
