"""A folder is a registry: its file names are the names that users type.

Third parties add to a folder through entry points of the group `mlbackends.FOLDER`; those are read
only by `names(..., installed=True)` and by `load` for a name that the folder lacks, since reading
them costs more than all the rest of start-up.
"""

import importlib
import os
from functools import cache
from types import ModuleType

from mlbackends.model.errors import UnknownName


@cache
def names(package: str) -> tuple[str, ...]:
    """Return the names in a registry such as "probes", sorted; `_private` files are left out."""
    folders = importlib.import_module(f"mlbackends.{package}").__path__
    found = set()
    for folder in folders:
        for entry in os.listdir(folder):
            stem, extension = os.path.splitext(entry)
            if extension == ".py" and not stem.startswith("_"):
                found.add(stem)
    return tuple(sorted(found))


def load(package: str, name: str) -> ModuleType:
    """Import one file of a registry by its name.

    Raises UnknownName, with the nearest name, where neither the folder nor an entry point has it.
    """
    if name in names(package):
        return importlib.import_module(f"mlbackends.{package}.{name}")
    for entry in _entry_points(package):
        if entry.name == name:
            return entry.load()  # type: ignore[no-any-return]
    raise UnknownName(package.removesuffix("s"), name, names(package))


def installed_names(package: str) -> tuple[str, ...]:
    """Return the names that other distributions add through entry points."""
    return tuple(sorted({entry.name for entry in _entry_points(package)} - set(names(package))))


def _entry_points(package: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    from importlib.metadata import entry_points

    return entry_points(group=f"mlbackends.{package}")
