"""The environment of the instances: threads, OpenMP, the allocator, and what LD_PRELOAD loads.

A variable that is set already is left as it is, with a warning where its value is another.
Source: ld.so(8); the folders and their order are those of torch 2.13's run_cpu, then Debian's.
"""

import os
from collections.abc import Mapping
from functools import partial
from glob import escape, glob

from mlbackends.base.mounts import call_or
from mlbackends.launch.notices import Notice, Refused, information, warning
from mlbackends.launch.options import Options
from mlbackends.launch.planning import Plan

THREADS = "OMP_NUM_THREADS"
_JEMALLOC_SETTINGS = "oversize_threshold:1,background_thread:true,metadata_thp:auto"
_AFFINITY = "granularity=fine,compact,1,0"
_PACKAGES = {
    "tcmalloc": "conda install -c conda-forge gperftools",
    "jemalloc": "conda install -c conda-forge jemalloc",
    "iomp5": "conda install mkl, or pip install intel-openmp",
}
_NAMED = ("CONDA_PREFIX", "VIRTUAL_ENV")
_SYSTEM = ("/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64")


def child_environment(
    options: Options, plan: Plan, environment: Mapping[str, str]
) -> tuple[dict[str, str], list[Notice]]:
    """Return the whole environment that the instances get, and the notices on it.

    Raises Refused where both allocators are to be preloaded.
    """
    if options.enable_tcmalloc and options.enable_jemalloc:
        raise Refused("Unable to enable TCMalloc and JEMalloc at the same time: give one of them")
    merged = dict(environment)
    entries, notices = preload_entries(environment)
    folders = library_folders(environment)

    def preload(name: str) -> bool:
        if not is_preloaded(name, entries):
            path = find_library(name, folders)
            entries[:0] = [path] if path else []
        return is_preloaded(name, entries)

    is_folder = partial(call_or, False, os.path.isdir)

    def missing(name: str, place: str = "") -> None:
        lacking = f"lib{name}.so was not found{place}, so it is not preloaded"
        notices.append(warning(f"{lacking}; to install it: {_PACKAGES[name]}"))

    if options.enable_tcmalloc or options.enable_jemalloc:
        allocator = "tcmalloc" if options.enable_tcmalloc else "jemalloc"
        if not preload(allocator):
            missing(allocator, f" in {', '.join(filter(is_folder, folders))}")
    elif not (
        is_preloaded("jemalloc", entries)
        or options.use_default_allocator
        or preload("tcmalloc")
        or preload("jemalloc")
    ):
        consequence = "the program keeps its own allocator, which may be slower"
        notices.append(
            warning(f"neither libtcmalloc.so nor libjemalloc.so was found; {consequence}")
        )
    variables: dict[str, str] = {}
    if options.enable_jemalloc and is_preloaded("jemalloc", entries):
        variables["MALLOC_CONF"] = _JEMALLOC_SETTINGS
    variables[THREADS] = str(plan.threads)
    if not options.disable_iomp:
        if preload("iomp5"):
            if not plan.shares_cores:
                variables["KMP_AFFINITY"] = _AFFINITY
            variables["KMP_BLOCKTIME"] = "1"
        else:
            missing("iomp5")
    for name, value in variables.items():
        found = merged.setdefault(name, value)
        if found == value:
            notices.append(information(f"{name}={value}"))
        else:
            stays = f"{name} is {found!r} in the environment, and stays"
            notices.append(warning(f"{stays}; the launcher would set {value!r}"))
    if entries or "LD_PRELOAD" in environment:
        merged["LD_PRELOAD"] = ":".join(entries)
        notices.append(information(f"LD_PRELOAD={merged['LD_PRELOAD']}"))
    return merged, notices


def preload_entries(environment: Mapping[str, str]) -> tuple[list[str], list[Notice]]:
    """Return the entries of LD_PRELOAD that are there; one that names no file is left out, with a warning.

    An entry without a slash is looked up by the loader, and stays.
    """
    entries = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    present = [entry for entry in entries if "/" not in entry or os.path.isfile(entry)]
    return present, [
        warning(f"{entry} doesn't exist. Removing it from LD_PRELOAD.")
        for entry in entries
        if entry not in present
    ]


def library_folders(environment: Mapping[str, str]) -> list[str]:
    """Return where libraries to preload are looked for, the first place first."""
    named = [os.path.join(environment[name], "lib") for name in _NAMED if environment.get(name)]
    home = environment.get("HOME") or os.path.expanduser("~")
    machine = os.uname().machine
    multiarch = [f"/usr/lib/{machine}-linux-gnu", f"/lib/{machine}-linux-gnu"]
    return [*named, "/.local/lib", os.path.join(home, ".local/lib"), *_SYSTEM, *multiarch]


def find_library(name: str, folders: list[str]) -> str:
    """Return the path of lib`name`.so, or of a numbered lib`name`.so.4; "" where neither is.

    In each folder the plain name goes first; it comes with development packages only.
    """
    plain = f"lib{name}.so"

    def find(folder: str) -> str:
        for path in sorted(glob(f"{os.path.join(escape(folder), plain)}*")):
            ending = os.path.basename(path).removeprefix(plain)
            is_numbered = ending[:1] == "." and ending[1:2].isdecimal()
            if (not ending or is_numbered) and os.path.isfile(path):
                return path
        return ""

    return next(filter(None, (call_or("", find, folder) for folder in folders)), "")


def is_preloaded(name: str, entries: list[str]) -> bool:
    """Tell whether an entry is this library, from wherever."""
    return any(os.path.basename(entry).startswith(f"lib{name}.so") for entry in entries)
