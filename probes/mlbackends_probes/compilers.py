"""Compilers: the C, C++, Fortran and GPU compilers that a program finds on PATH.

Finds:    each by its file on PATH, links resolved, with the package that owns it.
Caveats:  none is run: the version is from its package, toolkit or file name. On macOS cc and gcc start
          clang.
Source:   GCC, Clang, CUDA, ROCm and oneAPI installation guides; CUDA's version.json.
"""

import posixpath
from itertools import pairwise
from typing import Any

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import dotted_numbers, leading_version
from mlbackends.base.reasons import Reason
from mlbackends.host.declared import steering
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.cuda.libraries import nvcc_release
from mlbackends.libraries.owners import owner_of
from mlbackends.model.records import FactValue, Finding, Presence, nonempty

GROUP = "framework"
SUMMARY = ("{versions}",)

_NAMES = (
    "cc", "c++", "gcc", "g++", "gfortran", "clang", "clang++", "cl", "nvcc", "nvc++", "hipcc",
    "amdclang++", "icx", "icpx", "ifx", "dpcpp", "armclang",
)  # fmt: skip
_CHOICES = ("CC", "CXX", "FC", "CUDACXX", "CUDAHOSTCXX", "HIPCXX", "NVCC_CCBIN")
#: Without either, the compilers in macOS's /usr/bin only offer to install them.
_TOOLS_OF_MACOS = ("/Library/Developer/CommandLineTools/usr/bin", "/Applications/Xcode.app")
_LINKS_LIMIT = 20
_SCRIPT_LIMIT = 1024
_SCRIPT = pattern(r'#!/bin/(?:ba)?sh\s+exec "?(/[^\s"$]+)"? "\$@"\s*')
#: Folders with a version behind them: cuda-13.0, compiler/2025.1.
_TOOLKITS = ("cuda", "rocm", "compiler", "llvm")


def find(host: Host) -> Finding:
    """Look for each compiler's name in the folders of PATH."""
    packages: dict[str, str] = {}
    rows: list[Any] = [row for name in _NAMES if (row := _compiler(host, name, packages))]
    facts: dict[str, Any] = {
        "compilers": rows,
        "versions": {row["name"]: row["version"] for row in rows if "version" in row},
        **steering(host, "compilers"),
    }
    if host.platform == "darwin":
        has_tools = any(map(host.is_dir, _TOOLS_OF_MACOS))
        facts["has_command_line_tools"] = has_tools if has_tools or host.is_live else None
    warnings = []
    for name in _CHOICES:
        value = host.env(name)
        if host.platform == "win32":
            value = value.replace("\\", "/")
        program = value.split(" ")[0]
        is_bare = "/" not in program
        is_file = host.is_file(program) or host.is_file(value)  # C:/Program Files has a blank
        if program and not is_file and not (is_bare and _on_path(host, program)):
            message = f"{name} is {host.env(name)!r}, and there is no such program"
            hint = f"unset {name}, or install the compiler that it names"
            warnings.append(Reason("override-invalid", message, hint))
    if not rows:
        folders = host.env("PATH") or "PATH, which is not set"
        missing = Reason("not-found", f"no compiler in {folders}")
        return Finding(facts=nonempty(facts), reasons=(missing,), warnings=tuple(warnings))
    return Finding(presence=Presence.FOUND, facts=nonempty(facts), warnings=tuple(warnings))


@once_per_host
def _folders(host: Host) -> list[str]:
    # An empty or relative part means the current folder; a report must not depend on it.
    absolute = [at.rstrip("/") for at in host.folders("PATH") if at.startswith("/") or at[1:2] == ":"]
    return [folder for folder in dict.fromkeys(absolute) if host.is_dir(folder)]


def _on_path(host: Host, name: str) -> str:
    file = f"{name}.exe" if host.platform == "win32" else name
    paths = (f"{folder}/{file}" for folder in _folders(host))
    return next((path for path in paths if host.is_file(path)), "")


def _compiler(host: Host, name: str, packages: dict[str, str]) -> dict[str, FactValue]:
    """Return the description of a compiler; {} if PATH has none of that name.

    packages: the owner of each target that was looked up before; it is added to.
    """
    path = _on_path(host, name)
    if not path:
        return {}
    # What each link leads to, and what a script of one line starts in its place.
    steps: list[str] = []
    step = path
    while step and len(steps) < _LINKS_LIMIT:
        steps.append(step)
        target = host.readlink(step)
        if not target and host.size(step) < _SCRIPT_LIMIT:
            text = host.read(step, _SCRIPT_LIMIT)
            script = _SCRIPT.fullmatch(text) if text.startswith("#!") else None
            target = script[1] if script and host.is_file(script[1]) else ""
        if target and not target.startswith("/"):
            target = posixpath.normpath(f"{posixpath.dirname(step)}/{target}")
        step = target
    target = host.realpath(steps[-1])
    if target not in packages:
        # The package of the compiler itself, not that of a link such as gcc -> gcc-12. Debian's
        # gcc-12 owns gcc-12 and x86_64-linux-gnu-gcc-12; only the first is named like it.
        places = dict.fromkeys(reversed([*steps, target]))
        owners = (owner_of(host, at) for at in sorted(places, key=lambda at: "-linux-" in at))
        packages[target] = next(filter(None, owners), "")
    # The version is from the toolkit, the package, the file's name or its folder, in that order.
    file = target.rpartition("/")[2].removesuffix(".exe")
    version = nvcc_release(host, target.rpartition("/bin/")[0]) if file == "nvcc" else ""
    _, _, of_package = packages[target].partition(" ")
    folders = target.replace("-", "/").split("/")
    tellers = (
        leading_version(of_package.rpartition(":")[2]),
        file.rpartition("-")[2],
        *(number for name, number in pairwise(folders[:-1]) if name in _TOOLKITS),
    )
    numbers = (number for number in tellers if dotted_numbers(number))
    row = {
        "name": name,
        "path": path,
        "target": target if target != path else "",
        "package": packages[target],
        "version": version or next(numbers, ""),
    }
    return nonempty(row)
