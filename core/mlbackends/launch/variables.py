"""The environment of the instances: threads, OpenMP, the allocator, and what LD_PRELOAD loads.

A variable that is set already stays as it is, with a warning if its value differs.
Source: ld.so(8); the folders and their order are those of torch 2.13's run_cpu, then Debian's.
"""

import os
from collections.abc import Mapping
from glob import escape, glob

from mlbackends.base.mounts import call_or
from mlbackends.base.notices import Notice, information, warning
from mlbackends.launch.errors import Refused
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


def child_environment(
    options: Options, plan: Plan, environment: Mapping[str, str]
) -> tuple[dict[str, str], list[Notice]]:
    """Return the whole environment of the instances, and the notices about it.

    Raises Refused if both allocators are requested.
    """
    if options.enable_tcmalloc and options.enable_jemalloc:
        raise Refused("Unable to enable TCMalloc and JEMalloc at the same time: give one of them")
    entries = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    folders = library_folders(environment)
    notices: list[Notice] = []
    variables: dict[str, str] = {}

    def preload(name: str) -> bool:
        if not is_preloaded(name, entries):
            path = find_library(name, folders)
            entries[:0] = [path] if path else []
        return is_preloaded(name, entries)

    requested = [name for name in ("tcmalloc", "jemalloc") if getattr(options, f"enable_{name}")]
    keeps_its_own = requested or options.use_default_allocator or is_preloaded("jemalloc", entries)
    if not (keeps_its_own or preload("tcmalloc") or preload("jemalloc")):
        consequence = "the program keeps its own allocator, which may be slower"
        notices.append(
            warning(f"neither libtcmalloc.so nor libjemalloc.so was found; {consequence}")
        )
    for name in (*requested, *(() if options.disable_iomp else ("iomp5",))):
        if not preload(name):
            notices.append(
                warning(
                    f"lib{name}.so was not found, so it is not preloaded; to install it: {_PACKAGES[name]}"
                )
            )
        elif name == "jemalloc":
            variables["MALLOC_CONF"] = _JEMALLOC_SETTINGS
        elif name == "iomp5":
            if not plan.shares_cores:
                variables["KMP_AFFINITY"] = _AFFINITY
            variables["KMP_BLOCKTIME"] = "1"
    variables[THREADS] = str(plan.threads)
    merged = {**variables, **environment}
    for name, value in variables.items():
        if merged[name] == value:
            notices.append(information(f"{name}={value}"))
        else:
            kept = f"{name} is {merged[name]!r} in the environment and is not changed"
            notices.append(warning(f"{kept}; the launcher would set {value!r}"))
    if entries:
        merged["LD_PRELOAD"] = ":".join(entries)
        notices.append(information(f"LD_PRELOAD={merged['LD_PRELOAD']}"))
    return merged, notices


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
