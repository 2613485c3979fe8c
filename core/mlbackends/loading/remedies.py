"""Where a fault comes from, and what to type against it, where its finder has not stated that."""

import posixpath
import re
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.installing import manager_of, package_command, quoted, reinstall_command
from mlbackends.host.python.packages import Distribution, conda_prefix, distributions
from mlbackends.loading.environment import providers
from mlbackends.loading.imports import shared_objects
from mlbackends.loading.linker import object_file
from mlbackends.loading.preloads import torch_cuda
from mlbackends.model.loading import Fault

#: Faults about a library that is not found.
_LIBRARIES = ("missing-library", "not-opened-later")
#: How each installer of the system is called, by the program that it is.
_INSTALLERS = {
    "apt": ("/usr/bin/apt-get", "apt-get install -y"),
    "dnf": ("/usr/bin/dnf", "dnf install -y"),
    "apk": ("/sbin/apk", "apk add"),
    "pacman": ("/usr/bin/pacman", "pacman -S --needed"),
}
#: Faults whose file is not as it was installed.
_DAMAGED = ("missing-file", "not-a-library", "wrong-architecture")


def remedied(host: Host, faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return faults with the package that asks, the cause, and what to do, where these are known.

    The first fault of a file has the command for all the libraries that the file lacks.
    """
    faults, done = tuple(faults), set[str]()
    answers: list[Fault] = []
    for fault in faults:
        names = [fault.name, *(fault.others if fault.code == "not-opened-later" else ())]
        names += [other.name for other in faults if _asks_too(other, fault)]
        answer = _Remedy(host, fault, names).fault
        is_repeated = fault.code == "missing-library" and done.issuperset(names) and not fault.command
        answers.append(replace(answer, hint=fault.hint, command="") if is_repeated else answer)
        done |= set(names)
    return tuple(answers)


def _asks_too(other: Fault, fault: Fault) -> bool:
    """Return whether another fault is a library that the same file lacks."""
    same = other.code == fault.code == "missing-library" and other.path[:-1] == fault.path[:-1]
    return same and other.name != fault.name


class _Remedy:
    """What is known about one fault. names: the libraries that the same file lacks, this one first."""

    def __init__(self, host: Host, fault: Fault, names: list[str]) -> None:
        self.host, self.names = host, [posixpath.basename(name) for name in names]
        self._python = str(host.python.get("executable", "") or "python"), manager_of(host)
        asking = next((dist for path in fault.path if (dist := owner(host, path))), None)
        self.fault = replace(fault, package=fault.package or (asking.name if asking else ""))
        if fault.command or (fault.code not in _LIBRARIES and (fault.cause or fault.hint)):
            return
        last = owner(host, fault.path[-1]) if fault.path else None
        match fault.code:
            case code if code in _LIBRARIES:
                self._missing_library()
            case "unmet-requirement":
                self._set(command=package_command(*self._python, "install", fault.name))
            case "not-read" if fault.path and fault.message.endswith("Permission denied"):
                self._set("The file may not be read.", command=f"chmod a+r {quoted(fault.path[-1])}")
            case code if code in _DAMAGED and last:
                command = reinstall_command(*self._python, last.name, last.version)
                cause = f"{last.name} {last.version} installed it; it is gone."
                cause = cause if code == "missing-file" else ""
                self._set(cause, command=command)
            case "missing-symbol":
                self._missing_symbol()

    def _set(self, cause: str = "", hint: str = "", command: str = "") -> None:
        known = self.fault
        self.fault = replace(known, cause=known.cause or cause, hint=known.hint or hint, command=command)

    def _missing_library(self) -> None:
        host, fault, name = self.host, self.fault, self.names[0]
        package, path = providers(host).get(name, ("", ""))
        dist = distributions(host)[package][0] if package else None
        lacking = [name for name in self.names if name not in providers(host)]
        wheels = dict.fromkeys(filter(None, map(self._wheel, lacking)))
        if dist and not host.exists(path):
            command = reinstall_command(*self._python, dist.name, dist.version)
            self._set(f"{dist.name} {dist.version} installed it as {path}; it is gone.", command=command)
        elif dist and fault.hint and not wheels:
            return  # an import that comes first is better than a variable
        elif dist and not (fault.hint and wheels):
            folder = posixpath.dirname(path)
            variable = "DYLD_LIBRARY_PATH" if host.platform == "darwin" else "LD_LIBRARY_PATH"
            command = f"export {variable}={quoted(folder)}${{{variable}:+:${variable}}}"
            is_windows = host.platform == "win32"
            self._set(
                f"{dist.name} {dist.version} has it in {folder}, where no step of the search looks.",
                f'call os.add_dll_directory("{folder}") before' if is_windows else "",
                "" if is_windows else command,
            )
        elif driver := _row("driver", name):
            self._set(
                f"It comes with {driver['package']}, which is not installed, or hidden from this container.",
                "install the driver; in a container, pass --gpus all",
            )
        elif wheels and self._is_for_another_torch():
            major, ours = self._cuda_major(), torch_cuda(host).partition(".")[0]
            words = f"{fault.package} is built for CUDA {major}, the installed torch for CUDA {ours}"
            self.fault = replace(fault, cause="; ".join(filter(None, (words, fault.cause))))
            self._set(hint=f"install a build of {fault.package} for CUDA {ours}, or a torch for CUDA {major}")
        elif wheels:
            hint = "" if self._searches_nvidia() or "nvidia" not in str(wheels) else (
                "install it, and add its folder below site-packages/nvidia to"
                f" {'PATH, or by os.add_dll_directory' if host.platform == 'win32' else 'LD_LIBRARY_PATH'}"
            )  # fmt: skip
            self._set(
                "No installed package has it.", hint, package_command(*self._python, "install", *wheels)
            )
        elif system := _row("system", name):
            packages = system["names"]
            hint = f"install {packages['apt']} (Debian, Ubuntu) or {packages['dnf']} (Fedora, RHEL)"
            self._set("It is a library of the system, which is not installed.", hint, self._system_command())
        elif row := _row("hint", name):
            torch = distributions(host).get("torch")
            self._set(
                row["hint"].replace("{torch}", f"torch {torch[0].version}" if torch else "the installed one")
            )
        else:
            asking = f", which {fault.package} needs" if fault.package else ""
            self._set(f"No installed package has {name}{asking}.")

    def _is_for_another_torch(self) -> bool:
        """Return whether the asking file needs torch, and a CUDA of another major version than torch's."""
        ours = torch_cuda(self.host).partition(".")[0]
        needs_torch = any(name.startswith(("libtorch", "libc10")) for name in self._needed())
        return bool(ours) and needs_torch and int(ours) != self._cuda_major()

    def _wheel(self, name: str) -> str:
        """Return what to install for a library, "" if that is not known."""
        if row := _row("wheel", name):
            return str(row["package"])
        stem, number = _parts(name)
        row, number = _row("nvidia", stem), number.partition(".")[0]
        major = row.get("cuda", {}).get(number) or self._cuda_major() if row else 0
        if not row or not major:
            return ""
        suffix = f"-cu{major}" if major < 13 or row.get("suffix") else ""
        pinned = row.get("versions", {}).get(number, "") if suffix != f"-cu{number}" else ""
        return f"{row['package']}{suffix}{pinned}"

    def _cuda_major(self) -> int:
        """Return which CUDA the asking file is for, by its other names, its package's, or by torch's."""
        for name in (*self.names, *self._needed()):
            stem, number = _parts(name)
            row = _row("nvidia", stem) or {}
            if major := row.get("cuda", {}).get(number.partition(".")[0]):
                return int(major)
        own = re.search(r"cu(?:da)?(1\d)", self.fault.package)
        return int(own[1] if own else torch_cuda(self.host).partition(".")[0] or 0)

    def _needed(self) -> tuple[str, ...]:
        with suppress(NotALibrary, OSError, IndexError):
            return object_file(self.host, self.host.realpath(self.fault.path[-2])).needed
        return ()

    def _system_command(self) -> str:
        """Return the command of conda, or of the system's installer, for all that is missing; "" for none."""
        rows = [row["names"] for name in self.names if (row := _row("system", name))]
        kind = next((kind for kind, (path, _) in _INSTALLERS.items() if self.host.exists(path)), "")
        if conda_prefix(self.host) and "conda" in rows[0]:
            kind = "conda"
        version = re.search(r"libpython(\d\.\d+)", self.names[0])
        packages = dict.fromkeys(row[kind] for row in rows if kind in row)
        text = " ".join(packages).replace("{minor}", version[1] if version else "")
        call = "conda install -c conda-forge" if kind == "conda" else _INSTALLERS.get(kind, ("", ""))[1]
        return f"{call} {text}" if text else ""

    def _searches_nvidia(self) -> bool:
        """Return whether a file on the path has a search path that leads to NVIDIA's packages."""
        for path in self.fault.path[:-1]:
            try:
                file = object_file(self.host, self.host.realpath(path))
            except (NotALibrary, OSError):
                continue
            if any("nvidia" in folder for folder in (*file.rpath, *(file.runpath or ()))):
                return True
        return False

    def _missing_symbol(self) -> None:
        """Name the library that has to define a symbol: one of another package than the file that asks."""
        host, fault = self.host, self.fault
        asking = owner(host, fault.path[-1]) if fault.path else None
        try:
            file = object_file(host, host.realpath(fault.path[-1]))
        except (NotALibrary, OSError, IndexError):
            return
        found = (providers(host).get(name, ("", ""))[0] for name in file.needed)
        others = dict.fromkeys(name for name in found if name and (not asking or name != asking.name))
        if asking and others:
            versions = (f"{name} {distributions(host)[name][0].version}" for name in others)
            self._set(
                f"{' and '.join(versions)} should define it and does not: {asking.name} {asking.version} was"
                " probably built for another version or build of it.",
                f"install a build of {asking.name} for the installed {' and '.join(others)}",
            )


def _parts(name: str) -> tuple[str, str]:
    """Return a library's name up to its version, as Linux calls it, and the version."""
    if dll := re.fullmatch(r"(\w+?)(?:64)?_(\d\d?)\d*(?:_\d)?\.dll", name):
        return f"lib{dll[1]}", dll[2]
    stem, _, number = name.partition(".so.")
    return stem, number


def _row(kind: str, name: str) -> dict[str, Any] | None:
    rows: list[dict[str, Any]] = table("loading/remedies.toml")[kind]
    return next(
        (row for row in rows if any(fnmatchcase(name, pattern) for pattern in row["libraries"])), None
    )


def owner(host: Host, path: str) -> Distribution | None:
    """Return the distribution that installed a shared object, None for any other file."""
    return _owners(host).get(path) or _owners(host).get(host.realpath(path))


@once_per_host
def _owners(host: Host) -> dict[str, Distribution]:
    return {
        path: dists[0] for dists in distributions(host).values() for path in shared_objects(host, dists[0])
    }
