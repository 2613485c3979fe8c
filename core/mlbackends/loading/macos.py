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
from typing import Any

from mlbackends.base.errors import joined
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import text_of
from mlbackends.libraries.macho import MachOFile, MachOImage, is_in_trie
from mlbackends.loading.linker import Mapped, ObjectFile, Opening, Process, Refused
from mlbackends.model.loading import Fault

_SYSTEM = ("/usr/lib/", "/System/Library/", "/System/iOSSupport/")
_FLAT = 254
#: C++ names in a namespace or class that is not of the C++ runtime, which is the system's.
_OWN_CXX = re.compile(rb"__ZN[KVRO]*(?!10__cxxabiv1)\d")
_NEWEST_WITH_FALLBACKS = (13,)


class Dylib(ObjectFile):
    """One slice of a Mach-O file: what it needs, exports and lacks.

    weak: the libraries that may be missing. passed_on: those whose symbols it re-exports. lacking: the
    symbols that must be there, as C++ and C mangle them, with the number of the library in `needed` from 1.
    """

    def __init__(self, image: MachOImage) -> None:
        described = image.described()
        self.machine, self.needed, self.rpath = image.machine, described.needed, described.rpath
        self.minimum, self.sdk, self.uuid = described.minimum, image.versions()[1], image.uuid()
        # By another name nothing is found without a search.
        self.soname = described.soname if described.soname.startswith(("/", "@rpath/")) else ""
        self.weak, self.passed_on = image.texts(0x80000018), image.texts(0x8000001F)
        self.exports, self.lacking = image.trie(), tuple(image.undefined())


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

    passed_over = ("wrong-architecture", "not-a-library", "not-read")
    keeps_names = False

    def open(self, name: str, **options: Any) -> Opening:
        """Open a file as Python does, by its path, or by a name that is searched for."""
        opening = super().open(name, **options)
        newer = [mapped for mapped in opening.mapped if self._newer(mapped)]
        if opening.faults or not newer:
            return opening
        first, running = newer[0], _system_version(self.host)
        words = f"is built for macOS {self._newer(first)} which is newer than the running {running}"
        cause = "dyld opens it only if this macOS has every function that it needs"
        name = posixpath.basename(first.path)
        fault = Fault("not-read", name, f"{first.path} {words}", first.route, cause)
        return opening._replace(faults=(fault,))

    # ---- searching --------------------------------------------------------------------------------

    def _read(self, real: str) -> ObjectFile:
        slices, ours = dylibs(self.host, real), self._machine()
        if ours not in slices:
            had = joined([f"'{machine}'" for machine in slices])
            words = f"mach-o file, but is an incompatible architecture (have {had}, need '{ours}')"
            raise Refused("wrong-architecture", words)
        return slices[ours]

    def _refusal(self, name: str, asking: Mapped | None, tried: dict[str, tuple[str, str]]) -> Fault | None:
        if asking and name in _dylib(asking).weak:
            return None
        lost = [path for path, (code, _) in tried.items() if code == "missing-library"]
        cached = dict.fromkeys((path for path in lost if path.startswith(_SYSTEM)), ", not in dyld cache")
        reason = ", ".join(f"'{path}' ({words}{cached.get(path, '')})" for path, (_, words) in tried.items())
        reason = f"tried: {reason}" if tried else "no LC_RPATH's found"
        if asking:
            by = self._marked(asking, is_asking=True)
            reason = f"Library not loaded: {name}\n  Referenced from: {by}\n  Reason: {reason}"
        code = [code for code, _ in tried.values() if code != "missing-library"][-1:] or ["missing-library"]
        route = (*(asking.route if asking else ()), name)
        return Fault(code[0], name, f"dlopen({self.root}, 0x0002): {reason}", route)

    def _places(self, name: str, asking: Mapped | None) -> Iterator[tuple[str, str, str]]:
        """Yield the paths that dyld tries for a name, each with the step and the folder."""
        leaf = posixpath.basename(name)
        for folder in self.host.folders("DYLD_LIBRARY_PATH"):
            yield f"{folder}/{leaf}", "DYLD_LIBRARY_PATH", folder
        chain = [*(asking.chain if asking else ()), *([self.program] if self.program else ())]
        if name.startswith("@rpath/") or "/" not in name:
            for mapped in chain:
                for folder in mapped.file.rpath:
                    base = self._expanded(folder, mapped)
                    yield posixpath.normpath(f"{base}/{name.removeprefix('@rpath/')}"), "@rpath", base
        if "/" not in name:
            yield f"/usr/lib/{name}", "default folder", "/usr/lib"
        elif not name.startswith("@rpath/"):
            path = posixpath.normpath(self._expanded(name, asking))
            is_cached = path == name and path.startswith(_SYSTEM) and not self.host.is_file(path)
            step = "path" if name[:1] == "/" else name.partition("/")[0]
            yield path, "dyld's cache" if is_cached else step, ""
        fallbacks = self.host.folders("DYLD_FALLBACK_LIBRARY_PATH")
        if not fallbacks and asking and dotted_numbers(_dylib(asking).sdk) < _NEWEST_WITH_FALLBACKS:
            fallbacks = ["/usr/local/lib", "/usr/lib"]
        for folder in fallbacks if asking or "/" not in name else ():
            yield f"{folder}/{leaf}", "fallback", folder

    def _expanded(self, text: str, mapped: Mapped | None) -> str:
        program = self.program.real if self.program else str(self.host.python.get("executable", ""))
        start, slash, rest = text.partition("/")
        variables = {"@loader_path": mapped.path if mapped else "", "@executable_path": program}
        return posixpath.dirname(variables[start]) + slash + rest if start in variables else text

    # ---- symbols ----------------------------------------------------------------------------------

    def _unbound(self, mapped: Mapped, _: list[Mapped]) -> Iterator[Fault]:
        """Yield the symbols of an object that are not where it expects them as one fault, of the first."""
        missing: dict[str, Mapped | None] = {}
        for symbol, number in _dylib(mapped).lacking:
            is_numbered = 0 < number <= len(mapped.needs)
            library = self.by_name.get(mapped.needs[number - 1].path) if is_numbered else None
            is_nowhere = number == _FLAT and not self._is_defined_anywhere(symbol)
            if is_nowhere or (library and not self._exports(library, symbol)):
                missing[text_of(symbol)] = library
        if not missing:
            return
        name, library = next(iter(missing.items()))
        words = f"symbol not found in flat namespace '{name}'"
        if library:
            by, expected = self._marked(mapped, is_asking=True), f"Expected in:     {self._marked(library)}"
            words = f"Symbol not found: {name}\n  Referenced from: {by}\n  {expected}"
        route = (*mapped.route, library.path) if library else mapped.route
        message = f"dlopen({self.root}, 0x0002): {words}"
        yield Fault("missing-symbol", name, message, route, others=tuple(missing)[1:])

    def _exports(self, library: Mapped, symbol: bytes, depth: int = 0) -> bool:
        """Return whether a file, or one that it re-exports, has a symbol; the system's have every one."""
        dylib = _dylib(library)
        passed_on = (need.path for need in library.needs if need.name in dylib.passed_on and depth < 8)
        others = map(self.by_name.get, passed_on)
        inner = (other is None or self._exports(other, symbol, depth + 1) for other in others)
        return is_in_trie(dylib.exports, symbol) or any(inner)

    def _is_defined_anywhere(self, symbol: bytes) -> bool:
        """Return whether anything that is loaded has a flat symbol, or the system or Python may have it."""
        is_of_python = symbol.startswith((b"_Py", b"__Py"))
        if not ((is_of_python and self.program) or _OWN_CXX.match(symbol)):
            return True
        return any(is_in_trie(_dylib(other).exports, symbol) for other in self.mapped)

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
