"""What packages open by name while they run, as rows of later.toml, and what is then not found.

Such a library is in no list of what a file needs, so that importing the package succeeds without it; a
session, a first computation or a device then fails, or the package goes on without the device. Each is opened
in the process that importing the package leaves, by the folders of the file that opens it. What a package
does without has no row. Without an NVIDIA driver, one is assumed: its libraries come with a GPU.
"""

import fnmatch
import posixpath
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import msgspec
from msgspec import Struct

from mlbackends.base.patterns import pattern
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import Distribution, distribution, distributions, python_folders
from mlbackends.loading.environment import Environment, modules_of, providers
from mlbackends.loading.imports import shared_objects
from mlbackends.loading.linker import Mapped, ObjectFile, Opening, Process
from mlbackends.loading.preloads import holds_for, matches, preload_of, torch_cuda
from mlbackends.model.loading import Fault

#: Libraries of NVIDIA's driver, which no package installs.
_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")


class Later(Struct, frozen=True, forbid_unknown_fields=True):
    """What some code of a package opens.

    distributions, versions: which packages this holds for. opens: files below the import folders, or names
    that are searched for, in their order; of "A | B" the first that opens, "A + B" are opened together.
    {nvrtc} is the version of the installed NVRTC as 13.0, {torch} torch's toolkit as cuda130 or rocm72. by:
    the file whose code opens names. module: what the process has imported, if it is not the package's own.
    beside: another package without which nobody expects this to work. both: the package is one for CPUs and
    for GPUs, and this is expected only where something else is for GPUs. visible: opened as RTLD_GLOBAL.
    nearest: of files that differ in CUDA's version the package chooses the nearest of torch's major version.
    costs: what it is for. says: what the package then prints; absent: where a file is not there. fits:
    another package with the only versions beside which the package opens its files. helps: modules, or
    calls, that may map what is missing. platform: that of the files. source:
    where it was read.
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
    nearest: bool = False
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


def later(environment: Environment, dist: Distribution) -> tuple[Fault, ...]:
    """Return what a package does not find when it runs, the first library of each row with the others."""
    host = environment.host
    faults: list[Fault] = []
    for row in rows():
        if row.platform != host.platform or dist.name not in row.distributions:
            continue
        if not holds_for(host, (dist.name,), row.versions):
            continue
        if (row.both and not is_for_nvidia(host)) or not _is_installed(host, row.beside):
            continue
        name, _, clauses = row.fits.partition(" ")
        other = distribution(host, name) if name else None
        if other and not holds_for(host, (name,), clauses):
            words = row.says.replace("{installed}", other.version)
            faults.append(Fault("unmet-requirement", other.version, words, cause=row.costs))
        module = row.module or next(iter(modules_of(host, dist)), "")
        lacking = _lacking(environment, dist, row, (module,) if module else ())
        if not lacking or lacking[0].name in {
            name for fault in faults for name in (fault.name, *fault.others)
        }:
            continue
        first, *others = lacking
        says = row.absent if row.absent and "/" in first.name else row.says
        helping = [
            name
            for name in row.helps
            if _is_installed(host, name) or "(" in name
            if not _lacking(environment, dist, row, (module, name) if "(" in name else (name, module))
        ]
        hint = f"It works where {_calls(helping)} comes first." if helping else ""
        if row.helps and not helping:
            known = [name for name in row.helps if _is_installed(host, name) or preload_of(host, name)]
            hint = f"Once it is installed, {_calls(known)} has to come first." if known else ""
            hint = hint or "Its folder has to be in LD_LIBRARY_PATH."
        faults.append(
            Fault(
                "not-opened-later",
                posixpath.basename(first.name),
                says.replace("{error}", first.message).replace("{name}", first.name) or first.message,
                first.path,
                cause=row.costs,
                hint=hint,
                others=tuple(dict.fromkeys(fault.name for fault in others if fault.name != first.name)),
            )
        )
    return tuple(faults)


def _calls(names: list[str]) -> str:
    return " or ".join(f"`{name}`" if "(" in name else f"`import {name}`" for name in names)


@once_per_host
def has_driver(host: Host) -> bool:
    """Return whether NVIDIA's driver library is found in this environment."""
    return not Process(host, str(host.python.get("executable", ""))).open(_DRIVER[0]).faults


def driver_notes(host: Host, dist: Distribution) -> tuple[str, ...]:
    """Return the note that a package which is for NVIDIA's GPUs alone has no driver here, or nothing."""
    rows_of = [row for row in rows() if dist.name in row.distributions and not row.both]
    if host.platform != "linux" or not rows_of or not _FOR_GPUS.search(dist.name) or has_driver(host):
        return ()
    return ("No NVIDIA driver is installed here, without which it uses no GPU.",)


_FOR_GPUS = pattern(r"-gpu$|cuda1\d")


@once_per_host
def is_for_nvidia(host: Host) -> bool:
    """Return whether an environment is for NVIDIA's GPUs: by a driver, CUDA's packages or torch's build."""
    return bool(
        torch_cuda(host)
        or any(name.startswith(("nvidia-cublas", "nvidia-cuda-runtime")) for name in distributions(host))
        or has_driver(host)
    )


def _is_installed(host: Host, pattern: str) -> bool:
    return not pattern or bool(fnmatch.filter(distributions(host), pattern))


def _lacking(
    environment: Environment, dist: Distribution, row: Later, modules: tuple[str, ...]
) -> tuple[Fault, ...]:
    """Return what a row's openings fail with in a process in which some modules were imported."""
    host = environment.host
    process = environment.after(modules).copy()
    _assume_driver(process)
    asking = None
    if row.by:
        beside = {posixpath.dirname(one.path) for one in process.mapped}
        known = providers(host).get(row.by, ("", ""))[1]  # what a library has opened from its own folder
        paths = [known] if posixpath.dirname(known) in beside else []
        for path in (*shared_objects(host, dist), *paths):
            if fnmatch.fnmatch(posixpath.basename(path), row.by):
                process.open(path)
        mapped = (one for one in process.mapped if fnmatch.fnmatch(posixpath.basename(one.path), row.by))
        asking = next(mapped, None)
        if asking is None:
            return ()
    lacking: tuple[Fault, ...] = ()
    for entry in row.opens:
        tried = [*_tried(host, process, entry, asking, row)]
        if tried and all(opening.faults for opening in tried):
            faults = min(tried, key=lambda opening: len(opening.faults)).faults
            lacking += tuple(fault for fault in faults if fault.code != "not-read")
    return lacking


def _tried(host: Host, process: Process, entry: str, asking: Mapped | None, row: Later) -> Iterator[Opening]:
    """Open the alternatives of an entry until one opens; yield how each ended."""
    for alternative in entry.split(" | "):
        opening = None
        for name in alternative.split(" + "):
            name = name.replace("{nvrtc}", _nvrtc(host))
            paths = [name]
            if "{torch}" in name:
                own = name.replace("{torch}", _torch_build(host))
                lost = next((f"{folder}/{own}" for folder in python_folders(host) if "site-" in folder), own)
                paths = (matches(host, own) or [lost]) if _torch_build(host) else []
            elif "/" in name:
                paths = [_nearest(host, name)] if row.nearest else matches(host, name)
            for path in paths[:1]:
                opening = process.open(path, visible=row.visible, asking=asking)
            if opening and opening.faults:
                break
        if opening:
            yield opening
            if not opening.faults:
                return


def _nearest(host: Host, pattern: str) -> str:
    """Return the file that bitsandbytes chooses for torch's CUDA: the same, the next lower or higher one."""
    version = int(torch_cuda(host).replace(".", "") or 0)
    paths = matches(host, pattern, every=True)
    numbers = {path: int(path.rpartition("cuda")[2].partition(".")[0] or 0) for path in paths}
    same = sorted((path for path in paths if numbers[path] // 10 == version // 10), key=numbers.__getitem__)
    lower = [path for path in same if numbers[path] <= version]
    return (lower[-1:] or same or [pattern.replace("*", str(version))])[0]


def _torch_build(host: Host) -> str:
    """Return the toolkit of the installed torch as file names have it, "cuda130", "" for none."""
    for toolkit, word in (("cuda", "cuda"), ("hip", "rocm")):
        major, _, minor = torch_cuda(host, toolkit).partition(".")
        minor = minor.partition(".")[0]
        if major.isdecimal() and minor.isdecimal():
            return f"{word}{int(major) * 10 + int(minor)}"
    return ""


def _nvrtc(host: Host) -> str:
    dist = distribution(host, "nvidia-cuda-nvrtc") or distribution(host, "nvidia-cuda-nvrtc-cu12")
    return ".".join(dist.version.split(".")[:2]) if dist else ""


class _AssumedSymbols:
    """The symbols of a driver that is not here: it defines all of its own."""

    def __init__(self) -> None:
        self.needs: dict[str, dict[str, bool]] = {}
        self.versions: frozenset[str] = frozenset()
        self.lacking: dict[int, Any] = {}
        self.lacking_by_hash: dict[int, list[int]] = {}

    def may_define(self, hashes: Any) -> Any:
        return hashes

    def defines(self, symbol: Any) -> bool:
        return str(symbol).startswith(("cu", "nvml"))


class _AssumedDriver:
    """The file of a driver that is not here."""

    soname, needed, rpath, runpath = "", (), (), None
    no_default_folders = has_executable_stack = False
    symbols = _AssumedSymbols()


def _assume_driver(process: Process) -> None:
    """Let a process find the driver's libraries without a search, where it would find none."""
    for name in _DRIVER if process.host.platform == "linux" else ("nvcuda.dll", "nvml.dll"):
        if process.open(name).faults:
            process.by_name[name] = Mapped(name, name, cast("ObjectFile", _AssumedDriver()), None)
