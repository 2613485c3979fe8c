"""What packages open by name while they run, as rows of later.toml, and what is then not found.

Such a library is in no list of what a file needs, so that importing the package succeeds without it; a
session, a first computation or a device then fails, or the package goes on without the device. Each is opened
in the process that importing the package leaves, by the folders of the file that opens it. What a package
does without has no row. Without an NVIDIA driver, one is assumed: its libraries come with a GPU.
"""

import fnmatch
import posixpath
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.frameworks import nvidia_gpus
from mlbackends.host.python.packages import Distribution, distribution, distributions, python_folders
from mlbackends.loading.assumed import Assumed
from mlbackends.loading.environment import Environment, modules_of, providers
from mlbackends.loading.imports import shared_objects
from mlbackends.loading.linker import Mapped, Process
from mlbackends.loading.preloads import closest, holds_for, matches, placeholders, preload_of, torch_cuda
from mlbackends.model.loading import Fault

#: Libraries of NVIDIA's driver, which no package installs.
_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")


class Later(Struct, frozen=True, forbid_unknown_fields=True):
    """What some code of a package opens.

    distributions, versions, platform: which packages this holds for. opens: files below the import folders,
    or names that are searched for, in their order; of "A | B" the first that opens, "A + B" are opened
    together; preloads.placeholders has the names in braces. by: the file whose code opens names. module: what
    the process has imported, if it is not the package's own. beside: another package without which nobody
    expects this to work. both: the package is one for CPUs and for GPUs, and this is expected only where
    something else is for GPUs. visible: opened as RTLD_GLOBAL. costs: what it is for. says: what the package
    then prints; absent: where a file is not there. fits: another package with the only versions beside which
    the package opens its files. helps: modules, or calls, that may map what is missing. source: where it was
    read.
    """

    distributions: tuple[str, ...]
    opens: tuple[str, ...]
    costs: str
    source: str
    versions: str = ""
    by: str = ""
    module: str = ""
    beside: str = ""
    both: bool = False
    visible: bool = False
    says: str = ""
    absent: str = ""
    fits: str = ""
    helps: tuple[str, ...] = ()
    platform: str = "linux"


@cache
def rows() -> tuple[Later, ...]:
    """Return every row."""
    data: dict[str, list[dict[str, Any]]] = table("loading/later.toml")
    return msgspec.convert(data["open"], tuple[Later, ...])


def is_known_later(dist: Distribution) -> bool:
    """Return whether a row has what a package opens while it runs."""
    return any(dist.name in row.distributions for row in rows())


def opens_later(dist: Distribution, path: str) -> bool:
    """Return whether a row has a file of a package, which is then no module."""
    opened = (name for row in rows() if dist.name in row.distributions for name in row.opens)
    return any(fnmatch.fnmatch(path, f"*/{name}") for name in opened if "/" in name)


def later(environment: Environment, dist: Distribution) -> tuple[Fault, ...]:
    """Return what a package does not find when it runs, the first library of each row with the others."""
    host = environment.host
    faults: list[Fault] = []
    for row in _rows_of(host, dist):
        other = distribution(host, row.fits.partition(" ")[0]) if row.fits else None
        if other and not holds_for(host, (other.name,), row.fits.partition(" ")[2]):
            words = row.says.replace("{installed}", other.version)
            faults.append(Fault("unmet-requirement", other.version, words, cause=row.costs))
        modules = [row.module] if row.module else [*modules_of(host, dist)[:1]]
        lacking = _lacking(environment, dist, row, modules)
        if not lacking or any(lacking[0].name in (fault.name, *fault.others) for fault in faults):
            continue
        first, *others = lacking
        says = row.absent if row.absent and "/" in first.name else row.says
        words = says.replace("{error}", first.message).replace("{name}", first.name) or first.message
        hint = _hint(environment, dist, row, modules) if row.helps else ""
        names = tuple(dict.fromkeys(fault.name for fault in others if fault.name != first.name))
        name = posixpath.basename(first.name)
        faults.append(Fault("not-opened-later", name, words, first.path, row.costs, hint, others=names))
    return tuple(faults)


def _hint(environment: Environment, dist: Distribution, row: Later, modules: list[str]) -> str:
    """Return which import or call has to come first. A call follows the import of the package's modules."""
    host = environment.host
    known = [name for name in row.helps if distribution(host, name) or preload_of(host, name)]
    orders = {name: [*modules, name] if "(" in name else [name, *modules] for name in known}
    helping = [name for name in known if not _lacking(environment, dist, row, orders[name])]
    calls = " or ".join(f"`{name}`" if "(" in name else f"`import {name}`" for name in helping or known)
    if helping:
        return f"It works where {calls} comes first."
    if known:
        return f"Once it is installed, {calls} has to come first."
    return "Its folder has to be in LD_LIBRARY_PATH."


def _rows_of(host: Host, dist: Distribution) -> Iterator[Later]:
    """Yield the rows that hold for a distribution in its environment."""
    for row in rows():
        if row.platform != host.platform or dist.name not in row.distributions:
            continue
        is_expected = not row.both or is_for_nvidia(host)
        is_beside = not row.beside or fnmatch.filter(distributions(host), row.beside)
        if is_expected and is_beside and holds_for(host, (dist.name,), row.versions):
            yield row


@once_per_host
def has_driver(host: Host) -> bool:
    """Return whether NVIDIA's driver library is found in this environment."""
    return not _driver_faults(host)


@once_per_host
def _driver_faults(host: Host) -> tuple[Fault, ...]:
    return Process(host, str(host.python.get("executable", ""))).open(_DRIVER[0]).faults


def without_driver(host: Host, dist: Distribution) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """Return that a package for NVIDIA's GPUs finds no driver: a fault where there is a GPU, else a note."""
    named = any(dist.name in row.distributions and not row.both for row in rows())
    is_for_gpus = torch_cuda(host) if dist.name == "torch" else named and _FOR_GPUS.search(dist.name)
    if host.platform != "linux" or not is_for_gpus or has_driver(host):
        return (), ()
    if gpus := nvidia_gpus(host):
        costs = f"for the NVIDIA GPU at {gpus[0].address}: {dist.name} uses the CPU only"
        return tuple(replace(f, code="not-opened-later", cause=costs) for f in _driver_faults(host)), ()
    return (), ("No NVIDIA driver is installed here, without which it uses no GPU.",)


_FOR_GPUS = pattern(r"-gpu$|cuda1\d")


@once_per_host
def is_for_nvidia(host: Host) -> bool:
    """Return whether an environment is for NVIDIA's GPUs: by a driver, CUDA's packages or torch's build."""
    packages = any(name.startswith(("nvidia-cublas", "nvidia-cuda-runtime")) for name in distributions(host))
    return packages or bool(torch_cuda(host)) or has_driver(host)


def _lacking(
    environment: Environment, dist: Distribution, row: Later, modules: list[str]
) -> tuple[Fault, ...]:
    """Return what a row's openings fail with in a process in which some modules were imported."""
    host = environment.host
    process = environment.after(modules).copy()
    # A driver that is not here is assumed, with all of its symbols.
    for name in _DRIVER if host.platform == "linux" else ("nvcuda.dll", "nvml.dll"):
        if process.open(name).faults:
            process.by_name[name] = Mapped(name, name, Assumed(name, "cu|nvml", host.machine), None)
    asking = None
    if row.by:
        beside = {posixpath.dirname(mapped.path) for mapped in process.mapped}
        known = providers(host).get(row.by, ("", ""))[1]  # what a library has opened from its own folder
        for path in (*shared_objects(host, dist), *([known] if posixpath.dirname(known) in beside else [])):
            if fnmatch.fnmatch(posixpath.basename(path), row.by):
                process.open(path)
        named = (it for it in process.mapped if fnmatch.fnmatch(posixpath.basename(it.path), row.by))
        asking = next(named, None)
        if asking is None:
            return ()
    opened = partial(closest, process, paths_of=partial(_paths, host), visible=row.visible, asking=asking)
    best = [opened(entry.split(" | ")) for entry in row.opens]
    return tuple(fault for found in best if found for fault in found[1].faults if fault.code != "not-read")


def _paths(host: Host, name: str) -> list[str]:
    """Return the paths, or the name, that a row opens for one of its names."""
    values = placeholders(host)
    is_of_torch = "{torch}" in name
    if is_of_torch and not values["torch"]:
        return []
    name = name.format(**values)
    site = next((f"{folder}/" for folder in python_folders(host) if "site-" in folder), "")
    return matches(host, name) or [f"{site}{name}"] * is_of_torch
