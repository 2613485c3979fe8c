"""Where a fault comes from, and what to type against it, where its finder has not stated that."""

import os
import posixpath
import re
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary, joined
from mlbackends.base.specifiers import can_be_met, narrowed
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.installing import manager_of, quoted, reinstall_command
from mlbackends.host.python.packages import Distribution, conda_prefix, distributions, normalised, origin_of
from mlbackends.host.python.requirements import unmet
from mlbackends.host.python.wheel_files import is_altered
from mlbackends.loading.environment import install, providers
from mlbackends.loading.imports import lost_files, shared_objects, sources
from mlbackends.loading.linker import ObjectFile, object_file
from mlbackends.loading.preloads import torch_cuda
from mlbackends.model.loading import Fault


def reinstall(host: Host, dist: Distribution) -> str:
    """Return the command that reinstalls a distribution and changes no other."""
    origin = origin_of(host, dist)
    if origin.get("editable"):
        return install(host, "--no-deps", "-e", unquote(origin["url"].removeprefix("file://")))
    python = str(host.python.get("executable", "") or "python")
    return reinstall_command(python, manager_of(host), dist.name, dist.version)


def elf(host: Host, path: str) -> ObjectFile | None:
    """Return what a file is to the loader, None for one that cannot be read."""
    try:
        return object_file(host, host.realpath(path))
    except (NotALibrary, OSError):
        return None


def remedied(host: Host, faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return faults with the package that asks, the cause, and what to do, where these are known.

    The first fault of a file has the command for all the libraries that the file lacks.
    """
    faults, done = tuple(faults), set[str]()
    answers: list[Fault] = []
    for fault in faults:
        lacking = [other for other in faults if other.code == fault.code == "missing-library"]
        names = [fault.name, *(other.name for other in lacking if other.path[:-1] == fault.path[:-1])]
        names += fault.others if fault.code == "not-opened-later" else ()
        answer = _remedied(host, fault, list(dict.fromkeys(map(posixpath.basename, names))))
        is_repeated = fault.code == "missing-library" and done.issuperset(names) and not fault.command
        answers.append(replace(answer, hint=fault.hint, command="") if is_repeated else answer)
        done |= set(names)
    return tuple(answers)


def _remedied(host: Host, fault: Fault, names: list[str]) -> Fault:
    """Return what is known about one fault. names: the libraries that its file lacks, this one first."""
    asking = next((dist for path in fault.path if (dist := owner(host, path))), None)
    fault = replace(fault, package=fault.package or (asking.name if asking else ""))
    is_library = fault.code in ("missing-library", "not-opened-later")
    is_of_file = fault.code in ("missing-file", "not-a-library", "wrong-architecture")
    if fault.command or (not is_library and (fault.hint or (fault.cause and not is_of_file))):
        return fault
    last = owner(host, fault.path[-1]) if fault.path else None
    cause, hint, command = "", "", ""
    if is_library:
        cause, hint, command = _missing_library(host, fault, names)
    elif fault.code == "unmet-requirement":
        hint, command = _missing_module(host, fault.name, fault.path)
    elif fault.code == "not-read":
        cause, command = _closed(host, fault) if fault.path else ("", "")
        if not cause and (changed := altered(host, fault.path[-1:])):
            cause, hint, command = changed
    elif fault.code in ("missing-symbol", "missing-version") and (
        changed := altered(host, _needed(host, fault.path[-1]))
    ):
        cause, hint, command = changed
    elif is_of_file and last:
        cause = f"{_versioned(last)} installed it; it is gone." if fault.code == "missing-file" else ""
        command = reinstall(host, last)
    elif fault.code == "missing-symbol" and last and (file := elf(host, fault.path[-1])):
        found = (providers(host).get(name, ("", ""))[0] for name in file.needed)
        if names := [name for name in dict.fromkeys(found) if name not in ("", last.name)]:
            others = joined([_versioned(distributions(host)[name][0]) for name in names])
            cause = f"{others} should define it and does not: {_versioned(last)} is built for others."
            hint = f"install a build of {last.name} for {others}"
    return replace(fault, cause=fault.cause or cause, hint=fault.hint or hint, command=command)


def _closed(host: Host, fault: Fault) -> tuple[str, str]:
    """Return the cause and the command for a file that this user may not read."""
    folder = host.closed_above(fault.path[-1])
    if not folder and not fault.message.endswith("Permission denied"):
        return "", ""
    closed, words = folder or posixpath.normpath(fault.path[-1]), "may not be read"
    with suppress(OSError, KeyError, ImportError):
        import pwd  # Windows has none

        words += f"; it belongs to {pwd.getpwuid(os.stat(host.real(closed)).st_uid).pw_name}"
    return f"{closed} {words}.", f"chmod a+rX {quoted(closed)}"


def altered(host: Host, paths: Iterable[str]) -> tuple[str, str, str] | None:
    """Return the cause, what to do and the command for the first of some files that was changed, or None."""
    for path in paths:
        for dist in owners(host, path):
            if is_altered(host, dist, path):
                others = [_versioned(it) for it in owners(host, path) if it != dist]
                also = f"; {joined(others)} has one of that name" if others else ""
                cause = f"{path} is not the file that {_versioned(dist)} installed{also}."
                return cause, "", reinstall(host, dist)
    return None


def _needed(host: Host, path: str) -> tuple[str, ...]:
    """Return a file and those of packages that have the names that it needs."""
    file, known = elf(host, path), providers(host)
    return path, *(known[name][1] for name in (file.needed if file else ()) if name in known)


def _missing_module(host: Host, name: str, path: tuple[str, ...]) -> tuple[str, str]:
    """Return what to do and the command for a module that no folder has, or for one that lacks a name.

    A package that is required and not installed brings it, if it has its name in its own: absl-py has absl.
    path: the file of the module that lacks a name, which another release of its package has.
    """
    if set(name) & set("<>=!~"):  # a requirement
        return "", install(host, name)
    top = name.partition(".")[0]
    known = table("loading/remedies.toml")["module"].get(top, "")
    having = (dist for dist, *_ in distributions(host).values() if {*path}.intersection(sources(host, dist)))
    dist = next(having, None) if path else None
    if dist and is_altered(host, dist, path[0]):
        return "", reinstall(host, dist)
    wanted = dist.name if dist else known or normalised(top)
    lacking: dict[str, dict[str, str]] = {}
    for row in unmet(host):
        if ("installed" in row) == bool(path):
            lacking.setdefault(row["needs"], {})[row["package"]] = row.get("wanted", "")
    alike = [wanted] if wanted in lacking else [need for need in lacking if wanted in need.split("-")]
    if len(alike) == 1:
        wishes = {package: wish for package, wish in lacking[alike[0]].items() if wish}
        clauses = narrowed({clause for wish in wishes.values() for clause in wish.split(",")})
        if can_be_met(clauses):
            return "", install(host, alike[0] + clauses)
        needs = joined([f"{package} needs {alike[0]}{wish}" for package, wish in wishes.items()])
        return f"no version fits all: {needs}; upgrade or remove one of them", ""
    if path:
        return f"install another release of {dist.name if dist else top}, or of the package that asks", ""
    return ("", install(host, known)) if known else (f"install the package that has the module {top}", "")


def _versioned(dist: Distribution) -> str:
    return f"{dist.name} {dist.version}"


def _missing_library(host: Host, fault: Fault, names: list[str]) -> tuple[str, str, str]:
    """Return the cause, what to do and the command for the libraries that a file lacks."""
    name = names[0]
    package, path = providers(host).get(name, ("", ""))
    dist = distributions(host)[package][0] if package else None
    own = owner(host, fault.path[-2]) if len(fault.path) > 1 else None
    lost = [path for path in (lost_files(host, own) if own else ()) if posixpath.basename(path) == name]
    dist, path = (own, lost[0]) if lost else (dist, path)  # another one's may have the same name
    asking = elf(host, fault.path[-2]) if len(fault.path) > 1 else None
    needed = asking.needed if asking else ()
    torchs = int(torch_cuda(host).partition(".")[0] or 0)
    cuda = _cuda_major((*names, *needed), fault.package) or torchs
    wheels = dict.fromkeys(_wheel(lacking, cuda) for lacking in names if lacking not in providers(host))
    wheels.pop("", None)
    if dist and not host.exists(path):
        return f"{_versioned(dist)} installed it as {path}; it is gone.", "", reinstall(host, dist)
    file = elf(host, path) if dist else None
    if dist and file and asking and file.machine != asking.machine:
        cause = f"{_versioned(dist)} has it as {path}, for {file.machine}; this process is {asking.machine}."
        return cause, "", reinstall(host, dist)
    if dist and not fault.hint:  # an import that comes first is better than a variable
        if len(fault.path) > 1 and (changed := altered(host, [fault.path[-2]])):
            return changed
        folder = posixpath.dirname(path)
        cause = f"{_versioned(dist)} has it in {folder}, where no step of the search looks."
        if host.platform == "win32":
            return cause, f'call os.add_dll_directory("{folder}") before', ""
        variable = "DYLD_LIBRARY_PATH" if host.platform == "darwin" else "LD_LIBRARY_PATH"
        return cause, "", f"export {variable}={quoted(folder)}${{{variable}:+:${variable}}}"
    if dist and not wheels:
        return "", "", ""
    needs_torch = any(other.startswith(("libtorch", "libc10")) for other in needed)
    if wheels and needs_torch and torchs not in (0, cuda):
        cause = f"{fault.package} is built for CUDA {cuda}, the installed torch for CUDA {torchs}"
        return cause, f"install a build of {fault.package} for CUDA {torchs}, or a torch for CUDA {cuda}", ""
    if wheels:
        return "No installed package has it.", _folder_hint(host, fault, wheels), install(host, *wheels)
    torch = distributions(host).get("torch")
    if row := _row("hint", name):
        hint = row["hint"].format(torch=_versioned(torch[0]) if torch else "the installed one")
        return row.get("cause", ""), hint, row.get("command", "")
    if system := _row("system", name):
        packages = system["names"]
        hint = f"install {packages['apt']} (Debian, Ubuntu) or {packages['dnf']} (Fedora, RHEL)"
        cause = "It is a library of the system, which is not installed."
        return cause, hint, _system_command(host, names)
    if len(fault.path) > 1 and (changed := altered(host, _needed(host, fault.path[-2]))):
        return changed
    return f"No installed package has {name}{f', which {fault.package} needs' * bool(fault.package)}.", "", ""


def _folder_hint(host: Host, fault: Fault, wheels: Iterable[str]) -> str:
    """Return how the files of NVIDIA's wheels are found, "" where the files that ask look there."""
    files = filter(None, (elf(host, above) for above in fault.path[:-1]))
    folders = [folder for file in files for folder in (*file.rpath, *(file.runpath or ()))]
    if any("nvidia" in folder for folder in folders) or "nvidia" not in str(wheels):
        return ""
    way = "PATH, or by os.add_dll_directory" if host.platform == "win32" else "LD_LIBRARY_PATH"
    return f"install it, and add its folder below site-packages/nvidia to {way}"


def _wheel(name: str, cuda: int) -> str:
    """Return what to install for a library, "" if unknown. cuda: the major version if its name has none."""
    if row := _row("wheel", name):
        return str(row["package"])
    stem, number = _parts(name)
    row = _row("nvidia", stem) or {}
    major = row.get("cuda", {}).get(number) or cuda
    if not row or not major:
        return ""
    suffix = f"-cu{major}" if major < 13 or row.get("suffix") else ""
    pinned = "" if suffix == f"-cu{number}" else row.get("versions", {}).get(number, "")
    return f"{row['package']}{suffix}{pinned}"


def _cuda_major(names: Iterable[str], package: str) -> int:
    """Return which CUDA a file is for, by the names that it needs or by its package's, 0 if unknown."""
    for stem, number in map(_parts, names):
        if major := (_row("nvidia", stem) or {}).get("cuda", {}).get(number):
            return int(major)
    own = re.search(r"cu(?:da)?(1\d)", package)
    return int(own[1]) if own else 0


def _system_command(host: Host, names: list[str]) -> str:
    """Return the command of conda, or of the system's installer, for all that is missing; "" for none."""
    rows = [row["names"] for name in names if (row := _row("system", name))]
    version = re.search(r"libpython(\d\.\d+)", names[0])
    for installer in table("loading/remedies.toml")["installer"]:
        kind, path = installer["name"], installer.get("path")
        if host.exists(path) if path else conda_prefix(host) and kind in rows[0]:
            packages = " ".join(dict.fromkeys(row[kind] for row in rows if kind in row))
            packages = packages.replace("{minor}", version[1] if version else "")
            return f"{installer['call']} {packages}" if packages else ""
    return ""


def _parts(name: str) -> tuple[str, str]:
    """Return a library's name up to its version, as Linux calls it, and the first number of that."""
    if dll := re.fullmatch(r"(\w+?)(?:64)?_(\d\d?)\d*(?:_\d)?\.dll", name):
        return f"lib{dll[1]}", dll[2]
    stem, _, number = name.partition(".so.")
    return stem, number.partition(".")[0]


def _row(kind: str, name: str) -> dict[str, Any] | None:
    rows: list[dict[str, Any]] = table("loading/remedies.toml")[kind]
    named = (row for row in rows if any(fnmatchcase(name, pattern) for pattern in row["libraries"]))
    return next(named, None)


def owner(host: Host, path: str) -> Distribution | None:
    """Return the distribution that installed a shared object or a file that is gone, else None."""
    return next(iter(owners(host, path)), None)


def owners(host: Host, path: str) -> list[Distribution]:
    """Return the distributions that installed a file; of two the one installed last has replaced it."""
    return _owners(host).get(path) or _owners(host).get(host.realpath(path), [])


@once_per_host
def _owners(host: Host) -> dict[str, list[Distribution]]:
    found: dict[str, list[Distribution]] = {}
    for dist, *_ in distributions(host).values():
        for path in dict.fromkeys((*shared_objects(host, dist), *lost_files(host, dist))):
            found.setdefault(path, []).append(dist)
    return found
