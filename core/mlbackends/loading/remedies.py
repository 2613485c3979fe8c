"""Where a fault comes from, and what to type against it, where its finder has not stated that."""

import posixpath
import re
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.installing import manager_of, package_command, quoted, reinstall_command
from mlbackends.host.python.packages import Distribution, distributions
from mlbackends.loading.environment import providers
from mlbackends.loading.imports import shared_objects
from mlbackends.loading.linker import object_file
from mlbackends.model.loading import Fault

#: Faults whose file is not as it was installed.
_DAMAGED = ("missing-file", "not-a-library", "wrong-architecture")


def remedied(host: Host, faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return faults with the package that asks, the cause, and what to do, where these are known."""
    faults = tuple(faults)
    text = " ".join(fault.name for fault in faults)
    return tuple(_Remedy(host, fault, text).fault for fault in faults)


class _Remedy:
    """What is known about one fault. names: those of all faults of the same package."""

    def __init__(self, host: Host, fault: Fault, names: str) -> None:
        self.host, self.names = host, names
        self._python = str(host.python.get("executable", "") or "python"), manager_of(host)
        asking = next((dist for path in fault.path if (dist := owner(host, path))), None)
        self.fault = replace(fault, package=fault.package or (asking.name if asking else ""))
        if fault.cause or fault.hint or fault.command:
            return
        last = owner(host, fault.path[-1]) if fault.path else None
        match fault.code:
            case "missing-library":
                self._missing_library()
            case "unmet-requirement":
                self._set(command=package_command(*self._python, "install", fault.name))
            case "not-read" if fault.path:
                self._set("The file may not be read.", command=f"chmod a+r {quoted(fault.path[-1])}")
            case "missing-version" if fault.name.startswith("GLIBC_"):
                libc = " ".join(map(str, host.system("libc") or ()))
                self._set(
                    f"It is built for {fault.name.replace('_', ' ')} or newer; this system has {libc}.",
                    "use a newer system or container, or a build of the package for an older one",
                )
            case "missing-version" if fault.name.startswith(("GLIBCXX_", "CXXABI_")):
                newer = "conda install -c conda-forge 'libstdcxx-ng>=13'"
                at = fault.path[-1]
                command = newer if self._is_conda(at) else ""
                self._set(f"{at} is older.", "put a newer libstdc++ first on the search path", command)
            case code if code in _DAMAGED and last:
                command = reinstall_command(*self._python, last.name, last.version)
                cause = f"{last.name} {last.version} installed it; it is gone."
                cause = cause if code == "missing-file" else ""
                self._set(cause, command=command)
            case "missing-symbol":
                self._missing_symbol()

    def _set(self, cause: str = "", hint: str = "", command: str = "") -> None:
        self.fault = replace(self.fault, cause=cause, hint=hint, command=command)

    def _is_conda(self, path: str) -> bool:
        return bool(self.host.listdir(f"{posixpath.dirname(posixpath.dirname(path))}/conda-meta"))

    def _missing_library(self) -> None:
        host, fault, name = self.host, self.fault, posixpath.basename(self.fault.name)
        package, path = providers(host).get(name, ("", ""))
        dist = distributions(host)[package][0] if package else None
        if dist and not host.exists(path):
            command = reinstall_command(*self._python, dist.name, dist.version)
            self._set(f"{dist.name} {dist.version} installed it as {path}; it is gone.", command=command)
        elif dist:
            folder = posixpath.dirname(path)
            others = "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
            self._set(
                f"{dist.name} {dist.version} has it in {folder}, where no step of the search looks.",
                command=f"export LD_LIBRARY_PATH={quoted(folder)}{others}",
            )
        elif driver := _row("driver", name):
            self._set(
                f"It comes with {driver}, which is not installed here, or hidden from this container.",
                "install the driver; in a container, pass --gpus all",
            )
        elif system := _row("system", name):
            release = host.read("/etc/os-release")
            is_debian = re.search(r"(?m)^ID(_LIKE)?=.*(debian|ubuntu)", release)
            is_fedora = re.search(r"(?m)^ID(_LIKE)?=.*(fedora|rhel|centos)", release)
            self._set(
                "It is a library of the system, which is not installed.",
                f"install {system[0]} (Debian, Ubuntu) or {system[1]} (Fedora, RHEL)",
                f"apt-get install -y {system[0]}"
                if is_debian
                else f"dnf install -y {system[1]}"
                if is_fedora
                else "",
            )
        elif wanted := self._on_pypi(name):
            command = package_command(*self._python, "install", wanted)
            hint = "" if self._searches_nvidia() or "nvidia" not in wanted else (
                "install it, and add its folder below site-packages/nvidia to LD_LIBRARY_PATH"
            )  # fmt: skip
            self._set("No installed package has it.", hint, command)
        else:
            asking = f", which {fault.package} needs" if fault.package else ""
            self._set(f"No installed package has {name}{asking}.")

    def _on_pypi(self, name: str) -> str:
        """Return what to install for a library, "" if that is not known."""
        for pattern, package in table("loading/remedies.toml")["cuda"].items():
            if found := re.fullmatch(pattern, name):
                major = next(group for group in found.groups() if group and group.isdigit())
                return f"{package}=={major}.*" if int(major) > 12 else f"{package}-cu{major}"
        majors = set(re.findall(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink)\.so\.(1[123])", self.names))
        wanted = str(_row("pypi", name) or "")
        if "{major}" in wanted:
            return wanted.format(major=majors.pop()) if len(majors) == 1 else ""
        return wanted

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


def _row(kind: str, name: str) -> Any:
    rows = table("loading/remedies.toml")[kind].items()
    return next((value for pattern, value in rows if re.fullmatch(pattern, name)), None)


def owner(host: Host, path: str) -> Distribution | None:
    """Return the distribution that installed a shared object, None for any other file."""
    return _owners(host).get(path) or _owners(host).get(host.realpath(path))


@once_per_host
def _owners(host: Host) -> dict[str, Distribution]:
    return {
        path: dists[0] for dists in distributions(host).values() for path in shared_objects(host, dists[0])
    }
