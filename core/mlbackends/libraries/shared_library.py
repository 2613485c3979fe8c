"""A shared library as its probe declares it: its names, where it lies, and what steers it."""

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import Rule, not_valid, steering
from mlbackends.libraries.search import absent, inside, libraries_named
from mlbackends.model.records import Finding, Library


class SharedLibrary(Struct, frozen=True):
    """Finds every copy of a library, with the variables that steer it and warnings of invalid ones.

    stems, homes, folders, wheels: as in `mlbackends.libraries.search.libraries_named`.
    variables: with the rule of each, as in `mlbackends.host.variables`, or their names alone.
    symbols: functions of which one shows that torch has the library built in.
    missing: what the reason of an absence names; the first stem by default.
    """

    name: str
    stems: tuple[str, ...]
    homes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    variables: Mapping[str, Rule] | tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    missing: str = ""

    def find(
        self,
        host: Host,
        folders: Sequence[str] = (),
        searched: Sequence[str] = (),
        describe: Callable[[Host, Library], Library] | None = None,
    ) -> Finding:
        """Find every copy.

        folders: searched before those that are declared. searched: the folders that the reason of
        an absence names. describe: adds to a copy what its surroundings tell.
        """
        libraries = libraries_named(
            host,
            self.name,
            *self.stems,
            homes=self.homes,
            folders=(*folders, *self.folders),
            wheels=self.wheels,
        )
        if describe:
            libraries = [describe(host, library) for library in libraries]
        if self.symbols:
            libraries += inside(host, self.name, "libtorch_cpu", self.symbols)
        facts = steering(host, self.variables)
        if not libraries:
            reason = absent(host, self.missing or self.stems[0], self.homes, searched)
            return Finding(facts=facts, reasons=(reason,))
        rules = self.variables if isinstance(self.variables, Mapping) else {}
        return Finding(tuple(libraries), facts=facts, warnings=not_valid(host, rules))


def with_file_version(host: Host, library: Library) -> Library:
    """Return a copy with the version in its file's full name: libze_loader.so.1.8.0."""
    match = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", host.realpath(library.path))
    return replace(library, version=match[1]) if match else library
