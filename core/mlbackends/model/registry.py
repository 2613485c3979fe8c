"""A folder is a registry: its file names are the names that users type.

Other distributions add to a folder through entry points, such as

    [project.entry-points."mlbackends.probes"]
    our_card = "our_package.our_card"

The files of the folder come first: nobody else's `cpu` takes the place of ours.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from mlbackends.model.errors import UnknownName

if TYPE_CHECKING:
    from mlbackends.model.records import Fact

_ENTRY_POINTS_LIMIT = 1 << 20
#: Groups of entry points that are not the name of the package, with "mlbackends." before it.
_GROUPS = {
    "mlbackends.audit.device_kinds": "mlbackends.device_kinds",
    "mlbackends.tracing.formats": "mlbackends.tracers",
}


@cache
def names(package: str) -> tuple[str, ...]:
    """Return the names in a registry such as "mlbackends_probes", sorted; `_private` files are left out."""
    return tuple(sorted(_own(package) | set(_added(package))))


@cache
def load(package: str, name: str) -> ModuleType:
    """Import one entry of a registry by its name.

    Raises UnknownName, with the nearest name, where neither the folder nor an entry point has it.
    """
    if name not in names(package):
        entry = _GROUPS.get(package, package).rpartition(".")[2].removeprefix("mlbackends_")
        raise UnknownName(entry.removesuffix("s"), name, names(package))
    if name in _own(package):
        return importlib.import_module(f"{package}.{name}")
    target, _, attribute = _added(package)[name].partition(":")
    try:
        found: Any = importlib.import_module(target)
        for part in attribute.split(".") if attribute else ():
            found = getattr(found, part)
    except Exception as error:  # noqa: BLE001  foreign code; what it raises stands in its report
        return _broken(name, error)
    return found  # type: ignore[no-any-return]


def _broken(name: str, error: Exception) -> ModuleType:
    """Return what stands for an entry that cannot be imported: its `find` raises the error."""

    def find(host: object) -> NoReturn:
        del host
        raise error

    module = ModuleType(name, f"{name}: an addition that cannot be imported")
    module.find = find  # type: ignore[attr-defined]
    module.import_error = error  # type: ignore[attr-defined]
    return module


def import_error(entry: object) -> Exception | None:
    """Return what importing an entry of another distribution raised; None for an entry that is whole."""
    return getattr(entry, "import_error", None) if isinstance(entry, ModuleType) else None


@cache
def _own(package: str) -> frozenset[str]:
    """Return the names of the folder's own files.

    Subfolders count where the package says FOLDERS_ARE_ENTRIES = True.
    """
    found = set()
    module = importlib.import_module(package)
    folders = getattr(module, "FOLDERS_ARE_ENTRIES", False)
    for place in module.__path__:
        for entry in os.listdir(place):
            stem, extension = os.path.splitext(entry)
            is_entry = extension == ".py" or (
                folders and os.path.isfile(os.path.join(place, entry, "__init__.py"))
            )
            if is_entry and not stem.startswith("_"):
                found.add(stem)
    return frozenset(found)


@cache
def _added(package: str) -> dict[str, str]:
    """Return the modules that installed distributions add to a registry, by name.

    Reads the entry points themselves: `importlib.metadata` alone takes as long as a whole survey.
    """
    group = _GROUPS.get(package) or package.replace("mlbackends_", "mlbackends.", 1)
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            if entry.endswith((".dist-info", ".egg-info")):
                text = _text(os.path.join(folder, entry, "entry_points.txt"))
                for name, target in _section(text, group) if group in text else ():
                    found.setdefault(name, target)
    return found


def _text(path: str) -> str:
    """Return a small regular file's text, "" where it is none: opening a FIFO would wait for ever."""
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read(_ENTRY_POINTS_LIMIT)
    except (OSError, ValueError):
        return ""


def _section(text: str, group: str) -> Iterator[tuple[str, str]]:
    """Yield the names and targets of one group; what stands in brackets behind a target is for pip."""
    inside = False
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            inside = line.strip("[] ") == group
        elif inside and line[:1] not in ("#", ";") and "=" in line:
            name, _, target = line.partition("=")
            if name.strip().isidentifier():
                yield name.strip(), target.partition("[")[0].strip().replace(" ", "")


_KINDS: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "list[str]": list[str],
    "dict[str, str]": dict[str, str],
    "list[dict[str, str]]": list[dict[str, str]],
    "list[dict[str, int | str]]": list[dict[str, int | str]],
    "list[dict[str, int | list[int]]]": list[dict[str, int | list[int]]],
    "list[dict[str, list[int] | str | int]]": list[dict[str, list[int] | str | int]],
}


def read_facts(probe_file: str) -> "tuple[Fact, ...]":
    """Return the facts that the JSON file beside a probe declares: cpu.json for cpu.py.

    For a probe of so many facts that they would hide what it does.
    """
    # Here, since whoever only lists names, as --help does, needs no record.
    import msgspec
    from msgspec.structs import replace

    from mlbackends.model.records import Fact, FactValue

    kinds = {**_KINDS, "list[dict[str, FactValue]]": list[dict[str, FactValue]]}
    with open(f"{probe_file.removesuffix('.py')}.json", "rb") as file:
        facts = msgspec.json.decode(file.read(), type=tuple[Fact, ...])
    return tuple(replace(fact, kind=kinds[fact.kind]) for fact in facts)


@cache
def facts_of(probe: str) -> "dict[str, Fact]":
    """Return the facts that a probe declares, by name; {} for one that is not here."""
    if probe not in names("mlbackends_probes"):
        return {}
    return {fact.name: fact for fact in getattr(load("mlbackends_probes", probe), "FACTS", ())}
