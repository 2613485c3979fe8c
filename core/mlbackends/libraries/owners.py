"""Which package installed a library: by Python's RECORD, conda's records or dpkg's lists."""

import os
import posixpath
from collections.abc import Iterator

from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import (
    conda_prefix,
    distributions,
    normalised,
    python_folders,
    record_bytes,
)

_DPKG = "/var/lib/dpkg"
_DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el"}


def owner_of(host: Host, path: str) -> str:
    """Return "NAME VERSION" of the package that installed a file, "" if that is not known.

    Reads Python's RECORD files below the import path, conda's records below a conda prefix and dpkg's
    lists for the rest, beginning with packages whose name resembles the file's.
    """
    # The innermost first: the standard library's folder, which is on the path too, holds site-packages.
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
        relative = path[len(prefix) + 1 :]
        stem = normalised(os.path.basename(relative).split(".so")[0].removeprefix("lib"))
        quoted = f'"{relative}"'.encode()
        names = [name for name in host.listdir(f"{prefix}/conda-meta") if name.endswith(".json")]
        for name in sorted(names, key=lambda name: stem not in normalised(name)):
            if quoted in host.read_bytes(f"{prefix}/conda-meta/{name}", 16 << 20):
                package, version, _ = name.removesuffix(".json").rsplit("-", 2)
                return f"{package} {version}"
        return ""
    if path.startswith(("/usr/", "/lib")) and not path.startswith("/usr/local/"):
        spellings = {path.encode(), path.removeprefix("/usr").encode(), b"/usr" + path.encode()}
        for name in _dpkg_lists(host, os.path.basename(path)):
            lines = host.read_bytes(f"{_DPKG}/info/{name}").splitlines()
            if not spellings.isdisjoint(lines):
                package = name.removesuffix(".list")
                return f"{package.partition(':')[0]} {dpkg_version(host, package)}".rstrip()
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


def _dpkg_lists(host: Host, file_name: str) -> Iterator[str]:
    """Yield the lists that may name a library, beginning with those that Debian's policy asks for.

    libgomp.so.1 is in libgomp1, libm4ri-0.0.so in libm4ri-0.0. Reading all lists takes 20 ms and more, so a
    package that is not named after its library is not found.
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
def dpkg_version(host: Host, package: str) -> str:
    """Return the version of an installed package, NAME or NAME:ARCHITECTURE; "" if dpkg has none."""
    if not host.exists(f"{_DPKG}/info/{package}.list"):
        return ""
    name, _, architecture = package.partition(":")
    # As bytes: decoding a megabyte costs more than finding a line in it.
    status = host.read_bytes(f"{_DPKG}/status", 32 << 20)
    opening = f"Package: {name}\n".encode()
    start = 0
    while (start := status.find(opening, start)) >= 0:
        end = status.find(b"\n\n", start)
        paragraph = status[start : end if end >= 0 else None].decode(errors="replace")
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        is_there = fields.get("Package") == name and "deinstall" not in fields.get("Status", "")
        if is_there and (not architecture or fields.get("Architecture") in (architecture, "all")):
            return fields.get("Version", "")
        start += len(opening)
    return ""
