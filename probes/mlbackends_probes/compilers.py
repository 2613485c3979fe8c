"""Compilers: the C, C++, Fortran and GPU compilers that a program finds on PATH.

Finds:    each by its file on PATH, links resolved, with the package that owns it.
Caveats:  none is run: a version is what its package, toolkit or file name tells. What is called cc
          or gcc on macOS starts clang.
Source:   GCC, Clang, CUDA, ROCm and oneAPI installation guides; CUDA's version.json.
"""

from collections.abc import Iterator
from typing import Any

from mlbackends.host.host import Host
from mlbackends.host.variables import anything, steering
from mlbackends.libraries.cuda.libraries import nvcc_release
from mlbackends.libraries.owners import owner_of
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Fact, FactValue, Finding, Presence

GROUP = "framework"
SUMMARY = ("{versions}",)
FACTS = (
    Fact(
        "compilers",
        list[dict[str, str]],
        "Each compiler: name, path, target (the file that its links lead to), package, version.",
    ),
    Fact("versions", dict[str, str], "The version of each compiler whose version is told."),
    Fact("environment", dict[str, str], "The variables that choose a compiler and are set."),
)

_NAMES = (
    "cc",
    "c++",
    "gcc",
    "g++",
    "gfortran",
    "clang",
    "clang++",
    "cl",
    "nvcc",
    "nvc++",
    "hipcc",
    "amdclang++",
    "icx",
    "icpx",
    "ifx",
    "dpcpp",
    "armclang",
)
_CHOICES = ("CC", "CXX", "FC", "CUDACXX", "CUDAHOSTCXX", "HIPCXX", "NVCC_CCBIN")
_RULES = dict.fromkeys(
    (*_CHOICES, "CFLAGS", "CXXFLAGS", "LDFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    anything,
)
_LINKS_LIMIT = 20
_SCRIPT_LIMIT = 1024
_SCRIPT = pattern(r'#!/bin/(?:ba)?sh\s+exec "?(/[^\s"$]+)"? "\$@"\s*')
_DEBIAN = pattern(r"(?:\d+:)?(\d+(?:\.\d+)+)")
_NUMBERED = pattern(r"-(\d+(?:\.\d+)*)$")
_IN_FOLDER = pattern(r"/(?:cuda|rocm|compiler|llvm)[-/](\d+\.\d+(?:\.\d+)*)/")


def find(host: Host) -> Finding:
    """Look for each compiler's name in the folders of PATH."""
    packages: dict[str, str] = {}
    found: list[Any] = [one for name in _NAMES if (one := _compiler(host, name, packages))]
    facts: dict[str, FactValue] = {}
    if found:
        facts["compilers"] = found
    if versions := {one["name"]: one["version"] for one in found if "version" in one}:
        facts["versions"] = dict[str, object](versions)
    facts |= steering(host, _RULES)
    warnings = tuple(filter(None, (_names_nothing(host, name) for name in _CHOICES)))
    if not found:
        folders = host.env("PATH") or "PATH, which is not set"
        missing = Reason("not-found", f"no compiler in {folders}")
        return Finding(facts=facts, reasons=(missing,), warnings=warnings)
    return Finding(presence=Presence.FOUND, facts=facts, warnings=warnings)


def _folders(host: Host) -> list[str]:
    separator = ";" if host.platform == "win32" else ":"
    folders = host.env("PATH").split(separator)
    # An empty or relative part means the current folder; a report must not depend on it.
    absolute = [at.rstrip("/") for at in folders if at.startswith("/") or at[1:2] == ":"]
    return list(dict.fromkeys(absolute))


def _on_path(host: Host, name: str) -> str:
    suffix = ".exe" if host.platform == "win32" else ""
    paths = (f"{folder}/{name}{suffix}" for folder in _folders(host))
    return next((path for path in paths if host.is_file(path)), "")


def _compiler(host: Host, name: str, packages: dict[str, str]) -> dict[str, str]:
    """Describe a compiler; {} where PATH has none of that name.

    packages: the owner of each target that was asked for before; it is added to.
    """
    path = _on_path(host, name)
    if not path:
        return {}
    told = {"name": name, "path": path}
    steps = list(_steps(host, path))
    target = host.realpath(steps[-1])
    if target != path:
        told["target"] = target
    if target not in packages:
        packages[target] = _package(host, [*steps, target])
    if packages[target]:
        told["package"] = packages[target]
    if version := _version(host, target, packages[target]):
        told["version"] = version
    return told


def _package(host: Host, steps: list[str]) -> str:
    """Return the package of the compiler itself, not that of a link such as gcc -> gcc-12.

    Debian's gcc-12 owns gcc-12 and x86_64-linux-gnu-gcc-12; only the first is named like it.
    """
    for path in sorted(dict.fromkeys(reversed(steps)), key=lambda path: "-linux-" in path):
        if owner := owner_of(host, path):
            return owner
    return ""


def _steps(host: Host, path: str) -> Iterator[str]:
    """Yield a path, what each link leads to, and what a script of one line starts in its place."""
    for _ in range(_LINKS_LIMIT):
        yield path
        target = host.readlink(path)
        if not target and host.size(path) < _SCRIPT_LIMIT:
            script = _SCRIPT.fullmatch(host.read(path, _SCRIPT_LIMIT))
            target = script[1] if script and host.is_file(script[1]) else ""
        if not target:
            return
        folder = path.rpartition("/")[0]
        path = target if target.startswith("/") else _joined(folder, target)


def _joined(folder: str, target: str) -> str:
    parts: list[str] = []
    for part in f"{folder}/{target}".split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _version(host: Host, target: str, package: str) -> str:
    """Return what the toolkit, the package, the file's name or its folder tells, in that order."""
    name = target.rpartition("/")[2].removesuffix(".exe")
    home = target.rpartition("/bin/")[0]
    if name == "nvcc" and (version := nvcc_release(host, home)):
        return version
    if package and (match := _DEBIAN.match(package.partition(" ")[2])):
        return match[1]
    match = _NUMBERED.search(name) or _IN_FOLDER.search(target)
    return match[1] if match else ""


def _names_nothing(host: Host, name: str) -> Reason | None:
    """Warn of a variable that names a compiler which is not there."""
    program = host.env(name).split(" ")[0]
    if not program or host.is_file(program) or ("/" not in program and _on_path(host, program)):
        return None
    message = f"{name} is {host.env(name)!r}, and there is no such program"
    return Reason(
        "override-invalid", message, f"unset {name}, or install the compiler that it names"
    )
