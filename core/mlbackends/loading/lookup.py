"""Who needs a library or a symbol, which step of the search finds it, and what has it."""

import posixpath
from collections.abc import Iterable, Iterator

from mlbackends.base.errors import NotALibrary, UnknownName
from mlbackends.host.host import Host
from mlbackends.loading.dynamic_symbols import DynamicSymbols, symbol
from mlbackends.loading.environment import providers
from mlbackends.loading.linker import object_file
from mlbackends.loading.remedies import owner
from mlbackends.model.loading import Definer, Lookup, Need, PackageLoading


def lookup(host: Host, packages: Iterable[PackageLoading], name: str) -> Lookup:
    """Return who needs a library, by its file name, or a symbol, among packages' files, and what has it.

    What defines a symbol is looked for among the installed packages only where none of these files does.
    Raises UnknownName for what nothing needs and nothing has.
    """
    files = {file.path: file for package in packages for file in package.files}
    needs = {path: need for path, file in files.items() for need in file.needs if need.name == name}
    paths = [path for path in files if name in (posixpath.basename(path), path)]
    if needs or paths or name in providers(host):
        if name in providers(host):
            paths.append(providers(host)[name][1])
        found = (*(need.path for need in needs.values() if need.path), *paths)
        return Lookup(name, "library", needs, tuple(_definers(host, dict.fromkeys(found), files)))
    asked = symbol(name)
    tables = dict(_symbols(host, files))
    needs = {
        path: Need(name, step=lacked.version)
        for path, table in tables.items()
        for lacked in table.lacking.values()
        if lacked.name == asked.name
    }
    defining = [path for path, table in tables.items() if table.defines(asked)]
    if not defining:
        others = (path for _, path in providers(host).values() if path not in files)
        defining = [path for path, table in _symbols(host, others) if table.defines(asked)]
    if not (needs or defining):
        known = dict.fromkeys(
            [*providers(host), *(need.name for file in files.values() for need in file.needs)]
        )
        raise UnknownName("library or symbol", name, tuple(known), "backends resolve --tree")
    needs = {path: need for path, need in needs.items() if path not in defining}
    return Lookup(name, "symbol", needs, tuple(_definers(host, defining, files)))


def _symbols(host: Host, paths: Iterable[str]) -> Iterator[tuple[str, DynamicSymbols]]:
    for path in paths:
        try:
            yield path, object_file(host, host.realpath(path)).symbols
        except (NotALibrary, OSError):
            continue


def _definers(host: Host, paths: Iterable[str], loaded: Iterable[str]) -> Iterator[Definer]:
    for path in paths:
        if host.exists(path):
            dist = owner(host, path)
            yield Definer(path, path in loaded, f"{dist.name} {dist.version}" if dist else "")
