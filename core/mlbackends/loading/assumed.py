"""Libraries of another machine that are not read: they are assumed to be there, with what is theirs by name.

A versioned symbol is linked from a library, which the file that lacks it names; of the others the beginnings
of their names show it, as assumed.toml has them, or the library of that name on this machine.
"""

import re
from collections.abc import Collection, KeysView
from contextlib import suppress

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host
from mlbackends.loading.dynamic_symbols import DynamicSymbols, Symbol
from mlbackends.loading.linker import ObjectFile, cached_paths, object_file

#: What an interpreter defines.
PYTHON = "_?Py"


class _Symbols(DynamicSymbols):
    def __init__(self, name: str, beginnings: str, like: DynamicSymbols | None) -> None:
        self.lacking, self.lacking_by_hash, self.needs, self.versions = {}, {}, {}, frozenset()
        self._own, self._begins, self._like = name, re.compile((beginnings or "(?!)").encode()), like

    def may_define(self, hashes: KeysView[int]) -> Collection[int]:
        """Return all, as what they are of is not known."""
        return hashes

    def defines(self, symbol: Symbol) -> bool:
        """Return whether a symbol is linked from this library, or is one of it by its name."""
        if symbol.file:
            return symbol.file == self._own
        return bool(self._begins.match(symbol.name)) or bool(self._like and self._like.defines(symbol))


class Assumed(ObjectFile):
    """A library that is assumed to be on a machine. here: one that may have a file of that name."""

    def __init__(self, name: str, beginnings: str, machine: str, here: Host | None = None) -> None:
        self.machine, self.bits, self.soname, self.needed = machine, 64, name, ()
        like = None
        if here and (paths := cached_paths(here, here.machine).get(name)):
            with suppress(NotALibrary, OSError):
                like = object_file(here, here.realpath(paths[0])).symbols
        self.symbols = _Symbols(name, beginnings, like)
