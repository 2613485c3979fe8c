"""Who needs a library or a symbol, which step of the search finds it, and what has it."""

import posixpath
from collections.abc import Iterable

from mlbackends.base.errors import UnknownName
from mlbackends.host.host import Host
from mlbackends.loading.dynamic_symbols import symbol
from mlbackends.loading.environment import Environment, providers
from mlbackends.loading.remedies import elf, owner
from mlbackends.model.loading import Lookup, Need, PackageLoading


def lookup(host: Host, packages: Iterable[PackageLoading], name: str) -> Lookup:
    """Return who needs a library, by its file name, or a symbol, among packages' files, and what has it.

    What defines a symbol is looked for in the interpreter and among the installed packages only where none of
    these files does.
    Raises UnknownName for what nothing needs and nothing has.
    """
    files = {file.path: file for package in packages for file in package.files}
    provided = {known: path for known, (_, path) in providers(host).items()}
    needs = {path: need for path, file in files.items() for need in file.needs if need.name == name}
    paths = [path for path in files if name in (posixpath.basename(path), path)]
    paths = [*(need.path for need in needs.values()), *paths, *([provided[name]] if name in provided else [])]
    kind = "library" if needs or paths else "symbol"
    if kind == "symbol":
        asked = symbol(name)
        tables = {path: file.symbols for path in files if (file := elf(host, path))}
        paths = [path for path, table in tables.items() if table.defines(asked)]
        needs = {
            path: Need(name, step=lacked.version)
            for path, table in tables.items()
            if path not in paths
            for lacked in table.lacking.values()
            if lacked.name == asked.name
        }
        started = [mapped.path for mapped in Environment(host).start.mapped]
        others = [path for path in (*started, *provided.values()) if path not in files and not paths]
        paths += [path for path in others if (file := elf(host, path)) and file.symbols.defines(asked)]
    if not (needs or paths):
        known = [*provided, *(need.name for file in files.values() for need in file.needs)]
        raise UnknownName("library or symbol", name, tuple(dict.fromkeys(known)), "backends resolve --tree")
    owners = {path: owner(host, path) for path in paths if path and host.exists(path)}
    definers = {path: f"{dist.name} {dist.version}" if dist else "" for path, dist in owners.items()}
    return Lookup(name, kind, needs, definers)
