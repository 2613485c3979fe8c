"""What packages open by code of their own when they are imported, as rows of preloads.toml.

Without these rows an extension module whose libraries are in other packages would seem not to load: its
package opens them first, by their paths. A row holds for some versions of a package; `opens` are its steps in
their order. Calls that a program can make, such as `onnxruntime.preload_dlls()`, have rows of the same form.
"""

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from mlbackends.base.specifiers import satisfies
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.frameworks import assigned_text
from mlbackends.host.python.packages import distribution, python_folders
from mlbackends.host.python.requirements import Requirement, required
from mlbackends.loading.imports import Guard, Import, lost_files
from mlbackends.loading.linker import Mapped, Opening, Process
from mlbackends.model.loading import Fault


class Open(Struct, frozen=True, forbid_unknown_fields=True):
    """Files that are opened, one after the other.

    files: patterns below the import folders, where the first match is opened, absolute ones, or names such as
    "libcairo.so.2" that the loader searches for. below: the patterns that each file "FOLDER/NAME" stands for,
    the first with a match is used. one_of: only the first entry that opens counts; "A + B" opens both.
    visible: as RTLD_GLOBAL. every: all matches are opened. when: only after a `try` failed, or if none did.
    named: only if the words of that failure have one of the names. mapped, having: only if a file with this
    in its path is mapped, or such a file installed. missing, fails: what a file does that is not there, or
    cannot be opened. says: what the package then does.
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
    having: a file that the package then has. imports: the modules that are imported first. checks:
    requirements whose versions its code compares with its metadata, and refuses. follows: whether what the
    module's code imports comes after the steps; otherwise the steps are all that matters. source: where it
    was read. platform: that of the files that it opens.
    """

    module: str
    distributions: tuple[str, ...]
    source: str
    versions: str = ""
    having: str = ""
    imports: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
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
        if (row.module, row.platform) != (module, host.platform):
            continue
        has = not row.having or matches(host, row.having)
        if has and holds_for(host, row.distributions, row.versions):
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


def preloaded(host: Host, process: Process, row: Preload) -> list[tuple[Import, Opening]]:
    """Do a row's steps to a process, and return what fails; what certainly does ends the import."""
    failed: list[tuple[Import, Opening]] = []
    tried: Opening | None = None
    for need in _refused(host, row):
        words = f"{row.module} needs {need.name}{need.clauses}; {need.installed} is installed"
        fault = Fault("unmet-requirement", f"{need.name}{need.clauses}", words)
        return [(Import(row.module, "", Guard.NOTHING), Opening((fault,)))]
    for step in row.opens:
        is_due = not step.when or bool(tried) == (step.when == "failed")
        is_mapped = not step.mapped or any(step.mapped in mapped.path for mapped in process.mapped)
        if not (is_due and is_mapped) or (step.having and not matches(host, step.having)):
            continue
        names = [file.rpartition("/")[2] for file in step.files]
        if step.named and tried and not any(name in tried.faults[0].message for name in names):
            return [*failed, (Import(row.module, step.files[0]), tried)]
        for path, opening in _openings(host, process, step):
            does, says = step.fails, step.says.replace("{name}", path)
            words = f"{path}: cannot open shared object file: No such file or directory"
            if opening is None and does == "try":
                opening = Opening((Fault("missing-file", path, words, (path,)),))
            elif opening is None:
                does, name = step.missing, path.rpartition("/")[2]
                dists = filter(None, (distribution(host, name) for name in row.distributions))
                gone = [at for dist in dists for at in lost_files(host, dist) if fnmatchcase(at, f"*/{path}")]
                code = "missing-file" if gone else "missing-library"
                opening = tried or Opening((Fault(code, name, says or words, tuple(gone[:1])),))
            if not opening.faults:
                continue
            if does in ("raise", "part"):
                first, *others = opening.faults
                first = replace(first, cause=says if says != first.message else "") if says else first
                guard = Guard.NOTHING if does == "raise" else Guard.FAILURE
                failed.append((Import(row.module, path, guard), opening._replace(faults=(first, *others))))
            if does == "raise":
                return failed
            if does == "stop":
                break
            tried = opening if does == "try" else tried
    return failed


def _refused(host: Host, row: Preload) -> Iterator[Requirement]:
    """Yield the requirements that the code of a package checks, and that are installed in another version."""
    for dist in filter(None, (distribution(host, name) for name in row.distributions * bool(row.checks))):
        checked = (need for need in required(host, dist) if need.name in row.checks and need.installed)
        yield from (need for need in checked if need.is_met is False)


def _openings(host: Host, process: Process, step: Open) -> Iterator[tuple[str, Opening | None]]:
    """Open the files of a step, and yield how each ended; None for a file that is not there."""
    if step.one_of:
        best = closest(process, step.files, lambda file: matches(host, file), visible=step.visible)
        yield best or (step.files[-1], None)
        return
    for file in step.files:
        paths = matches(host, file, step.below, step.every)
        yield from ((path, process.open(path, visible=step.visible)) for path in paths)
        if not paths:
            yield file, None


def closest(
    process: Process,
    entries: Iterable[str],
    paths_of: Callable[[str], list[str]],
    *,
    visible: bool,
    asking: Mapped | None = None,
) -> tuple[str, Opening] | None:
    """Open entries until one opens, of "A + B" both; return that, else the one with the fewest faults."""
    best: tuple[str, Opening] | None = None
    for entry in entries:
        found: tuple[str, Opening] | None = None
        for path in (path for file in entry.split(" + ") for path in paths_of(file)[:1]):
            found = path, process.open(path, visible=visible, asking=asking)
            if found[1].faults:
                break
        if found and (best is None or len(found[1].faults) < len(best[1].faults)):
            best = found
        if found and not found[1].faults:
            break
    return best


def matches(host: Host, file: str, below: tuple[str, ...] = (), every: bool = False) -> list[str]:
    """Return the files that a pattern of a row finds in the import folders: the first, or all of them.

    A library's name is returned as it is.
    """
    folder, _, name = file.rpartition("/")
    if not folder and name.startswith("lib"):
        return [name]
    found: list[str] = []
    for base in ("",) if file.startswith("/") else python_folders(host):
        for text in below or (file,):
            path = text.format(folder=folder, name=name, **placeholders(host))
            found += host.glob(f"{base}/{path}" if base else path)
            if found and not every:
                return found[:1]
    return found


@once_per_host
def placeholders(host: Host) -> dict[str, str]:
    """Return what rows mean by {cuda}, "13", {torch}, "cuda130", {nvrtc}, "13.0"; "" if unknown."""
    version = torch_cuda(host)
    major, minor = [*(version or torch_cuda(host, "hip")).split("."), ""][:2]
    nvrtc = distribution(host, "nvidia-cuda-nvrtc") or distribution(host, "nvidia-cuda-nvrtc-cu12")
    return {
        "cuda": version.partition(".")[0],
        "torch": f"{'cuda' if version else 'rocm'}{int(major) * 10 + int(minor)}" if minor else "",
        "nvrtc": ".".join(nvrtc.version.split(".")[:2]) if nvrtc else "",
    }
