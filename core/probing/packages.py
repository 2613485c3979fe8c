"""What is installed in the Python environment that is looked at, from metadata alone.

Reads the names of `*.dist-info` and `*.egg-info` folders: 0.1 ms where `importlib.metadata` takes
40. Nothing is imported, and pip or uv are not asked, who may look at another interpreter.
"""

import os

from msgspec import Struct

from mlbackends.probing.host import Host


class Distribution(Struct, frozen=True):
    """One installed distribution.

    name: normalised (lower case, "-"). info: its metadata folder. folder: what that lies in.
    """

    name: str
    version: str
    info: str
    folder: str


def normalised(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    return name.lower().replace("_", "-").replace(".", "-")


def distributions(host: Host) -> dict[str, list[Distribution]]:
    """Return every installed distribution by normalised name, in the order of the import path.

    Two entries under one name are two installations; the first is the one that is imported.
    """
    cached = host.__dict__.get("_distributions")
    if cached is not None:
        return cached  # type: ignore[no-any-return]
    found: dict[str, list[Distribution]] = {}
    for folder in python_folders(host):
        for entry in host.listdir(folder):
            stem, extension = os.path.splitext(entry)
            if extension not in (".dist-info", ".egg-info") or stem.startswith("~"):
                continue
            name, _, version = stem.partition("-")
            version = version.split("-py", 1)[0]
            name = normalised(name)
            found.setdefault(name, []).append(
                Distribution(name, version, f"{folder}/{entry}", folder)
            )
    host.__dict__["_distributions"] = found
    return found


def distribution(host: Host, name: str) -> Distribution | None:
    """Return the installed distribution of that name that is imported, None where there is none."""
    found = distributions(host).get(normalised(name))
    return found[0] if found else None


def python_folders(host: Host) -> list[str]:
    """Return the folders that the interpreter imports from, in order, each once."""
    told = host.python.get("path")
    folders = [folder for folder in told if isinstance(folder, str)] if isinstance(told, list) else []
    return list(dict.fromkeys(folders))


def requirements(host: Host, dist: Distribution) -> list[str]:
    """Return the `Requires-Dist` lines of a distribution's metadata, as they are written."""
    return [line[15:].strip() for line in _headers(host, dist) if line.startswith("Requires-Dist: ")]


def _headers(host: Host, dist: Distribution) -> list[str]:
    name = "METADATA" if dist.info.endswith(".dist-info") else "PKG-INFO"
    return host.read(f"{dist.info}/{name}").split("\n\n", 1)[0].splitlines()


def record(host: Host, dist: Distribution) -> list[str]:
    """Return the paths in a distribution's RECORD, relative to the folder it lies in."""
    text = host.read(f"{dist.info}/RECORD", 32 << 20)
    paths = []
    for line in text.splitlines():
        if line.startswith('"'):
            paths.append(line[1:].split('"', 1)[0])
        elif line:
            paths.append(line.rsplit(",", 2)[0])
    return paths


def owner_of(host: Host, path: str) -> str:
    """Return "NAME VERSION" of the package that installed a file; "" where that cannot be told.

    Asks Python's RECORD files below the import path, conda's records below a conda prefix and dpkg's
    lists for the rest; those packages first whose name is like the file's.
    """
    for folder in python_folders(host):
        if path.startswith(folder + "/"):
            return _python_owner(host, folder, path[len(folder) + 1 :])
    prefix = conda_prefix(host)
    if prefix and path.startswith(prefix + "/"):
        return _conda_owner(host, prefix, path[len(prefix) + 1 :])
    if path.startswith(("/usr/", "/lib")) and not path.startswith("/usr/local/"):
        return _dpkg_owner(host, path)
    return ""


def conda_prefix(host: Host) -> str:
    """Return the prefix of the conda environment that is active or that Python runs in; "" without."""
    for prefix in (host.env("CONDA_PREFIX"), str(host.python.get("prefix", ""))):
        if prefix and host.is_dir(f"{prefix}/conda-meta"):
            return prefix
    return ""


def _python_owner(host: Host, folder: str, relative: str) -> str:
    words = normalised(relative.split(".libs/")[0])
    here = [dist for all_of in distributions(host).values() for dist in all_of if dist.folder == folder]

    def unlike(dist: Distribution) -> int:
        return -sum(len(word) for word in dist.name.split("-") if word in words)

    for dist in sorted(here, key=unlike):
        line = f"{relative},".encode()
        data = host.read_bytes(f"{dist.info}/RECORD", 32 << 20)
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
    lists = host.__dict__.get("_dpkg_lists")
    if lists is None:
        lists = [name for name in host.listdir("/var/lib/dpkg/info") if name.endswith(".list")]
        host.__dict__["_dpkg_lists"] = lists
    stem = os.path.basename(path).split(".so")[0].lower()
    # Reading all the lists costs 20 ms and more; a library's package is named after it.
    near = [name for name in lists if name.startswith(stem) or stem.removeprefix("lib") in name]
    spellings = {path.encode(), path.removeprefix("/usr").encode(), b"/usr" + path.encode()}
    for name in near:
        if spellings & set(host.read_bytes(f"/var/lib/dpkg/info/{name}").splitlines()):
            return _dpkg_version(host, name.removesuffix(".list"))
    return ""


def _dpkg_version(host: Host, package: str) -> str:
    name, _, architecture = package.partition(":")
    status = host.__dict__.get("_dpkg_status")
    if status is None:
        status = "\n" + host.read("/var/lib/dpkg/status", 32 << 20)
        host.__dict__["_dpkg_status"] = status
    start = 0
    while (start := status.find(f"\nPackage: {name}\n", start)) >= 0:
        paragraph = status[start:].partition("\n\n")[0]
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        if not architecture or fields.get("Architecture") == architecture:
            return f"{name} {fields.get('Version', '')}".rstrip()
        start += 1
    return name
