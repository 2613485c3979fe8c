"""What the dynamic loader would do in a process, from files alone.

`Process` is the loader's list of mapped objects. `Process.open` does what `dlopen` with RTLD_NOW does, as
Python and ctypes call it: it maps a file and everything that it needs, breadth first, checks the versions of
symbols, and binds every symbol. Where `dlopen` fails, nothing stays mapped.

The search for a name, in this order: what is mapped already, by soname or by a name it was found under;
DT_RPATH of the file that asks, of those that loaded it and of the program, unless the file that asks has a
DT_RUNPATH; LD_LIBRARY_PATH; its DT_RUNPATH; the loader's cache; the loader's default folders. A file for
another processor is passed over; a damaged one ends the search. musl's loader has an order of its own.

Sources: ld.so(8); glibc, elf/dl-load.c, elf/dl-deps.c, elf/dl-version.c, elf/dl-lookup.c, elf/dl-open.c;
musl, ldso/dynlink.c.
"""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import chain, takewhile
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.c_runtime import c_library
from mlbackends.libraries.elf import SEGMENTS_NEED, ElfImage, text_of
from mlbackends.libraries.loader_cache import cache_entries
from mlbackends.loading.dynamic_symbols import DynamicSymbols
from mlbackends.model.loading import Fault, LoadedFile, Need


class ObjectFile:
    """A shared object on the disk, as the loader reads it. Raises NotALibrary and OSError."""

    soname = interpreter = ""
    #: How many bytes are missing at its end, within the last page, which the loader fills with zeros.
    cut_off = 0
    rpath: Sequence[str] = ()
    runpath: Sequence[str] = ()
    no_default_folders = has_executable_stack = False
    #: The versions of symbols that it needs, as in DynamicSymbols.
    versions_needed: Mapping[str, Mapping[str, bool]] = MappingProxyType({})
    #: Files that define all that it lacks, once that is known: so it is bound wherever these are.
    bound_by: "set[ObjectFile] | None" = None
    machine: str
    needed: tuple[str, ...]
    symbols: DynamicSymbols

    def __init__(self, path: str) -> None:
        with ElfImage(path) as image:
            described = image.described()
            self.machine, self.bits, self.soname = image.machine, image.bits, described.soname
            self.needed, self.runpath = described.needed, described.runpath
            self.rpath = () if self.runpath else described.rpath  # the loader ignores it beside a RUNPATH
            self.no_default_folders = bool(image.tags.get(_DT_FLAGS_1, 0) & _DF_1_NODEFLIB)
            self.has_executable_stack = image.has_executable_stack
            self.cut_off = image.zeros
            self.interpreter = image.interpreter()
            self.symbols = DynamicSymbols(image)
            self.versions_needed = self.symbols.needs


class Mapped:
    """An object that a process has mapped.

    name: its path as the loader writes it, with the ".." of a search path. path: the same without them.
    chain: this object, the one that needed it first, and so on up to the one that was opened. route: their
    paths, from there to this one.
    """

    def __init__(self, name: str, real: str, file: ObjectFile, loader: "Mapped | None") -> None:
        self.name, self.path = name, posixpath.normpath(name)
        self.real, self.file = real, file
        self.chain: tuple[Mapped, ...] = (self, *(loader.chain if loader else ()))
        self.route: tuple[str, ...] = (*(loader.route if loader else ()), self.path)
        self.needs: list[Need] = []
        self.needed: list[Mapped] = []


class Opening(NamedTuple):
    """What opening a file came to. faults: none if it loads; the first one is what the loader reports."""

    faults: tuple[Fault, ...]
    mapped: tuple[Mapped, ...] = ()

    @property
    def kills(self) -> bool:
        """Whether the process ends with SIGBUS: a file is mapped whose end is cut off."""
        return any(SEGMENTS_NEED in fault.message for fault in self.faults[:1])

    def files(self) -> tuple[LoadedFile, ...]:
        """Return the files that were mapped, each with what it needs."""
        return tuple(LoadedFile(mapped.path, tuple(mapped.needs)) for mapped in self.mapped)


class Refused(NotALibrary):
    """A library that the loader does not take. code: of the fault."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class Process:
    """The objects that a process has mapped, in the loader's order.

    program: the path of the executable, whose libraries are mapped at the start; "" for none that is known.
    The loaders of macOS and Windows have a search (`_places`), a reader (`_read`), words (`_refusal`) and
    symbols (`_unbound`) of their own.
    """

    #: The faults of a file with which the search goes on to the next place.
    passed_over: tuple[str, ...] = ("wrong-architecture",)
    #: Whether an object is found again by any name under which it was found.
    keeps_names = True

    def __init__(self, host: Host, program: str = "") -> None:
        self.host = host
        self.mapped: list[Mapped] = []
        #: The objects by each name under which they are found without a search, and by their file.
        self.by_name: dict[str, Mapped] = {}
        #: The objects whose symbols every other object sees: the program's, and those opened RTLD_GLOBAL.
        self.visible: list[Mapped] = []
        #: The modules that were imported in it, each with what made that fail.
        self.imported: dict[str, list[Any]] = {}
        #: The modules that these imported, each with what guards it.
        self.met: dict[str, Any] = {}
        self.program: Mapped | None = None
        self.loader_file = ""
        #: What was opened last, and the object whose code opened it.
        self.root = ""
        self.opener: Mapped | None = None
        #: What the start of the program failed with.
        self.faults: tuple[Fault, ...] = ()
        if program:
            self._start(program)
        elif loaders := [path for pattern in _LOADERS for path in host.glob(pattern)]:
            self.loader_file = loaders[0]
            self._find(self.loader_file, None, [])

    def copy(self) -> "Process":
        """Return a process in the same state, which goes its own way from here."""
        other = copy(self)
        other.mapped, other.visible, other.by_name = [*self.mapped], [*self.visible], {**self.by_name}
        other.imported, other.met = {**self.imported}, {**self.met}
        return other

    def _start(self, program: str) -> None:
        """Map the program, what is preloaded, the loader, and what these need."""
        faults: list[Fault] = []
        self.program = self._find(program, None, faults)[1]
        if not self.program:
            self.faults = tuple(replace(fault, code="not-read") for fault in faults)
            return
        roots = [self.program]
        self.loader_file = self.program.file.interpreter
        if self.loader_file:
            preloaded = self.host.env("LD_PRELOAD").replace(":", " ").split()
            preloaded += self.host.read("/etc/ld.so.preload", 1 << 16).split()
            # What cannot be preloaded is passed over with a warning.
            found = (self._find(name, None, [])[1] for name in preloaded)
            roots = list(dict.fromkeys([*roots, *filter(None, found)]))
            if self.host.exists(self.loader_file):
                self._find(self.loader_file, None, faults)  # mapped by the kernel, by this name
        self._map_needed(roots, faults)
        self.faults = tuple(faults)
        self.visible = list(self.mapped)

    def adopt(self, names: Iterable[str]) -> None:
        """Map what a running process has mapped; what is no shared object is left out."""
        found = (self._find(name, None, [])[1] for name in names)
        self._map_needed([mapped for mapped in found if mapped], [])

    # ---- opening ----------------------------------------------------------------------------------

    def open(self, name: str, *, visible: bool = False, asking: Mapped | None = None) -> Opening:
        """Open a file, by its path, or by a name without a slash that is searched for.

        visible: as RTLD_GLOBAL. asking: the object whose code calls dlopen, by whose folders a name is
        searched for.
        """
        self.root, self.opener = name, asking
        mapped_before, names_before = [*self.mapped], {**self.by_name}
        faults: list[Fault] = []
        _, root = self._find(name, asking, faults)
        closure = self._map_needed([root] if root else [], faults)
        new = set(closure) - set(mapped_before)
        for mapped in closure:
            faults += self._version_faults(mapped) if mapped in new else ()
        if not faults:
            scope = list(dict.fromkeys([*self.visible, *closure]))
            for mapped in _binding_order(closure):
                faults += self._unbound(mapped, scope) if mapped in new else ()
            for mapped in closure if not faults else ():
                if mapped in new and mapped.file.cut_off:
                    words = f"the last {mapped.file.cut_off} bytes are missing; the loader has zeros for them"
                    faults.append(Fault("not-read", mapped.name, f"{mapped.name}: {words}", mapped.route))
        if faults:
            self.mapped, self.by_name = mapped_before, names_before
        elif visible:
            self.visible = scope
        return Opening(tuple(faults), tuple(closure))

    def _map_needed(self, roots: list[Mapped], faults: list[Fault]) -> list[Mapped]:
        """Map what some objects need, and what that needs; return all, breadth first."""
        closure = list(roots)
        for mapped in closure:  # grows as it is walked
            for name in mapped.file.needed if not mapped.needs else ():
                need, found = self._find(name, mapped, faults)
                mapped.needs.append(need)
                mapped.needed += [found] if found else []
            closure += [needed for needed in mapped.needed if needed not in closure]
        return closure

    def _version_faults(self, mapped: Mapped) -> Iterator[Fault]:
        for file, versions in mapped.file.versions_needed.items():
            definer = self.by_name.get(file)
            if definer is None or not definer.file.symbols.versions:
                continue  # the loader warns at most
            for version, is_optional in versions.items():
                if version not in definer.file.symbols.versions and not is_optional:
                    message = f"{definer.name}: version `{version}' not found (required by {mapped.name})"
                    yield Fault("missing-version", version, message, (*mapped.route, definer.path))

    def _unbound(self, mapped: Mapped, scope: list[Mapped]) -> Iterator[Fault]:
        """Yield the symbols of an object that nothing in its scope defines as one fault, of the first."""
        file = mapped.file
        if file.bound_by is not None and file.bound_by.issubset(other.file for other in scope):
            return
        symbols, left = file.symbols.lacking, dict(file.symbols.lacking_by_hash)
        definers: set[ObjectFile] = set()
        for other in scope:
            defined = other.file.symbols
            for value in [*defined.may_define(left.keys())]:
                rest = [index for index in left[value] if not defined.defines(symbols[index])]
                definers |= {other.file} if len(rest) < len(left[value]) else set()
                left[value] = rest
                if not rest:
                    del left[value]
        if not left:
            file.bound_by = definers
            return
        lacking = {index: str(symbols[index]) for index in sorted(chain.from_iterable(left.values()))}
        with ElfImage(self.host.real(mapped.real)) as image:
            first = mapped.file.symbols.first_used(image, lacking)
        if first is None:
            return  # nothing refers to it
        name, version = lacking.pop(first), symbols[first].version
        message = f"{mapped.name}: undefined symbol: {name}{f', version {version}' * bool(version)}"
        others = tuple(lacking.values())
        yield Fault("missing-symbol", name, message, mapped.route, others=others)

    # ---- searching --------------------------------------------------------------------------------

    def _find(self, name: str, asking: Mapped | None, faults: list[Fault]) -> tuple[Need, Mapped | None]:
        """Find an object by its name, and map it unless it is mapped already.

        Return how the search ends, and the object, if one is mapped for it.
        """
        name = self._expanded(name, asking) if "$" in name else name
        if known := self.by_name.get(self._key(name)):
            return Need(name, known.path, "already loaded"), known
        #: Each path at which nothing is taken, with the code and the words of why.
        tried: dict[str, tuple[str, str]] = {}
        for path, step, via in self._places(name, asking):
            need = Need(name, path, step, via)
            if step in ASSUMED_STEPS:
                return need, None
            if not self.host.exists(path):
                is_closed = "/" in name and self.host.closed_above(path)
                closed = ("not-read", "Permission denied")
                tried.setdefault(path, closed if is_closed else ("missing-library", "no such file"))
                continue
            real = self.host.realpath(path)
            try:
                mapped = self.by_name.get(self._key(real)) or Mapped(path, real, self._read(real), asking)
            except (NotALibrary, OSError) as error:
                code = "not-read" if isinstance(error, OSError) else getattr(error, "code", "not-a-library")
                tried[path] = code, str(getattr(error, "strerror", "") or error)
                if code not in self.passed_over:
                    break
            else:
                self.mapped += [mapped] if mapped not in self.mapped else []
                own = (path, mapped.path, real, mapped.file.soname, name if self.keeps_names else "")
                for key in map(self._key, filter(None, own)):
                    self.by_name.setdefault(key, mapped)
                return Need(name, mapped.path, step, via), mapped
        else:
            need = Need(name)
        fault = self._refusal(name, asking, tried)
        if fault and all(known.name != fault.name for known in faults):  # once, of the file that asks first
            faults.append(fault)
        return need, None

    def _key(self, name: str) -> str:
        """Return a name as the loader compares it."""
        return name

    def _read(self, real: str) -> ObjectFile:
        """Return a file that the loader takes. Raises NotALibrary and OSError."""
        file, own = object_file(self.host, real), self.program.file if self.program else None
        if own and (file.machine, file.bits) != (own.machine, own.bits):
            words = f"the file is for {file.machine}; this process is {own.machine}"
            raise Refused("wrong-architecture", words)
        asks = file.has_executable_stack and self.root
        if asks and dotted_numbers(c_library(self.host)[1]) >= _NO_EXECUTABLE_STACKS:
            words = "cannot enable executable stack as shared object requires: Invalid argument"
            raise Refused("executable-stack", words)
        return file

    def _refusal(self, name: str, asking: Mapped | None, tried: dict[str, tuple[str, str]]) -> Fault | None:
        """Return what the loader says of a name for which it takes no file."""
        path, (code, words) = next(reversed(tried.items()), (name, ("missing-library", "")))
        if code == "missing-library" or (code in self.passed_over and "/" not in name):
            path, code = name, "missing-library"
            words = "cannot open shared object file: No such file or directory"
        shown = name if code == "missing-library" else posixpath.basename(name)
        return Fault(code, shown, f"{path}: {words}", (*(asking.route if asking else ()), path))

    def _machine(self) -> str:
        return self.program.file.machine if self.program else self.host.machine

    def _places(self, name: str, asking: Mapped | None) -> Iterator[tuple[str, str, str]]:
        """Yield the paths that the loader tries for a name, each with the step and the folder."""
        if "/" in name:
            yield posixpath.join(_current_folder(self.host), name), "path", ""
            return
        askers = asking.chain if asking else ()
        variable = self.host.env("LD_LIBRARY_PATH")
        listed = re.split("[:;]", variable) if variable else []
        from_variable = self._in(listed, self.program, name, "LD_LIBRARY_PATH")
        if "ld-musl" in self.loader_file:
            yield from from_variable
            for mapped in askers:
                yield from self._in(mapped.file.runpath or mapped.file.rpath, mapped, name, "RPATH")
            own = posixpath.basename(self.loader_file).removesuffix(".so.1")
            folders = [*filter(None, re.split("[:\n]", self.host.read(f"/etc/{own}.path")))]
            folders = folders or ["/lib", "/usr/local/lib", "/usr/lib"]
            yield from self._in(folders, None, name, "default folder")
            return
        runpath = asking.file.runpath if asking else ()
        if asking and not runpath:
            for mapped in dict.fromkeys([*askers, self.program or asking]):
                yield from self._in(mapped.file.rpath, mapped, name, "RPATH")
        yield from from_variable
        yield from self._in(runpath, asking, name, "RUNPATH")
        defaults = default_folders(self.host, self.loader_file)
        has_defaults = not (asking and asking.file.no_default_folders)
        for path in cached_paths(self.host, self._machine()).get(name, ()):
            if has_defaults or posixpath.dirname(path) not in defaults:
                yield path, "ld.so.cache", ""
                break
        yield from self._in(defaults if has_defaults else (), None, name, "default folder")

    def _in(
        self, folders: Sequence[str], owner: Mapped | None, name: str, step: str
    ) -> Iterator[tuple[str, str, str]]:
        """Yield a name in each folder, first in those for this CPU's level. owner: what lists the folders."""
        for text in folders:
            folder = self._expanded(text, owner)
            folder = _current_folder(self.host) if folder in ("", ".") else folder
            if "glibc-hwcaps" in self.host.listdir(folder):
                for level in cpu_levels(self.host):
                    yield f"{folder}/glibc-hwcaps/{level}/{name}", step, folder
            yield f"{folder}/{name}", step, folder

    def _expanded(self, text: str, mapped: Mapped | None) -> str:
        """Return a path with the loader's variables replaced. mapped: the object that has the path."""
        if "$" not in text:
            return text.rstrip("/") or text[:1]
        origin = ""
        if mapped is not None:
            origin = posixpath.dirname(mapped.real if mapped is self.program else mapped.name)
        library = next((f.strip("/") for f in default_folders(self.host, self.loader_file)), "lib")
        values = {"ORIGIN": origin, "LIB": library, "PLATFORM": self._machine()}
        variables = r"\$(?:\{(\w+)\}|(ORIGIN|LIB|PLATFORM))"
        text = re.sub(variables, lambda match: values.get(match[1] or match[2], match[0]), text)
        return text.rstrip("/") or text[:1]


def _binding_order(closure: list[Mapped]) -> list[Mapped]:
    """Return objects in the order in which the loader binds their symbols: what is needed comes first.

    Source: glibc, elf/dl-sort-maps.c, dfs_traversal.
    """
    order: list[Mapped] = []
    visited: set[Mapped] = set()
    for root in reversed(closure):
        waiting = [root] * (root not in visited)
        while waiting:  # not by recursion: a chain of libraries may be longer than Python's limit
            visited.add(waiting[-1])
            below = next((needed for needed in waiting[-1].needed if needed not in visited), None)
            if below:
                waiting.append(below)
            else:
                order.append(waiting.pop())
    return order


@once_per_host
def object_file(host: Host, real: str) -> ObjectFile:
    """Return a shared object of a host. Raises NotALibrary and OSError."""
    return host.extracted(real, ObjectFile, ObjectFile, "object_file")


@once_per_host
def cached_paths(host: Host, machine: str) -> dict[str, list[str]]:
    """Return the files in the loader's cache for a processor by soname, the one that it takes first."""
    levels = (*cpu_levels(host), "")
    ranked: list[tuple[int, str, str]] = []
    for entry in cache_entries(host, machine):
        level = entry.path.partition("/glibc-hwcaps/")[2].partition("/")[0]
        if level in levels:
            ranked.append((levels.index(level), entry.soname, entry.path))
    paths: dict[str, list[str]] = {}
    for _, soname, path in sorted(ranked, key=itemgetter(0)):
        paths.setdefault(soname, []).append(path)
    return paths


@once_per_host
def cpu_levels(host: Host) -> tuple[str, ...]:
    """Return the names of the hwcaps folders that this CPU may use, best first."""
    if host.machine != "x86_64":
        return ()
    flags = set(host.read("/proc/cpuinfo", 1 << 16).partition("\nflags")[2].partition("\n")[0].split())
    levels = takewhile(lambda level: flags.issuperset(_CPU_LEVELS[level].split()), _CPU_LEVELS)
    return tuple(levels)[::-1]


@once_per_host
def default_folders(host: Host, loader: str) -> tuple[str, ...]:
    """Return the folders that a loader searches last, which are built into it."""
    data = host.read_bytes(loader, _LOADER_BYTES) if loader else b""
    built_in = _FOLDERS.search(data)
    if built_in:
        return tuple(text_of(folder).rstrip("/") for folder in built_in[0].split(b"\0") if folder)
    return ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


def _current_folder(host: Host) -> str:
    return os.getcwd() if host.is_live else "/"


_LOADERS = ("/lib64/ld-linux-*.so.*", "/lib/ld-linux-*.so.*", "/lib/ld-musl-*.so.1")
_FOLDERS = re.compile(rb"(?:/[\w./+-]*lib[\w./+-]*/\0){2,}")
_LOADER_BYTES = 4 << 20
_NO_EXECUTABLE_STACKS = (2, 41)
_DT_FLAGS_1, _DF_1_NODEFLIB = 0x6FFFFFFB, 0x800
#: What has to be there for each of glibc's levels, beside that of the one before.
_CPU_LEVELS = {
    "x86-64-v2": "sse4_2 popcnt cx16",
    "x86-64-v3": "avx2 bmi2 fma movbe",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
#: The steps that find what is not read: it is taken for granted.
ASSUMED_STEPS = ("API set", "System32", "dyld's cache")
