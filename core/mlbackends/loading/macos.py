"""What dyld, the loader of macOS, would do in a process, from files alone.

A file is taken that matches the name which the asking file has, in this order: what is loaded already under
that path or install name; the folders of DYLD_LIBRARY_PATH; the path, where @loader_path is the folder of the
file that asks, @executable_path that of the program, and @rpath each LC_RPATH of the file that asks, of those
that loaded it and of the program; DYLD_FALLBACK_LIBRARY_PATH, or for files built with an SDK before macOS 13
/usr/local/lib and /usr/lib. A file without code for this processor is passed over. The system's libraries are
in dyld's cache and not on the disk: what begins with /usr/lib/ or /System/ counts as there with all symbols.
Symbols are looked up in the library that they were linked from and in what that re-exports; flat ones in all
that is loaded. dyld does not compare a file's oldest macOS with the running one: it fails where a function is
missing, which the files do not show.

Sources: Apple, dyld(1) and dyld's source, dyld/Loader.cpp, dyld/JustInTimeLoader.cpp and
dyld/DyldProcessConfig.cpp; <mach-o/loader.h> and <mach-o/nlist.h>.
"""

import posixpath
import re
from collections.abc import Iterator
from uuid import UUID

from mlbackends.base.errors import NotALibrary, joined
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import text_of
from mlbackends.libraries.macho import MachOFile, MachOImage, is_in_trie
from mlbackends.loading.linker import Found, Mapped, ObjectFile, Opening, Process
from mlbackends.model.loading import Fault, Need

_SYSTEM = ("/usr/lib/", "/System/Library/", "/System/iOSSupport/")
_FLAT = 254
#: C++ names in a namespace or class that is not of the C++ runtime, which is the system's.
_OWN_CXX = re.compile(r"__ZN[KVRO]*(?!10__cxxabiv1)\d")
_NEWEST_WITH_FALLBACKS = (13,)


class Dylib(ObjectFile):
    """One slice of a Mach-O file: what it needs, exports and lacks.

    weak: the libraries that may be missing. passed_on: those whose symbols it re-exports. lacking: the
    symbols that must be there, as C++ and C mangle them, with the number of the library in `needed` from 1.
    """

    def __init__(self, image: MachOImage) -> None:
        described = image.described()
        self.machine, self.soname, self.needed = image.machine, described.soname, described.needed
        self.rpath, self.minimum = list(described.rpath), described.minimum
        self.weak, self.passed_on = image.texts(0x80000018), image.texts(0x8000001F)
        self.exports, self.uuid, self.sdk = image.trie(), "no uuid", ""
        self.lacking = tuple(image.undefined())
        for command, at in image.commands:
            if command == 0x1B:
                self.uuid = str(UUID(bytes=image.exactly(at + 8, 16))).upper()
            elif command in (0x32, 0x24):
                (sdk,) = image.unpack("I", at + (16 if command == 0x32 else 12))
                self.sdk = f"{sdk >> 16}.{sdk >> 8 & 255}"

    def exported(self, symbol: bytes) -> bool:
        """Return whether this file has a symbol for others."""
        return is_in_trie(self.exports, symbol) if self.exports else False


def read_dylibs(path: str) -> tuple[Dylib, ...]:
    """Return the slices of a Mach-O file. Raises NotALibrary and OSError."""
    with MachOFile(path) as file:
        return tuple(Dylib(part) for part in file.slices)


@once_per_host
def dylibs(host: Host, real: str) -> dict[str, Dylib]:
    """Return the slices of a Mach-O file of a host by processor. Raises NotALibrary and OSError."""
    slices: tuple[Dylib, ...] = host.extracted(real, read_dylibs, tuple[Dylib, ...])
    return {part.machine: part for part in slices}


class MacProcess(Process):
    """The Mach-O files that a process has loaded, as `Process` of the linker."""

    def _start(self, program: str) -> None:
        self._map_program(program)

    def open(
        self, name: str, *, visible: bool = False, binds: bool = True, asking: Mapped | None = None
    ) -> Opening:
        """Open a file as Python does, by its path, or by a name that is searched for."""
        opening = super().open(name, visible=visible, binds=binds, asking=asking)
        for mapped in opening.mapped if not opening.faults else ():
            if minimum := self._newer(mapped):
                running = _system_version(self.host)
                message = (
                    f"{mapped.path} is built for macOS {minimum} which is newer than the running {running}"
                )
                cause = "dyld opens it only if this macOS has every function that it needs"
                fault = Fault("not-read", posixpath.basename(mapped.path), message, mapped.route(), cause)
                return opening._replace(faults=(fault,))
        return opening

    def _version_faults(self, _: Mapped) -> Iterator[Fault]:
        return iter(())

    # ---- searching --------------------------------------------------------------------------------

    def _find(self, name: str, asking: Mapped | None, faults: list[Fault]) -> Found:
        if name.startswith(("/", "@rpath/")) and (known := self.by_name.get(name)):
            return Found(Need(name, known.path, "already loaded"), known)
        tried: dict[str, str] = {}
        code = "missing-library"
        for path, step, via in self._places(name, asking):
            if known := self.by_name.get(path) or self.by_name.get(self.host.realpath(path)):
                return Found(Need(name, known.path, step, via), known)
            if not self.host.is_file(path):
                if path.startswith(_SYSTEM) and path == name:
                    return Found(Need(name, path, "dyld's cache"), None)
                cached = ", not in dyld cache" if path.startswith(_SYSTEM) else ""
                tried.setdefault(path, f"no such file{cached}")
                continue
            try:
                slices = dylibs(self.host, self.host.realpath(path))
            except (NotALibrary, OSError) as error:
                code = "not-a-library" if isinstance(error, NotALibrary) else "not-read"
                tried[path] = str(error)
                continue
            file = slices.get(self._machine())
            if file is None:
                code, had = "wrong-architecture", joined([f"'{machine}'" for machine in slices])
                need = f"need '{self._machine()}'"
                tried[path] = f"mach-o file, but is an incompatible architecture (have {had}, {need})"
                continue
            mapped = Mapped(path, self.host.realpath(path), file, asking)
            self._add(mapped)
            return Found(Need(name, path, step, via), mapped)
        if not (asking and name in _dylib(asking).weak) and all(fault.name != name for fault in faults):
            reason = ", ".join(f"'{path}' ({why})" for path, why in tried.items())
            reason = f"tried: {reason}" if tried else "no LC_RPATH's found"
            if asking:
                by = self._marked(asking, is_asking=True)
                reason = f"Library not loaded: {name}\n  Referenced from: {by}\n  Reason: {reason}"
            route = (*asking.route(), name) if asking else (name,)
            faults.append(Fault(code, name, f"dlopen({self.root}, 0x0002): {reason}", route))
        return Found(Need(name), None)

    def _places(self, name: str, asking: Mapped | None) -> Iterator[tuple[str, str, str]]:
        """Yield the paths that dyld tries for a name, each with the step and the folder."""
        leaf = posixpath.basename(name)
        for folder in self.host.folders("DYLD_LIBRARY_PATH"):
            yield f"{folder}/{leaf}", "DYLD_LIBRARY_PATH", folder
        chain = [*(asking.chain() if asking else ()), *([self.program] if self.program else ())]
        if name.startswith("@rpath/") or "/" not in name:
            for mapped in chain:
                for folder in mapped.file.rpath:
                    base = self._expanded(folder, mapped)
                    yield posixpath.normpath(f"{base}/{name.removeprefix('@rpath/')}"), "@rpath", base
        if "/" not in name:
            yield f"/usr/lib/{name}", "default folder", "/usr/lib"
        elif not name.startswith("@rpath/"):
            path = posixpath.normpath(self._expanded(name, asking))
            yield path, "path" if name[:1] == "/" else name.partition("/")[0], ""
        fallbacks = self.host.folders("DYLD_FALLBACK_LIBRARY_PATH")
        if not fallbacks and asking and dotted_numbers(_dylib(asking).sdk) < _NEWEST_WITH_FALLBACKS:
            fallbacks = ["/usr/local/lib", "/usr/lib"]
        for folder in fallbacks if asking or "/" not in name else ():
            yield f"{folder}/{leaf}", "fallback", folder

    def _expanded(self, text: str, mapped: Mapped | None) -> str:
        program = str(self.host.python.get("executable", ""))
        program = self.program.real if self.program else program
        start, slash, rest = text.partition("/")
        variables = {"@loader_path": mapped.path if mapped else "", "@executable_path": program}
        return posixpath.dirname(variables[start]) + slash + rest if start in variables else text

    # ---- symbols ----------------------------------------------------------------------------------

    def _unbound(self, mapped: Mapped, _: list[Mapped]) -> Iterator[Fault]:
        """Yield the symbols of an object that are not where it expects them as one fault, of the first."""
        missing: dict[str, Mapped | None] = {}
        for symbol, ordinal in _dylib(mapped).lacking:
            name = text_of(symbol)
            if ordinal == _FLAT:
                if not self._is_defined_anywhere(symbol, name):
                    missing[name] = None
            elif 0 < ordinal <= len(mapped.needs):
                library = self.by_name.get(mapped.needs[ordinal - 1].path)
                if library and not self._exports(library, symbol):
                    missing[name] = library
        if not missing:
            return
        name, library = next(iter(missing.items()))
        words = f"symbol not found in flat namespace '{name}'"
        if library:
            by, expected = self._marked(mapped, is_asking=True), f"Expected in:     {self._marked(library)}"
            words = f"Symbol not found: {name}\n  Referenced from: {by}\n  {expected}"
        route = (*mapped.route(), library.path) if library else mapped.route()
        message = f"dlopen({self.root}, 0x0002): {words}"
        yield Fault("missing-symbol", name, message, route, others=tuple(missing)[1:])

    def _exports(self, library: Mapped, symbol: bytes, depth: int = 0) -> bool:
        """Return whether a file, or one that it re-exports, has a symbol; the system's have every one."""
        if _dylib(library).exported(symbol):
            return True
        for need in library.needs if depth < 8 else ():
            if need.name in _dylib(library).passed_on:
                other = self.by_name.get(need.path)
                if other is None or self._exports(other, symbol, depth + 1):
                    return True
        return False

    def _is_defined_anywhere(self, symbol: bytes, name: str) -> bool:
        """Return whether anything that is loaded has a flat symbol, or the system or Python may have it."""
        is_of_python = name.startswith(("_Py", "__Py"))
        if not ((is_of_python and self.program) or _OWN_CXX.match(name)):
            return True
        return any(_dylib(other).exported(symbol) for other in self.mapped)

    def _newer(self, mapped: Mapped) -> str:
        """Return the oldest macOS of a file where that is newer than the running one, else ""."""
        minimum, running = _dylib(mapped).minimum, _system_version(self.host)
        return minimum if running and dotted_numbers(minimum)[:1] > (running,) else ""

    def _marked(self, mapped: Mapped, *, is_asking: bool = False) -> str:
        """Return a file as dyld shows it, with its UUID."""
        minimum = self._newer(mapped) if is_asking else ""
        note = f" (built for macOS {minimum} which is newer than running OS)" if minimum else ""
        return f"<{_dylib(mapped).uuid}> {mapped.path}{note}"


def _dylib(mapped: Mapped) -> Dylib:
    assert isinstance(mapped.file, Dylib)
    return mapped.file


def _system_version(host: Host) -> int:
    """Return the major version of macOS, 0 if it is not known or before 11; it follows from Darwin's."""
    darwin = (dotted_numbers(host.uname().get("release", "")) or (0,))[0]
    return darwin - 9 if 20 <= darwin < 25 else darwin + 1 if darwin >= 25 else 0
