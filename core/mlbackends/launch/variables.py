"""The environment of the instances: threads, OpenMP, the allocator, and what LD_PRELOAD loads.

A variable that is set already stays as it is, with a warning if its value differs.
Source: ld.so(8); the folders and their order are those of torch 2.13's run_cpu, then Debian's.
"""

import os
from collections.abc import Mapping
from glob import escape, glob

from mlbackends.base.mounts import call_or
from mlbackends.base.notices import Notice, warning
from mlbackends.launch.options import Options, Refused
from mlbackends.launch.planning import Plan

THREADS = "OMP_NUM_THREADS"
#: The libraries that can be preloaded, and the variables that are set for each.
_SETTINGS = {
    "tcmalloc": {},
    "jemalloc": {"MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto"},
    "iomp5": {"KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1"},
}


def child_environment(
    options: Options, plan: Plan, environment: Mapping[str, str]
) -> tuple[dict[str, str], list[Notice]]:
    """Return the whole environment of the first instance, and the notices about it.

    Raises Refused if both allocators are requested.
    """
    requested = [name for name in ("tcmalloc", "jemalloc") if getattr(options, f"enable_{name}")]
    if len(requested) > 1:
        raise Refused("Unable to enable TCMalloc and JEMalloc at the same time: give one of them")
    entries = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    folders = library_folders(environment)
    notices: list[Notice] = []

    def preload(name: str) -> bool:
        if not is_preloaded(name, entries):
            path = find_library(name, folders)
            entries[:0] = [path] if path else []
        return is_preloaded(name, entries)

    keeps_its_own = requested or options.use_default_allocator or is_preloaded("jemalloc", entries)
    if not (keeps_its_own or preload("tcmalloc") or preload("jemalloc")):
        consequence = "the program keeps its own allocator, which may be slower"
        notices.append(warning(f"neither libtcmalloc.so nor libjemalloc.so was found; {consequence}"))
    variables = {THREADS: str(len(plan.instances[0].cpus))}
    for name in (*requested, *(() if options.disable_iomp else ("iomp5",))):
        if preload(name):
            variables |= _SETTINGS[name]
        else:
            notices.append(warning(f"lib{name}.so was not found, so it is not preloaded"))
    if plan.shares_cores:
        variables.pop("KMP_AFFINITY", None)
    for name, value in variables.items():
        if environment.get(name, value) != value:
            kept = f"{name} is {environment[name]!r} in the environment and is not changed"
            notices.append(warning(f"{kept}; the launcher would set {value!r}"))
    preloads = {"LD_PRELOAD": ":".join(entries)} if entries else {}
    return {**variables, **environment, **preloads}, notices


def library_folders(environment: Mapping[str, str]) -> list[str]:
    """Return the folders that may contain a library to preload, the preferred one first."""
    named = filter(None, (environment.get(name) for name in ("CONDA_PREFIX", "VIRTUAL_ENV")))
    home = environment.get("HOME") or os.path.expanduser("~")
    machine = os.uname().machine
    return [
        *(os.path.join(folder, "lib") for folder in named),
        "/.local/lib",
        os.path.join(home, ".local/lib"),
        *("/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64"),
        *(f"/usr/lib/{machine}-linux-gnu", f"/lib/{machine}-linux-gnu"),
    ]


def find_library(name: str, folders: list[str]) -> str:
    """Return the path of lib`name`.so, or of a numbered lib`name`.so.4; "" if neither exists.

    In each folder the plain name is preferred; only development packages install it.
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
    """Return whether an entry of LD_PRELOAD is this library, from any folder."""
    return any(os.path.basename(entry).startswith(f"lib{name}.so") for entry in entries)
