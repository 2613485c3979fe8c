"""The environment of the instances: threads, OpenMP, the allocator.

A variable that is set already is left as it is, and told where its value is another.
"""

import os
from collections.abc import Callable, Mapping

from mlbackends.launch.notices import Notice, information, warning
from mlbackends.launch.options import Options
from mlbackends.launch.planning import Plan
from mlbackends.launch.preload import find_library, is_preloaded, library_folders, preload_entries
from mlbackends.launch.refusals import Refused

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
    """Return the whole environment that the instances get, and what is to be told of it.

    Raises Refused where both allocators are asked for.
    """
    if options.enable_tcmalloc and options.enable_jemalloc:
        raise Refused("Unable to enable TCMalloc and JEMalloc at the same time: give one of them")
    made = dict(environment)
    entries, notices = preload_entries(environment)
    folders = library_folders(environment)

    def preload(name: str) -> bool:
        if is_preloaded(name, entries):
            return True
        path = find_library(name, folders)
        if path:
            entries.insert(0, path)
        return bool(path)

    wanted: dict[str, str] = {}
    allocators = [name for name in ("tcmalloc", "jemalloc") if is_preloaded(name, entries)]
    if not allocators or options.enable_tcmalloc or options.enable_jemalloc:
        notices += _preload_allocator(options, preload, folders)
    if options.enable_jemalloc and is_preloaded("jemalloc", entries):
        wanted["MALLOC_CONF"] = _JEMALLOC_SETTINGS
    wanted["OMP_NUM_THREADS"] = str(plan.threads)
    if not options.disable_iomp:
        if preload("iomp5"):
            if not plan.shares_cores:
                wanted["KMP_AFFINITY"] = _AFFINITY
            wanted["KMP_BLOCKTIME"] = "1"
        else:
            notices.append(_missing("iomp5"))
    for name, value in wanted.items():
        notices += _set(made, name, value)
    if entries or "LD_PRELOAD" in environment:
        made["LD_PRELOAD"] = ":".join(entries)
        notices.append(information(f"LD_PRELOAD={made['LD_PRELOAD']}"))
    return made, notices


def _preload_allocator(
    options: Options, preload: Callable[[str], bool], folders: list[str]
) -> list[Notice]:
    for name, is_asked in (
        ("tcmalloc", options.enable_tcmalloc),
        ("jemalloc", options.enable_jemalloc),
    ):
        if is_asked:
            looked = ", ".join(folder for folder in folders if os.path.isdir(folder))
            return [] if preload(name) else [_missing(name, f" in {looked}")]
    if options.use_default_allocator or preload("tcmalloc") or preload("jemalloc"):
        return []
    return [
        warning(
            "neither libtcmalloc.so nor libjemalloc.so was found; the program keeps its own allocator, "
            "which may be slower",
        )
    ]


def _missing(name: str, where: str = "") -> Notice:
    return warning(
        f"lib{name}.so was not found{where}, so it is not preloaded; "
        f"to install it: {_PACKAGES[name]}",
    )


def _set(made: dict[str, str], name: str, value: str) -> list[Notice]:
    found = made.setdefault(name, value)
    if found == value:
        return [information(f"{name}={value}")]
    return [
        warning(
            f"{name} is {found!r} in the environment, and stays; the launcher would set {value!r}",
        )
    ]
