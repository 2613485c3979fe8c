"""A folder is a registry: its file names are the names that users type.

Other distributions add to a folder through entry points, such as

    [project.entry-points."mlbackends.probes"]
    our_card = "our_package.our_card"

The files of the folder come first: nobody else's `cpu` takes the place of ours.
"""

import contextlib
import importlib
import os
import sys
from functools import cache
from types import ModuleType
from typing import Any, NoReturn

from mlbackends.base.errors import UnknownName, did_you_mean, nearest, suggestion
from mlbackends.base.mounts import call

#: The other three packages. No string elsewhere in `core` names them; a test checks it.
PROBES = "mlbackends_probes"
KERNELS = "mlbackends_kernels"
CLI = "mlbackends_cli"
_ENTRY_POINTS_LIMIT = 1 << 20
#: The group of entry points of each registry to which other distributions may add.
GROUPS = {
    PROBES: "mlbackends.probes",
    KERNELS: "mlbackends.kernels",
    f"{KERNELS}.peers": "mlbackends.kernels.peers",
    f"{CLI}.commands": "mlbackends.cli.commands",
    f"{CLI}.fleet.commands.fleet": "mlbackends.cli.commands.fleet",
    f"{CLI}.switches.commands.flags": "mlbackends.cli.commands.flags",
    f"{CLI}.attention.commands.sdpa": "mlbackends.cli.commands.sdpa",
    f"{CLI}.trace.commands.trace": "mlbackends.cli.commands.trace",
    f"{CLI}.formats": "mlbackends.cli.formats",
    "mlbackends.audit.hazards": "mlbackends.audit.hazards",
    "mlbackends.audit.device_kinds": "mlbackends.device_kinds",
    "mlbackends.fleet.engines": "mlbackends.engines",
    "mlbackends.tracing.formats": "mlbackends.tracers",
    "mlbackends.tracing.findings": "mlbackends.tracing.findings",
    "mlbackends.tracing.views": "mlbackends.tracing.views",
}


@cache
def names(package: str) -> tuple[str, ...]:
    """Return the names in a registry such as "mlbackends_probes", sorted; `_private` files are left out."""
    return tuple(sorted(own_names(package) | set(_added(package))))


@cache
def load(package: str, name: str) -> ModuleType:
    """Import one entry of a registry by its name.

    Raises UnknownName, with the nearest name, where neither the folder nor an entry point has it.
    """
    if name not in names(package):
        kind = GROUPS.get(package, package).rpartition(".")[2].removeprefix("mlbackends_")
        error = UnknownName(kind.removesuffix("s"), name, names(package))
        if not nearest(name, names(package)):
            # Entries whose first line has the word: blas, openblas and others for lapack.
            titles = {
                entry: (load(package, entry).__doc__ or "").partition("\n")[0] for entry in names(package)
            }
            near = [entry for entry, title in titles.items() if name.lower() in title.lower()]
            if len(near) > 5:  # of everything for GPUs, the GPUs
                near = [name for name in near if getattr(load(package, name), "GROUP", "") == "accelerator"]
            if 0 < len(near) <= 5:
                error.hint = did_you_mean(near)
        raise error
    if name in _rows(package):
        return importlib.import_module(f"{package}._table").load(name)  # type: ignore[no-any-return]
    if name in own_names(package):
        return importlib.import_module(f"{package}.{name}")
    target, _, attribute = _added(package)[name].partition(":")
    try:
        found: Any = importlib.import_module(target)
        for part in attribute.split(".") if attribute else ():
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  code of others; what it raises is in its report
        failure = error
    else:
        return found  # type: ignore[no-any-return]

    def find(host: object) -> NoReturn:
        del host
        raise failure

    module = ModuleType(name, f"{name}: an addition that cannot be imported")
    vars(module).update(find=find, import_error=failure)
    return module


def import_error(entry: object) -> BaseException | None:
    """Return what importing an entry of another distribution raised; None for an entry that is whole."""
    return getattr(entry, "import_error", None) if isinstance(entry, ModuleType) else None


def check_of(name: str, probe: ModuleType) -> str:
    """Return the file that checks the package of a probe, package_checks/NAME.py next to it, or ""."""
    folder = os.path.dirname(getattr(probe, "__file__", None) or "")
    path = os.path.join(folder, "package_checks", f"{name}.py")
    return path if folder and os.path.isfile(path) else ""


@cache
def own_names(package: str) -> frozenset[str]:
    """Return the names of the folder's own files, and of the rows of its table.

    Subfolders count in a folder of commands, and if the package has FOLDERS_ARE_ENTRIES = True.
    """
    found = set()
    module = importlib.import_module(package)
    folders = package.endswith(".commands") or getattr(module, "FOLDERS_ARE_ENTRIES", False)
    for place in module.__path__:
        for entry in os.listdir(place):
            stem, extension = os.path.splitext(entry)
            is_entry = extension == ".py" or (
                folders and os.path.isfile(os.path.join(place, entry, "__init__.py"))
            )
            if is_entry and not stem.startswith("_"):
                found.add(stem)
    return frozenset(found) | _rows(package)


@cache
def _rows(package: str) -> frozenset[str]:
    """Return the names of the entries that are rows of a package's table.json, which its _table.py reads."""
    found = set[str]()
    for place in importlib.import_module(package).__path__:
        path = os.path.join(place, "table.json")
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            import msgspec  # `backends --help` needs no table

            found.update(msgspec.json.decode(file.read(), type=dict[str, msgspec.Raw]))
    return frozenset(found)


def _added(package: str) -> dict[str, str]:
    """Return the modules that installed distributions add to a registry, by name."""
    return _entry_points().get(GROUPS[package], {}) if package in GROUPS else {}


@cache
def _entry_points() -> dict[str, dict[str, str]]:
    """Return the targets of our groups of entry points by name; warns of a group that nothing reads.

    Reads the files themselves: `importlib.metadata` alone takes as long as a whole survey.
    """
    found: dict[str, dict[str, str]] = {}
    for folder in sys.path:
        try:
            entries = call(os.listdir, folder)
        except OSError:
            continue
        for entry in entries:
            if not entry.endswith((".dist-info", ".egg-info")):
                continue
            group = ""
            try:
                lines = call(_lines, os.path.join(folder, entry, "entry_points.txt"))
            except (OSError, ValueError):
                continue
            for line in lines:
                line = line.strip()
                name, equals, target = line.partition("=")
                if line.startswith("["):
                    group = line.strip("[] ")
                    if group.startswith("mlbackends.") and group not in GROUPS.values():
                        import warnings

                        near = suggestion(group, tuple(GROUPS.values()))
                        text = f"{entry} adds to {group}, which nothing reads{near}"
                        warnings.warn(text, stacklevel=2)
                elif equals and line[0] not in "#;" and name.strip().isidentifier():
                    # Brackets after a target list extras, which are for pip.
                    target = target.partition("[")[0].strip().replace(" ", "")
                    found.setdefault(group, {}).setdefault(name.strip(), target)
    return found


def _lines(path: str) -> list[str]:
    """Return the lines of a small file that may have groups of ours, [] for another."""
    if not os.path.isfile(path):  # opening a FIFO would block
        return []
    with open(path, encoding="utf-8") as file:
        text = file.read(_ENTRY_POINTS_LIMIT)
    return text.splitlines() if "[mlbackends." in text.replace(" ", "") else []
