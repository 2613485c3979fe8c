"""What packages open by code of their own when they are imported, as rows of preloads.toml.

Without these rows an extension module whose libraries are in other packages would seem not to load: its
package opens them first, by their paths. A row holds for some versions of a package; `opens` are its steps in
their order. Calls that a program can make, such as `onnxruntime.preload_dlls()`, have rows of the same form.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.frameworks import assigned_text
from mlbackends.host.python.packages import distribution, python_folders
from mlbackends.host.python.requirements import satisfies
from mlbackends.loading.imports import Import
from mlbackends.loading.linker import Opening, Process
from mlbackends.model.loading import Fault


class Open(Struct, frozen=True, forbid_unknown_fields=True):
    """Files that are opened, one after the other.

    files: patterns below the import folders, where the first match is opened, or absolute ones; {cuda} is the
    CUDA major version of the installed torch. below: the patterns that each file "FOLDER/NAME" stands for,
    the first with a match is used. one_of: only the first entry that opens counts; "A + B" opens both.
    visible: as RTLD_GLOBAL. every: all matches are opened. when: the step runs only after a `try` failed, or
    only if none did. named: only if the words of that failure have one of the names. mapped: only if a file
    with this in its path is mapped. having: only if such a file is installed. missing: what a file that
    is not there does. fails: what one that cannot be opened does. says: what the package then does.
    """

    files: tuple[str, ...]
    below: tuple[str, ...] = ()
    one_of: bool = False
    visible: bool = False
    every: bool = False
    when: Literal["", "failed", "opened"] = ""
    named: bool = False
    mapped: str = ""
    having: str = ""
    missing: Literal["skip", "stop", "raise"] = "skip"
    fails: Literal["raise", "skip", "stop", "try", "part"] = "raise"
    says: str = ""


class Preload(Struct, frozen=True, forbid_unknown_fields=True):
    """What importing a module does before, or instead of, what its Python code shows.

    module: its name, or a call. distributions: those that install the module. versions: for which this holds.
    having: a file that the package then has. imports: the modules that are imported first. follows: whether
    what the module's code imports comes after the steps; otherwise the steps are all that matters. source:
    where it was read. platform: that of the files that it opens.
    """

    module: str
    distributions: tuple[str, ...]
    source: str
    versions: str = ""
    having: str = ""
    imports: tuple[str, ...] = ()
    opens: tuple[Open, ...] = field(default_factory=tuple)
    follows: bool = False
    platform: str = "linux"


@cache
def rows() -> tuple[Preload, ...]:
    """Return every row."""
    data: dict[str, list[dict[str, Any]]] = table("loading/preloads.toml")
    return msgspec.convert(data["package"], tuple[Preload, ...])


@once_per_host
def preload_of(host: Host, module: str) -> Preload | None:
    """Return the row that holds for the installed version of a module, or for a call; None without one."""
    for row in rows():
        if row.module != module or row.platform != host.platform:
            continue
        if holds_for(host, row.distributions, row.versions) and _has(host, row.having):
            return row
    return None


def holds_for(host: Host, names: tuple[str, ...], versions: str) -> str:
    """Return which of some distributions is installed in one of some versions, "" for none."""
    for name in names:
        dist = distribution(host, name)
        if dist and (not versions or satisfies(dist.version.partition("+")[0], versions)):
            return dist.name
    return ""


@once_per_host
def torch_cuda(host: Host, toolkit: str = "cuda") -> str:
    """Return the version of CUDA, or of HIP as "hip", that the installed torch is built for, "" for none."""
    texts = (host.read(f"{folder}/torch/version.py") for folder in python_folders(host))
    return assigned_text(next(filter(None, texts), ""), toolkit)


def _has(host: Host, pattern: str) -> bool:
    return not pattern or any(host.glob(f"{folder}/{pattern}") for folder in python_folders(host))


def preloaded(host: Host, process: Process, row: Preload) -> list[tuple[Import, Opening]]:
    """Do a row's steps to a process, and return what fails; what certainly does ends the import."""
    failed: list[tuple[Import, Opening]] = []
    tried: Opening | None = None

    def note(opening: Opening, path: str, says: str, is_certain: bool = True) -> None:
        faults = opening.faults
        if says and faults:
            faults = (replace(faults[0], cause=says), *faults[1:])
        failed.append((Import(row.module, path, is_certain, row.source), opening._replace(faults=faults)))

    for step in row.opens:
        if (step.when == "failed" and not tried) or (step.when == "opened" and tried):
            continue
        if step.mapped and not any(step.mapped in mapped.path for mapped in process.mapped):
            continue
        if not _has(host, step.having):
            continue
        if step.named and tried and not _is_named(step, tried.faults[0].message):
            note(tried, step.files[0], "")
            return failed
        if step.one_of:
            path, opening = _first_that_opens(host, process, step)
            if opening and opening.faults and step.fails in ("raise", "part"):
                note(opening, path, step.says, step.fails == "raise")
                if step.fails == "raise":
                    return failed
            continue
        for file in step.files:
            paths = matches(host, file, step.below, step.every)
            if not paths and step.missing == "raise":
                lost = Fault("missing-library", file.rpartition("/")[2], step.says.replace("{name}", file))
                opening = tried or Opening(None, (lost,))
                note(opening, file, step.says.replace("{name}", file) if tried else "")
                return failed
            if not paths and step.fails == "try":
                message = f"{file}: cannot open shared object file: No such file or directory"
                tried = Opening(None, (Fault("missing-file", file, message, (file,)),))
            ends = not paths and step.missing == "stop"
            for path in paths:
                opening = process.open(path, visible=step.visible)
                if not opening.faults:
                    continue
                if step.fails == "try":
                    tried = opening
                elif step.fails in ("raise", "part"):
                    note(opening, path, step.says, step.fails == "raise")
                    if step.fails == "raise":
                        return failed
                ends = ends or step.fails == "stop"
            if ends:
                break
    return failed


def _is_named(step: Open, message: str) -> bool:
    return any(name.rpartition("/")[2] in message for name in step.files)


def matches(host: Host, file: str, below: tuple[str, ...] = (), every: bool = False) -> list[str]:
    """Return the files that a pattern of a row finds in the import folders: the first, or all of them."""
    folder, _, name = file.rpartition("/")
    values = {"{folder}": folder, "{name}": name, "{cuda}": torch_cuda(host).partition(".")[0]}
    found: list[str] = []
    for base in ("",) if file.startswith("/") else python_folders(host):
        for pattern in below or (file,):
            for key, value in values.items():
                pattern = pattern.replace(key, value)
            paths = host.glob(f"{base}/{pattern}" if base else pattern)
            found += paths
            if paths and not every:
                return paths[:1]
    return found


def _first_that_opens(host: Host, process: Process, step: Open) -> tuple[str, Opening | None]:
    """Open a step's entries until one opens; return the one that came closest, None without a file."""
    best: tuple[str, Opening | None] = ("", None)
    for path, opening in _tried(host, process, step):
        if best[1] is None or len(opening.faults) < len(best[1].faults):
            best = path, opening
        if not opening.faults:
            break
    return best


def _tried(host: Host, process: Process, step: Open) -> Iterator[tuple[str, Opening]]:
    for entry in step.files:
        opening = None
        for file in entry.split(" + "):
            for path in matches(host, file)[:1]:
                opening = process.open(path, visible=step.visible)
            if opening and opening.faults:
                break
        if opening:
            yield path, opening
