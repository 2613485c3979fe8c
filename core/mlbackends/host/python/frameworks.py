"""An installed Python package: its distributions, its files, and whether they agree.

The probes of frameworks share this. Everything is read as text; nothing is imported.

Source: PyPA, "Recording installed projects", "Entry points specification".
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.base.specifiers import same_public_version
from mlbackends.host.declared import not_valid, steering
from mlbackends.host.host import Host
from mlbackends.host.pci import PciDevice, of_vendor
from mlbackends.host.python.packages import (
    Distribution,
    distributions,
    editable_location,
    is_user_site,
    module_location,
    normalised,
    origin_of,
    python_folders,
)
from mlbackends.host.python.requirements import required
from mlbackends.host.system.surroundings import container_signs
from mlbackends.model.records import FactValue, Finding, Presence, nonempty


class Package(Struct, frozen=True):
    """One package that can be imported, or that is installed according to its metadata.

    name: the distribution's, or the module's without metadata. version: from its files, else its metadata.
    location: the folder or file that is imported, "" if no file was found. installed: every distribution
    that contains it, the one that is imported first. module: what is imported, with dots. closed: the
    folder that this user may not read, if that is why there is no location.
    """

    name: str
    version: str
    location: str
    installed: tuple[Distribution, ...]
    metadata_version: str = ""
    is_editable: bool = False
    source: str = ""
    module: str = ""
    closed: str = ""


def package(host: Host, names: Sequence[str], module: str, version_file: str = "") -> Package | None:
    """Return a package by the names of its distributions and by its module, None without both.

    names: in the order of preference; "cupy-*" matches every name that begins so.
    version_file: a file below the module's folder that assigns `__version__` or `version`.
    """
    installed = named(host, names)
    location = module_location(host, module, require_init=not installed)
    if not installed and not location:
        return None
    if location:
        # Of several, the one next to the files is the one that is imported.
        folder = os.path.dirname(location)
        installed.sort(key=lambda dist: dist.folder != folder)
    origin = origin_of(host, installed[0]) if installed else {}
    editable = bool(origin.get("editable"))
    if not location and editable:
        location = editable_location(host, module)
    text = host.read(f"{location}/{version_file}", 1 << 16) if location and version_file else ""
    version = assigned_text(text, "__version__") or assigned_text(text, "version")
    metadata_version = installed[0].version if installed else ""
    return Package(
        name=installed[0].name if installed else module,
        version=version or metadata_version,
        location=location,
        installed=tuple(installed),
        metadata_version=metadata_version,
        is_editable=editable,
        source=str(origin.get("url", "")),
        module=module.replace("/", ".") if location else "",
        closed="" if location else host.closed_above(f"{installed[0].folder}/{module}/__init__.py"),
    )


def named(host: Host, names: Sequence[str]) -> list[Distribution]:
    """Return every installed distribution of some names, in the order of the import path."""
    everything = distributions(host)
    present: dict[str, None] = {}
    for name in names:
        if name.endswith("*"):
            beginning = normalised(name[:-1])
            present.update((other, None) for other in everything if other.startswith(beginning))
        elif normalised(name) in everything:
            present[normalised(name)] = None
    folders = python_folders(host)
    dists = [dist for name in present for dist in everything[name]]
    return sorted(dists, key=lambda dist: folders.index(dist.folder))


def cache_folder(host: Host, name: str) -> str:
    """Return the folder in which a library of this name caches files of the user, "" if no home is known."""
    home = host.env("HOME") or host.env("USERPROFILE")
    caches = host.env("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    return f"{caches}/{name}" if caches else ""


def found(
    host: Host,
    package: Package | None,
    looked_for: str,
    facts: Mapping[str, FactValue] | None = None,
    warnings: Iterable[Reason | None] = (),
) -> Finding:
    """Return the finding of a probe for a package: the facts common to all packages, and its own.

    looked_for: the name of the package and of its variables; `package` is None if it is not installed.
    """
    if package is None:
        return Finding(reasons=(not_installed(host, looked_for),))
    common = {
        "distribution": package.name if package.installed else "",
        "location": package.location,
        "installations": [
            {"name": dist.name, "version": dist.version, "folder": dist.folder}
            for dist in package.installed
            if len(package.installed) > 1
        ],
        "editable": package.is_editable or None,
        "source": package.source,
        "pins": _pins(host, package),
    }
    finding = _finding(host, [package], common, looked_for, facts, warnings)
    return replace(finding, warnings=finding.warnings + not_valid(host, looked_for))


def found_set(
    host: Host,
    packages: Sequence[Package | None],
    looked_for: str,
    probe: str,
    facts: Mapping[str, FactValue] | None = None,
    warnings: Iterable[Reason | None] = (),
) -> Finding:
    """Return the finding of a probe for several packages, of which any may be installed.

    probe: the one whose variables steer them. The version is that of the first package that is installed.
    """
    present = [package for package in packages if package is not None]
    if not present:
        return Finding(reasons=(not_installed(host, looked_for),))
    common = {
        "packages": {package.name: package.version for package in present},
        "locations": {package.name: package.location for package in present if package.location},
        "pins": [{**pin, "by": package.name} for package in present for pin in _pins(host, package)],
    }
    return _finding(host, present, common, probe, facts, warnings)


def _finding(
    host: Host,
    packages: Sequence[Package],
    common: dict[str, Any],
    probe: str,
    facts: Mapping[str, FactValue] | None,
    warnings: Iterable[Reason | None],
) -> Finding:
    problems = [warning for package in packages for warning in _package_warnings(host, package)]
    return Finding(
        presence=Presence.FOUND,
        version=packages[0].version,
        facts=nonempty(common) | dict(facts or {}) | steering(host, probe),
        reasons=tuple(reason for package in packages for reason in _lacks_files(package)),
        warnings=tuple(filter(None, (*problems, *warnings))),
        imports=tuple(package.module for package in packages if package.module),
    )


def _pins(host: Host, package: Package) -> list[dict[str, str]]:
    needs = required(host, package.installed[0]) if package.installed else []
    return [
        {"package": need.name, "wanted": need.pinned, "installed": need.installed}
        for need in needs
        if need.pinned
    ]


def _package_warnings(host: Host, package: Package) -> list[Reason]:
    """Return warnings about conflicting installations and versions."""
    warnings = []
    first, *others = package.installed or (None,)
    # One of two distributions may exist only to install the other.
    needs = {
        (dist.name, need.name)
        for dist in (package.installed if others else ())
        for need in required(host, dist)
    }
    for other in others:
        assert first is not None
        names = (first.name, other.name)
        if first.name != other.name and not needs.isdisjoint({names, names[::-1]}):
            continue
        one, two = (_with_version(dist.name, dist.version) for dist in (first, other))
        if first.folder == other.folder:
            code = "installed-twice"
            message = f"{one} and {two} are both in {first.folder}: one wrote over the other"
            hint = "uninstall both, then install the one that you want"
        else:
            from_user = is_user_site(host, first.folder) and not is_user_site(host, other.folder)
            code = "hidden-by-user-site" if from_user else "installation-hidden"
            message = f"{one} in {first.folder} is imported, and hides {two} in {other.folder}"
            hint = "uninstall one of them"
        warnings.append(Reason(code, message, hint))
    name, version, metadata = package.name, package.version, package.metadata_version
    if metadata and version != metadata and not same_public_version(version, metadata):
        message = f"the metadata of {name} has version {metadata}, and its files have {version}"
        hint = f"reinstall {name}: something overwrote its files"
        warnings.append(Reason("metadata-mismatch", message, hint))
    return warnings


def _lacks_files(package: Package) -> tuple[Reason, ...]:
    """Return the reason for a package of which only metadata is installed."""
    if package.location or package.is_editable:
        return ()
    dist = package.installed[0]
    name = _with_version(dist.name, dist.version)
    if package.closed:
        message = f"{name} is installed, but this user may not read {package.closed}"
        return (Reason("metadata-only", message, f"make it readable: chmod -R a+rX {package.closed}"),)
    message = f"{name} is installed according to {dist.info}; its files do not exist"
    return (Reason("metadata-only", message, f"reinstall {dist.name}"),)


def not_installed(host: Host, looked_for: str) -> Reason:
    """Return the reason for a package that was not found, with the folders that were searched."""
    folders = python_folders(host)
    if not folders:
        detail = "no Python is known" if host.pid is None else "the process is not a Python"
        return Reason("not-found", f"no {looked_for}: {detail}")
    executable = host.python.get("executable")
    searched = f"the import path of {executable}" if executable else ", ".join(folders)
    return Reason("not-found", f"no {looked_for} in {searched}")


def assigned_text(text: str, name: str) -> str:
    """Return the string that Python source assigns to a name, "" if it assigns something else."""
    literal = _assigned(text, name).lstrip("rbu")
    inside, quote, _ = literal[1:].partition(literal[:1] or "'")
    return inside if quote and quote in "'\"" else ""


def assigned_flag(text: str, name: str) -> bool | None:
    """Return the True or False that Python source assigns to a name, None if it does not."""
    return {"True": True, "False": False}.get(_assigned(text, name))


def _assigned(text: str, name: str) -> str:
    """Return what follows the first "NAME =" or "NAME: TYPE =", without a comment."""
    for line in text.splitlines() if name in text else ():
        target, sign, value = line.partition("=")
        if sign and target.partition(":")[0].strip() == name:
            return value.partition("#")[0].strip()
    return ""


def entry_points(host: Host, group: str) -> dict[str, str]:
    """Return the entry points of a group, name to object, from every distribution."""
    points: dict[str, str] = {}
    for dists in distributions(host).values():
        text = host.read(f"{dists[0].info}/entry_points.txt", 1 << 16)
        for line in f"\n{text}".partition(f"\n[{group}]")[2].partition("\n[")[0].splitlines():
            name, sign, value = line.partition("=")
            if sign and name.strip():
                points[name.strip()] = value.strip()
    return dict(sorted(points.items()))


def torch_version_file(host: Host) -> str:
    """Return the text of torch/version.py, "" without torch."""
    location = module_location(host, "torch")
    return host.read(f"{location}/version.py", 1 << 16) if location else ""


def nvidia_gpus(host: Host) -> list[PciDevice]:
    """Return the NVIDIA GPUs, without those passed on to virtual machines or not given to this container."""
    cards = (device for device in of_vendor(host, "10de") if device.is_display)
    gpus = [device for device in cards if not device.is_for_guests]
    return [] if container_signs(host) and not host.glob("/dev/nvidia[0-9]*") else gpus


def gpu_unused(host: Host, build: str, hint: str) -> Reason | None:
    """Return the warning that a CPU-only build is installed on a machine with an NVIDIA GPU, or None."""
    gpus = nvidia_gpus(host)
    if not gpus:
        return None
    first = f"there is an NVIDIA GPU at {gpus[0].address}"
    place = first if len(gpus) == 1 else f"there are {len(gpus)} NVIDIA GPUs"
    return Reason("degraded", f"{build} is built without CUDA, and {place}", hint)


def built_for_torch(host: Host, build: str, required: str) -> Reason | None:
    """Return the warning that a build is for another torch than the installed one, or None.

    required: "2.10.0+cu128", or the part of it that is known: "2.8".
    """
    torch = assigned_text(torch_version_file(host), "__version__")
    if not torch:
        return None
    public, _, local = required.partition("+")
    has_public, _, has_local = torch.partition("+")
    parts = public.split(".")
    matches = has_public.split(".")[: len(parts)] == parts
    if matches and (not local or not has_local or local == has_local):
        return None
    message = f"{build} is built for torch {required}, and torch {torch} is installed"
    hint = f"its compiled operators may not load: install the {build} built for torch {torch}"
    return Reason("conflict", message, hint)


def _with_version(name: str, version: str) -> str:
    """Return "torch 2.9.0", or the name alone if the metadata has no version."""
    return f"{name} {version}" if version else name


# ---- __config__.py of numpy and scipy ------------------------------------------------------------

_SECTION = pattern(r"""['"](blas|lapack|c)['"]\s*:\s*\{(.*?)\}""", re.DOTALL)
_ITEM = pattern(r"""['"]([\w +]+)['"]\s*:\s*r?(['"])(.*?)\2""")
_OLD = pattern(r"^(?:blas_opt_info|blas_ilp64_opt_info)\s*=\s*\{(.*?)\}\s*$", re.MULTILINE)
_OLD_LIBRARIES = pattern(r"""['"]libraries['"]\s*:\s*\[\s*['"]([^'"]+)['"]""")
_EXTENSIONS = (".so", ".dylib", ".dll")


def config_facts(host: Host, location: str, module: str) -> dict[str, FactValue]:
    """Return the facts in __config__.py and the folder of bundled libraries.

    location: the module's folder. The build writes the file, which is Python and is read as text; its lists
    of SIMD extensions are filled in at run time. Source: __config__.py.in; numpy.distutils.system_info.
    """
    text = host.read(f"{location}/__config__.py", 1 << 18)
    sections = dict(reversed(_SECTION.findall(text)))
    blas, lapack, compiler = (
        {key: value for key, _, value in _ITEM.findall(sections.get(name, ""))}
        for name in ("blas", "lapack", "c")
    )
    of_distutils = (_OLD_LIBRARIES.search(section) for section in _OLD.findall(text))
    values = {
        "blas": blas.get("name") or next((match[1] for match in of_distutils if match), ""),
        "blas_version": blas.get("version", ""),
        "blas_configuration": " ".join(blas.get("openblas configuration", "").split()),
        "blas_folder": blas.get("lib directory", ""),
        "lapack": lapack.get("name", ""),
        "lapack_version": lapack.get("version", ""),
        "compiler": " ".join(filter(None, (compiler.get("name"), compiler.get("version")))),
    }
    # Meson writes "unknown" for what a dependency does not state.
    facts: dict[str, FactValue] = {
        name: value for name, value in values.items() if value and value != "unknown"
    }
    # numpy.libs (Linux, Windows) or numpy/.dylibs (macOS)
    beside = f"{location.rpartition('/')[0]}/{module}.libs"
    names = host.listdir(beside) + host.listdir(f"{location}/.dylibs")
    if bundled := [name for name in names if any(ending in name for ending in _EXTENSIONS)]:
        facts["bundled_libraries"] = list[object](bundled)
    return facts
