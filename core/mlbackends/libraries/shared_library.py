"""A shared library as its probe declares it: its names, where it lies, and what it is built into."""

import re
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import not_valid, steering
from mlbackends.libraries.consumers import marked
from mlbackends.libraries.search import absent, inside, libraries_named
from mlbackends.model.records import Finding, Library


class SharedLibrary(Struct, frozen=True):
    """Finds every copy of a library, with the variables that steer it and warnings of invalid ones.

    stems, homes, wheels: as in `mlbackends.libraries.search.libraries_named`.
    folders: as there; "$MKLROOT" at the beginning of one is the value of that variable, without which the
    folder is left out, and "{machine}" the processor as the kernel spells it.
    symbols: functions of which one shows that torch has the library built in.
    missing: what the reason of an absence names; the first stem by default.
    describe: adds to a copy what its surroundings tell.
    """

    name: str
    stems: tuple[str, ...]
    homes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    missing: str = ""
    describe: Callable[[Host, Library], Library] | None = None

    def find(self, host: Host) -> Finding:
        """Find every copy."""
        folders = []
        for folder in self.folders:
            variable, slash, below = folder.partition("/")
            home = host.env(variable[1:]).rstrip("/")
            if home or not variable:
                folders.append(f"{home}{slash}{below}".replace("{machine}", host.machine))
        libraries = libraries_named(
            host, self.name, *self.stems, homes=self.homes, folders=folders, wheels=self.wheels
        )
        if self.describe:
            libraries = [self.describe(host, library) for library in libraries]
        if self.symbols:
            libraries += inside(host, self.name, "libtorch_cpu", self.symbols)
        libraries = marked(host, libraries)
        facts = steering(host, self.name.lower())
        if not libraries:
            # The system's own are among the loader's folders, which the reason names anyway.
            customary = [folder for folder in folders if not folder.startswith("/usr/")]
            reason = absent(host, self.missing or self.stems[0], self.homes, customary)
            return Finding(facts=facts, reasons=(reason,))
        warnings = not_valid(host, self.name.lower())
        return Finding(tuple(libraries), facts=facts, warnings=warnings)


def with_file_version(host: Host, library: Library) -> Library:
    """Return a copy with the version in its file's full name: libze_loader.so.1.8.0."""
    match = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", host.realpath(library.path))
    return replace(library, version=match[1]) if match else library
