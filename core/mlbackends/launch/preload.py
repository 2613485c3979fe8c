"""LD_PRELOAD of a program: the libraries that stand in it, and where others are found.

Source: ld.so(8); the folders and their order are those of torch 2.13's run_cpu, then Debian's.
"""

import os
from collections.abc import Mapping

from mlbackends.launch.notices import Notice, warning

_NAMED = ("CONDA_PREFIX", "VIRTUAL_ENV")
_SYSTEM = ("/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64")


def preload_entries(environment: Mapping[str, str]) -> tuple[list[str], list[Notice]]:
    """Return the entries of LD_PRELOAD that are there; one that names no file is dropped, and told.

    An entry without a slash is looked up by the loader, and stays.
    """
    entries = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    kept = [entry for entry in entries if "/" not in entry or os.path.isfile(entry)]
    notices = [
        warning(f"{entry} doesn't exist. Removing it from LD_PRELOAD.")
        for entry in entries
        if entry not in kept
    ]
    return kept, notices


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
    for folder in folders:
        plain = os.path.join(folder, f"lib{name}.so")
        if os.path.isfile(plain):
            return plain
        try:
            found = sorted(
                file
                for file in os.listdir(folder)
                if file.startswith(f"lib{name}.so.") and file[len(name) + 7 :][:1].isdecimal()
            )
        except OSError:
            continue
        paths = [os.path.join(folder, file) for file in found]
        if path := next((path for path in paths if os.path.isfile(path)), ""):
            return path
    return ""


def is_preloaded(name: str, entries: list[str]) -> bool:
    """Tell whether an entry is this library, from wherever."""
    return any(os.path.basename(entry).startswith(f"lib{name}.so") for entry in entries)
