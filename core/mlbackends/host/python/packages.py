"""What is installed in the inspected Python environment, from metadata alone.

Only the names of `*.dist-info` and `*.egg-info` folders are read: 0.1 ms where `importlib.metadata` takes 40.
Nothing is imported, and pip and uv are not run: they may belong to another interpreter. Source: PyPA,
"Recording the Direct URL Origin of installed distributions"; setuptools, "Development mode".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.host.host import Host, once_per_host

#: No RECORD is larger than this, in bytes; torch's has a million.
_RECORD_LIMIT = 32 << 20
_CREDENTIALS = pattern(r"^(\w[\w+.-]*://)[^/@]*@")
_FINDERS_LIMIT = 200
#: So many files of an editable install are looked at.
_MOST_SOURCES = 20_000
_INSTALLED = bytes_pattern(rb"\.(?:so|pyd|dylib)[,.]")
#: What leads from an editable install to its sources.
_EDITABLE = bytes_pattern(rb'(?:\.pth|_finder\.py)(?=[,"])[^\n]*')
#: Characters of metadata that show how its lines end: one is its first line.
_LINE_ENDS = 200


class Distribution(Struct, frozen=True):
    """One installed distribution.

    name: normalised (lower case, "-"). info: its metadata folder. folder: the one that contains it. Without a
    metadata folder it stands for the one file that its name is the path of.
    """

    name: str
    version: str
    info: str
    folder: str


def normalised(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


@once_per_host
def distributions(host: Host) -> dict[str, list[Distribution]]:
    """Return every installed distribution by normalised name, in the order of the import path.

    Two entries under one name are two installations; the first is the one that is imported. An egg-info
    next to a dist-info of the same name, as in some Debian packages, is the same installation.
    """
    installed: dict[str, list[Distribution]] = {}
    for folder in python_folders(host):
        for entry in host.listdir(folder):
            stem, _, extension = entry.rpartition(".")
            # pip renames what it is removing to "~umpy-1.0", and once did so to "-umpy-1.0".
            if extension not in ("dist-info", "egg-info") or stem[:1] in ("~", "-", ""):
                continue
            name, _, version = stem.partition("-")
            name, version = normalised(name), version.split("-py", 1)[0]
            dist = Distribution(name, version, f"{folder}/{entry}", folder)
            installed.setdefault(name, []).append(dist)
    for name, dists in installed.items():
        if len(dists) > 1:
            modern = {dist.folder for dist in dists if dist.info.endswith(".dist-info")}
            installed[name] = [
                dist for dist in dists if dist.info.endswith(".dist-info") or dist.folder not in modern
            ]
    return installed


def distribution(host: Host, name: str) -> Distribution | None:
    """Return the installed distribution of that name that is imported, None if there is none."""
    installed = distributions(host).get(normalised(name))
    return installed[0] if installed else None


@once_per_host
def python_folders(host: Host) -> list[str]:
    """Return the folders that the interpreter imports from, in order, each once."""
    folders = host.python.get("path", ())  # another interpreter may return anything
    return list(dict.fromkeys(folder for folder in folders if isinstance(folder, str)))


@once_per_host
def python_release(host: Host) -> str:
    """Return what compiled files are made for, "3.13", or "3.13t" for the Python without its lock."""
    release = ".".join(str(host.python.get("version", "3")).split(".")[:2])
    places = (str(host.python.get("executable", "")), *python_folders(host))
    return release + "t" * any(f"python{release}t" in place for place in places)


@once_per_host
def _entries(host: Host, folder: str) -> frozenset[str]:
    return frozenset(host.listdir(folder))


# ---- metadata of one ------------------------------------------------------------------------------


@once_per_host
def record_bytes(host: Host, dist: Distribution) -> bytes:
    """Return a distribution's RECORD unchanged, b"" without one."""
    if not dist.info:
        return dist.name.removeprefix(f"{dist.folder}/").encode()
    return host.read_bytes(f"{dist.info}/RECORD", _RECORD_LIMIT)


def listed_files(record: bytes, ending: re.Pattern[bytes]) -> Iterator[str]:
    """Yield the files of a RECORD whose names may end so. ending: matches to the end of the line.

    Few lines name libraries: searching for the ending takes a tenth of matching each line.
    """
    for rest in ending.finditer(record):
        start = record.rfind(b"\n", 0, rest.start()) + 1
        yield record[start : rest.end()].rsplit(b",", 2)[0].strip(b'"').decode(errors="replace")


@once_per_host
def contents(host: Host, dist: Distribution) -> tuple[str, bytes]:
    """Return the folder of a distribution's files, and its RECORD.

    Of an editable install those are the folder of its sources, and a list of the files that are there; where
    there is no RECORD, the files below the package's names.
    """
    folder, names = _sources(host, dist)
    if not folder:
        return dist.folder, record_bytes(host, dist)
    tops = {name.partition(".")[0] for name in names}
    files = [entry for entry in host.listdir(folder) if entry.partition(".")[0] in tops]
    for _, file in zip(range(_MOST_SOURCES), files, strict=False):  # grows as it is walked
        inside = host.listdir(f"{folder}/{file}") if "." not in file.rpartition("/")[2] else ()
        files += [f"{file}/{entry}" for entry in inside if entry != "__pycache__"]
    return folder, "".join(f"{file},,\n" for file in files).encode()


def _sources(host: Host, dist: Distribution) -> tuple[str, list[str]]:
    """Return the folder of an install whose RECORD does not have its files, else "", and the names in it.

    The finder of setuptools lists them, or a .pth has the folder; the metadata behind an egg-link is in it.
    Where compiled files were installed all the same, as by scikit-build-core, those count.
    """
    record = record_bytes(host, dist)
    names = host.read(f"{dist.info}/top_level.txt").split() if b".pth," in record or not record else []
    if not record and dist.info:  # behind an egg-link, or as Debian installs: what has the package's names
        there = [entry.partition(".")[0] for entry in host.listdir(dist.folder)]
        names = names or [name for name in there if normalised(name) == dist.name]
        return dist.folder * bool(names), names
    for file in () if _INSTALLED.search(record) else listed_files(record, _EDITABLE):
        lines = host.read(f"{dist.folder}/{file}", 1 << 20).splitlines() if "/" not in file else []
        for line in lines:
            mapped = re.findall(r"""['"]([\w.]+)['"]: (['"])(.+?)\2""", line)
            if file.startswith("__editable__") and line.startswith("MAPPING") and mapped:
                name, _, path = mapped[0]
                folder = path.removesuffix(".py").removesuffix(f"/{name.replace('.', '/')}")
                return folder, [name for name, _, path in mapped if path.startswith(f"{folder}/")]
            if file.endswith(".pth") and line.startswith("/") and host.is_dir(line):
                return line, names or _packages_in(host, line, dist)
    return "", []


def _packages_in(host: Host, folder: str, dist: Distribution) -> list[str]:
    """Return the packages in a folder of sources: that of the distribution's name, else all but tests."""
    there = host.listdir(folder)
    named = [entry for entry in there if normalised(entry.partition(".")[0]) == dist.name]
    others = (entry for entry in there if entry not in ("tests", "test", "docs", "examples", "benchmarks"))
    return named or [entry for entry in others if host.exists(f"{folder}/{entry}/__init__.py")]


@once_per_host
def metadata(host: Host, dist: Distribution) -> str:
    """Return the headers of a distribution's metadata, with the requires.txt of an egg-info as headers.

    Source: CPython, importlib.metadata, Distribution.requires.
    """
    is_modern = dist.info.endswith(".dist-info")
    text = host.read(f"{dist.info}/{'METADATA' if is_modern else 'PKG-INFO'}")
    text = text or ("" if is_modern else host.read(dist.info))
    if "\r\n" in text[:_LINE_ENDS]:
        text = text.replace("\r\n", "\n")
    headers = text.partition("\n\n")[0]
    if is_modern or "\nRequires-Dist:" in headers:
        return headers
    condition, lines = "", [headers]
    for line in map(str.strip, host.read(f"{dist.info}/requires.txt").splitlines()):
        if line.startswith("["):
            extra, _, marker = line.strip("[]").partition(":")
            parts = [f"({marker})"] * bool(marker) + [f'extra == "{extra}"'] * bool(extra)
            condition = f" ; {' and '.join(parts)}" * bool(parts)
        elif line and not line.startswith("#"):
            lines.append(f"Requires-Dist: {line}{condition}")
    return "\n".join(lines)


def version_of(host: Host, dist: Distribution) -> str:
    """Return the version of a distribution; that in its metadata where its folder's name has none."""
    header = "" if dist.version else metadata(host, dist).partition("\nVersion:")[2]
    return dist.version or header.partition("\n")[0].strip()


def origin_of(host: Host, dist: Distribution) -> dict[str, Any]:
    """Return `url` and `editable` of a distribution that was not installed from an index; {} for others."""
    text = host.read_bytes(f"{dist.info}/direct_url.json", 1 << 16)
    if text:
        try:
            source = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return {}
        folder, url = source.get("dir_info"), source.get("url")
        origin: dict[str, Any] = {}
        if isinstance(url, str):
            origin["url"] = _CREDENTIALS.sub(r"\1", url)
        if isinstance(folder, dict) and folder.get("editable") is True:
            origin["editable"] = True
        return origin
    links = {f"{dist.name}.egg-link", f"{dist.name.replace('-', '_')}.egg-link"}
    if any(links & _entries(host, folder) for folder in python_folders(host)):
        return {"url": f"file://{dist.folder}", "editable": True}
    return {}


def owners_of(facts: Mapping[str, Any]) -> list[str]:
    """Return the distributions of a probe's package, or of its packages."""
    return [name for name in (facts.get("distribution"), *facts.get("packages", ())) if name]


# ---- the folders of modules and environments ---------------------------------------------------------


def module_location(host: Host, module: str, *, require_init: bool = True) -> str:
    """Return the folder or file that `import module` uses; "" if there is none.

    module: with "/" for the dots, such as "cuda/tile". require_init: whether a folder counts only with an
    __init__.py in it. Without one it may be left over from an uninstall.
    """
    bare, top = "", module.partition("/")[0]
    for folder in python_folders(host):
        names = _entries(host, folder)
        if top in names and host.is_dir(f"{folder}/{module}"):
            inside = host.listdir(f"{folder}/{module}")
            if any(name.startswith("__init__.") for name in inside):
                return f"{folder}/{module}"
            if not require_init and any(name != "__pycache__" for name in inside):
                bare = bare or f"{folder}/{module}"
        elif f"{module}.py" in names:
            return f"{folder}/{module}.py"
    return bare


def editable_location(host: Host, module: str) -> str:
    """Return the location to which the finder of an editable install maps a module."""
    finders = [
        f"{folder}/{name}"
        for folder in python_folders(host)
        for name in _entries(host, folder)
        if name.startswith("__editable__") and name.endswith("_finder.py")
    ]
    mapping = re.compile(rf"""['"]{re.escape(module)}['"]\s*:\s*(['"])(.+?)\1""")
    for path in sorted(finders)[:_FINDERS_LIMIT]:
        match = mapping.search(host.read(path, 1 << 20))
        if match and host.exists(match[2]):
            return match[2]
    return ""


def is_user_site(host: Host, folder: str) -> bool:
    """Return whether a folder is the user's own site folder."""
    base = host.env("PYTHONUSERBASE")
    if base and folder.startswith(f"{base.rstrip('/')}/"):
        return True
    home = host.env("HOME").rstrip("/")
    if not home:
        return "/.local/lib/python" in folder
    return folder.startswith((f"{home}/.local/lib/", f"{home}/Library/Python/"))


@once_per_host
def conda_prefix(host: Host) -> str:
    """Return the prefix of the conda environment that is active or that Python runs in; "" without."""
    for prefix in (host.env("CONDA_PREFIX"), str(host.python.get("prefix", ""))):
        if prefix and host.is_dir(f"{prefix}/conda-meta"):
            return prefix
    return ""
