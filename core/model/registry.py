"""A folder is a registry: its file names are the names that users type.

Other distributions add to a folder through entry points of the group `mlbackends.FOLDER`, such as

    [project.entry-points."mlbackends.probes"]
    our_card = "our_package.our_card"
"""

import importlib
import os
import sys
from functools import cache
from types import ModuleType

from mlbackends.model.errors import UnknownName


@cache
def names(package: str) -> tuple[str, ...]:
    """Return the names in a registry such as "probes", sorted; `_private` files are left out."""
    found = set(_added(package))
    for folder in importlib.import_module(f"mlbackends.{package}").__path__:
        for entry in os.listdir(folder):
            stem, extension = os.path.splitext(entry)
            if extension == ".py" and not stem.startswith("_"):
                found.add(stem)
    return tuple(sorted(found))


@cache
def load(package: str, name: str) -> ModuleType:
    """Import one entry of a registry by its name.

    Raises UnknownName, with the nearest name, where neither the folder nor an entry point has it.
    """
    if name not in names(package):
        raise UnknownName(package.rpartition(".")[2].removesuffix("s"), name, names(package))
    return importlib.import_module(_added(package).get(name) or f"mlbackends.{package}.{name}")


@cache
def _added(package: str) -> dict[str, str]:
    """Return the modules that installed distributions add to a registry, by name.

    Reads the entry points themselves: `importlib.metadata` alone takes as long as a whole survey.
    """
    group = f"[mlbackends.{package}]"
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            if not entry.endswith(".dist-info"):
                continue
            try:
                with open(
                    os.path.join(folder, entry, "entry_points.txt"), encoding="utf-8"
                ) as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            if group in text:
                section = text.partition(group)[2].partition("\n[")[0]
                pairs = [line.split("=", 1) for line in section.splitlines() if "=" in line]
                found.update({name.strip(): module.strip() for name, module in pairs})
    return found
