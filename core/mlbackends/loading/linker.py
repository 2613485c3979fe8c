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
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from mlbackends.base.errors import NotALibrary
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import ElfImage, text_of
from mlbackends.libraries.loader_cache import CacheEntry, architecture_of, loader_cache
from mlbackends.loading.dynamic_symbols import DynamicSymbols, Symbol
from mlbackends.model.loading import Fault, LoadedFile, Need


class ObjectFile:
    """A shared object on the disk, as the loader reads it. Raises NotALibrary and OSError."""

    def __init__(self, path: str) -> None:
        with ElfImage(path) as image:
            tags = image.tags
            self.machine, self.bits = image.machine, image.bits
            self.soname, rpath, runpath = (
                image.string(tags[tag]) if tag in tags else None for tag in (14, 15, 29)
            )
            self.needed = tuple(map(image.string, image.needed))
            self.runpath = runpath.split(":") if runpath is not None else None
            # The loader ignores a file's RPATH beside a RUNPATH.
            self.rpath = rpath.split(":") if rpath is not None and runpath is None else []
            self.no_default_folders = bool(tags.get(_DT_FLAGS_1, 0) & _DF_1_NODEFLIB)
            self.has_executable_stack = image.has_executable_stack
            self.interpreter = image.interpreter()
            self.symbols = DynamicSymbols(image)


class Mapped:
    """An object that a process has mapped.

    name: its path as the loader writes it, with the ".." of a search path. path: the same without them.
    loader: the object that needed it first; None if it was opened.
    """

    def __init__(self, name: str, real: str, file: ObjectFile, loader: "Mapped | None") -> None:
        self.name, self.path = name, posixpath.normpath(name)
        self.real, self.file, self.loader = real, file, loader
        self.needs: list[Need] = []
        self.needed: list[Mapped] = []

    def chain(self) -> Iterator["Mapped"]:
        """Yield this object, the one that loaded it, and so on up to the one that was opened."""
        mapped: Mapped | None = self
        while mapped:
            yield mapped
            mapped = mapped.loader

    def route(self) -> tuple[str, ...]:
        """Return the paths from the object that was opened to this one."""
        return tuple(mapped.path for mapped in self.chain())[::-1]


class Opening(NamedTuple):
    """What opening a file came to. faults: none if it loads; the first one is what the loader reports."""

    root: Mapped | None
    faults: tuple[Fault, ...]
    mapped: tuple[Mapped, ...] = ()

    def files(self) -> tuple[LoadedFile, ...]:
        """Return the files that were mapped, each with what it needs."""
        return tuple(LoadedFile(mapped.path, tuple(mapped.needs)) for mapped in self.mapped)


class Process:
    """The objects that a process has mapped, in the loader's order.

    program: the path of the executable, whose libraries are mapped at the start; "" for none that is known.
    """

    def __init__(self, host: Host, program: str = "") -> None:
        self.host = host
        self.mapped: list[Mapped] = []
        #: The objects by each name under which they are found without a search, and by their file.
        self.by_name: dict[str, Mapped] = {}
        #: The objects whose symbols every other object sees: the program's, and those opened RTLD_GLOBAL.
        self.visible: list[Mapped] = []
        #: The modules that were imported in it, each with what made that fail.
        self.imported: dict[str, list[Any]] = {}
        self.program: Mapped | None = None
        self.loader_file = ""
        #: What was opened last, and the object whose code opened it.
        self.root = ""
        self.opener: Mapped | None = None
        #: What the start of the program failed with.
        self.faults: tuple[Fault, ...] = ()
        if program:
            self._start(program)

    def copy(self) -> "Process":
        """Return a process in the same state, which goes its own way from here."""
        other = type(self)(self.host)
        other.program, other.loader_file, other.faults = self.program, self.loader_file, self.faults
        other.mapped, other.visible, other.by_name = [*self.mapped], [*self.visible], {**self.by_name}
        other.imported = {**self.imported}
        return other

    def _start(self, program: str) -> None:
        real = self.host.realpath(program)
        try:
            file = object_file(self.host, real)
        except (NotALibrary, OSError) as error:
            self.faults = (Fault("not-read", program, f"{program}: {_words(error)}"),)
            return
        self.program = Mapped(program, real, file, None)
        self.loader_file = file.interpreter
        preloaded = [*self.host.env("LD_PRELOAD").replace(":", " ").split()]
        preloaded += self.host.read("/etc/ld.so.preload", 1 << 16).split()
        roots = [self.program]
        self._add(self.program)
        faults: list[Fault] = []
        for name in preloaded:  # what cannot be preloaded is passed over with a warning
            if (mapped := self._find(name, None, []).mapped) and mapped not in roots:
                roots.append(mapped)
        if file.interpreter and self.host.exists(file.interpreter):
            self._find(file.interpreter, None, faults)  # mapped by the kernel, by this name
        self._map_needed(roots, faults)
        self.faults = tuple(faults)
        self.visible = list(self.mapped)

    def _map_program(self, path: str) -> None:
        """Map the program and what it needs, as a loader without preloading does."""
        faults: list[Fault] = []
        if self.host.is_file(path) and (program := self._find(path, None, faults).mapped):
            self.program = program
            self._map_needed([program], faults)
        self.faults = tuple(faults)

    def adopt(self, paths: Iterable[str]) -> None:
        """Map what a running process has mapped; what is no shared object is left out."""
        roots = []
        for path in paths:
            real = self.host.realpath(path)
            with suppress(NotALibrary, OSError):
                if real not in self.by_name:
                    roots.append(Mapped(path, real, object_file(self.host, real), None))
                    self._add(roots[-1])
        self._map_needed(roots, [])

    # ---- opening ----------------------------------------------------------------------------------

    def open(
        self, name: str, *, visible: bool = False, binds: bool = True, asking: Mapped | None = None
    ) -> Opening:
        """Open a file, by its path, or by a name without a slash that is searched for.

        visible: as RTLD_GLOBAL. binds: whether symbols are bound at once, as RTLD_NOW. asking: the object
        whose code calls dlopen, by whose folders a name is searched for.
        """
        self.root, self.opener = name, asking
        before = [*self.mapped], {**self.by_name}
        faults: list[Fault] = []
        found = self._find(name, asking, faults)
        root = found.mapped
        if root is None:
            if not faults:
                faults.append(_not_found(name, asking))
            return self._undone(before, faults)
        closure = self._map_needed([root], faults)
        new = [mapped for mapped in closure if mapped not in before[0]]
        for mapped in new:
            faults += self._version_faults(mapped)
        if binds and not faults:
            scope = [*self.visible, *(mapped for mapped in closure if mapped not in self.visible)]
            for mapped in _binding_order(closure):
                if mapped in new:
                    faults += self._unbound(mapped, scope)
        if faults:
            return self._undone(before, faults, closure)
        if visible:
            self.visible += [mapped for mapped in closure if mapped not in self.visible]
        return Opening(root, (), tuple(closure))

    def _undone(
        self,
        before: tuple[list[Mapped], dict[str, Mapped]],
        faults: list[Fault],
        closure: Iterable[Mapped] = (),
    ) -> Opening:
        self.mapped, self.by_name = before
        return Opening(None, tuple(faults), tuple(closure))

    def _add(self, mapped: Mapped, *names: str) -> None:
        self.mapped.append(mapped)
        for name in (mapped.name, mapped.path, mapped.real, mapped.file.soname, *names):
            if name:
                self.by_name.setdefault(name, mapped)

    def _map_needed(self, roots: list[Mapped], faults: list[Fault]) -> list[Mapped]:
        """Map what some objects need, and what that needs; return all, breadth first."""
        closure = list(roots)
        for mapped in closure:  # grows as it is walked
            is_known = bool(mapped.needs) or not mapped.file.needed
            for name in mapped.file.needed if not is_known else ():
                found = self._find(name, mapped, faults)
                mapped.needs.append(found.need)
                if found.mapped:
                    mapped.needed.append(found.mapped)
            closure += [needed for needed in mapped.needed if needed not in closure]
        return closure

    def _version_faults(self, mapped: Mapped) -> Iterator[Fault]:
        for file, versions in mapped.file.symbols.needs.items():
            definer = self.by_name.get(file)
            if definer is None or not definer.file.symbols.versions:
                continue  # the loader warns at most
            for version, is_optional in versions.items():
                if version not in definer.file.symbols.versions and not is_optional:
                    message = f"{definer.name}: version `{version}' not found (required by {mapped.name})"
                    yield Fault("missing-version", version, message, (*mapped.route(), definer.path))

    def _unbound(self, mapped: Mapped, scope: list[Mapped]) -> Iterator[Fault]:
        """Yield the symbols of an object that nothing in its scope defines as one fault, of the first."""
        lacking = unbound(mapped, scope)
        if not lacking:
            return
        with ElfImage(self.host.real(mapped.real)) as image:
            first = mapped.file.symbols.first_used(image, lacking)
        if first is None:
            return  # nothing refers to it
        symbol = lacking[first]
        version = f", version {symbol.version}" if symbol.version else ""
        message = f"{mapped.name}: undefined symbol: {symbol}{version}"
        others = tuple(str(other) for index, other in lacking.items() if index != first)
        yield Fault("missing-symbol", str(symbol), message, mapped.route(), others=others)

    # ---- searching --------------------------------------------------------------------------------

    def _find(self, name: str, asking: Mapped | None, faults: list[Fault]) -> "Found":
        """Find an object by its name, and map it unless it is mapped already."""
        name = self._expanded(name, asking) if "$" in name else name
        if known := self.by_name.get(name):
            return Found(Need(name, known.path, "already loaded"), known)
        for path, step, via in self._places(name, asking):
            if not self.host.exists(path):
                continue
            real = self.host.realpath(path)
            if known := self.by_name.get(real):
                self.by_name[name] = known
                return Found(Need(name, known.path, step, via), known)
            try:
                file = object_file(self.host, real)
            except (NotALibrary, OSError) as error:
                code = "not-a-library" if isinstance(error, NotALibrary) else "not-read"
                route = (*asking.route(), path) if asking else (path,)
                fault = Fault(code, posixpath.basename(name), f"{path}: {_words(error)}", route)
                faults += [fault] * all(known.message != fault.message for known in faults)
                return Found(Need(name, path, step, via), None)
            if not self._fits(file):
                if step == "path":
                    message = f"{path}: the file is for {file.machine}; this process is {self._machine()}"
                    faults.append(Fault("wrong-architecture", posixpath.basename(name), message, (path,)))
                    return Found(Need(name, path, step, via), None)
                continue  # the search passes over it
            mapped = Mapped(path, real, file, asking)
            if file.has_executable_stack and self.root and self._refuses_stacks():
                message = (
                    f"{path}: cannot enable executable stack as shared object requires: Invalid argument"
                )
                faults.append(Fault("executable-stack", posixpath.basename(path), message, mapped.route()))
            self._add(mapped, name)
            return Found(Need(name, mapped.path, step, via), mapped)
        if all(fault.name != name for fault in faults):  # once, of the file that asks first
            faults.append(_not_found(name, asking))
        return Found(Need(name), None)

    def _machine(self) -> str:
        return self.program.file.machine if self.program else self.host.machine

    def _fits(self, file: ObjectFile) -> bool:
        return self.program is None or (file.machine, file.bits) == (
            self.program.file.machine,
            self.program.file.bits,
        )

    def _refuses_stacks(self) -> bool:
        libc = str((self.host.system("libc") or ("", ""))[1])
        return dotted_numbers(libc) >= (2, 41)

    def _places(self, name: str, asking: Mapped | None) -> Iterator[tuple[str, str, str]]:
        """Yield the paths that the loader tries for a name, each with the step and the folder."""
        if "/" in name:
            path = (
                name if name.startswith("/") else posixpath.normpath(f"{_current_folder(self.host)}/{name}")
            )
            yield path, "path", ""
            return
        is_musl = "ld-musl" in self.loader_file
        if not is_musl:
            yield from self._by_rpath(name, asking)
        for folder in re.split("[:;]", self.host.env("LD_LIBRARY_PATH") or "\0"):
            if folder != "\0":
                folder = self._expanded(folder, self.program) or _current_folder(self.host)
                yield from self._in(folder.rstrip("/"), name, "LD_LIBRARY_PATH", folder)
        if is_musl:
            for mapped in asking.chain() if asking else ():
                for folder in mapped.file.runpath or mapped.file.rpath:
                    yield f"{self._expanded(folder, mapped)}/{name}", "RPATH", mapped.path
            for folder in self._musl_folders():
                yield f"{folder}/{name}", "default folder", folder
            return
        if asking and asking.file.runpath is not None:
            for folder in asking.file.runpath:
                folder = self._expanded(folder, asking) or _current_folder(self.host)
                yield from self._in(folder, name, "RUNPATH", folder)
        folders = default_folders(self.host, self.loader_file)
        no_default = asking is not None and asking.file.no_default_folders
        for path in cached_paths(self.host, self._machine()).get(name, ()):
            if not (no_default and posixpath.dirname(path) in folders):
                yield path, "ld.so.cache", ""
                break
        for folder in () if no_default else folders:
            yield from self._in(folder, name, "default folder", folder)

    def _by_rpath(self, name: str, asking: Mapped | None) -> Iterator[tuple[str, str, str]]:
        if asking is None or asking.file.runpath is not None:
            return
        owners = list(asking.chain())
        if self.program and self.program not in owners:
            owners.append(self.program)
        for mapped in owners:
            for folder in mapped.file.rpath:
                folder = self._expanded(folder, mapped) or _current_folder(self.host)
                yield from self._in(folder, name, "RPATH", folder)

    def _in(self, folder: str, name: str, step: str, via: str) -> Iterator[tuple[str, str, str]]:
        """Yield a name in the folders for this CPU's level, and in the folder itself."""
        if "glibc-hwcaps" in self.host.listdir(folder):
            for level in cpu_levels(self.host):
                yield f"{folder}/glibc-hwcaps/{level}/{name}", step, via
        yield f"{folder}/{name}", step, via

    def _expanded(self, text: str, mapped: Mapped | None) -> str:
        """Return a path with the loader's variables replaced. mapped: the object that has the path."""
        if "$" not in text:
            return text.rstrip("/") or text[:1]
        origin = ""
        if mapped is not None:
            origin = posixpath.dirname(mapped.real if mapped is self.program else mapped.name)
        library = next((f.strip("/") for f in default_folders(self.host, self.loader_file)), "lib")
        values = {"ORIGIN": origin, "LIB": library, "PLATFORM": self._machine()}
        text = re.sub(
            r"\$(?:\{(\w+)\}|(ORIGIN|LIB|PLATFORM))", lambda m: values.get(m[1] or m[2], m[0]), text
        )
        return text.rstrip("/") or text[:1]

    def _musl_folders(self) -> list[str]:
        name = posixpath.basename(self.loader_file).removesuffix(".so.1")
        listed = self.host.read(f"/etc/{name}.path").replace("\n", ":").split(":")
        return [folder for folder in listed if folder] or ["/lib", "/usr/local/lib", "/usr/lib"]


class Found(NamedTuple):
    """How a search ends: what is needed, and the object, if one is mapped for it."""

    need: Need
    mapped: Mapped | None


def _binding_order(closure: list[Mapped]) -> list[Mapped]:
    """Return objects in the order in which the loader binds their symbols: what is needed comes first.

    Source: glibc, elf/dl-sort-maps.c, dfs_traversal.
    """
    order: dict[Mapped, None] = {}
    visited: set[Mapped] = set()
    for root in reversed(closure):
        waiting = [(root, iter(root.needed))] * (root not in visited)
        visited.add(root)
        while waiting:
            mapped, needs = waiting[-1]
            following = next((needed for needed in needs if needed not in visited), None)
            if following is None:
                order[mapped] = None
                waiting.pop()
            else:
                visited.add(following)
                waiting.append((following, iter(following.needed)))
    return list(order)


def unbound(mapped: Mapped, scope: Iterable[Mapped]) -> dict[int, Symbol]:
    """Return the symbols of an object that nothing in a scope defines, by their index in its table."""
    symbols = mapped.file.symbols
    left = dict(symbols.lacking_by_hash)
    for other in scope:
        defined = other.file.symbols
        for value in [*defined.may_define(left.keys())]:
            left[value] = [i for i in left[value] if not defined.defines(symbols.lacking[i])]
            if not left[value]:
                del left[value]
        if not left:
            break
    return {index: symbols.lacking[index] for index in sorted(chain.from_iterable(left.values()))}


@once_per_host
def object_file(host: Host, real: str) -> ObjectFile:
    """Return a shared object of a host. Raises NotALibrary and OSError."""
    return host.extracted(real, ObjectFile, ObjectFile, "object_file")


@once_per_host
def cached_paths(host: Host, machine: str) -> dict[str, list[str]]:
    """Return the files in the loader's cache for a processor by soname, the one that it takes first."""
    try:
        entries = host.extracted("/etc/ld.so.cache", loader_cache, list[CacheEntry])
    except (OSError, ValueError):
        return {}
    levels = cpu_levels(host)
    paths: dict[str, list[tuple[int, str]]] = {}
    for entry in entries:
        if architecture_of(entry.flags) not in ("", machine):
            continue
        level = entry.path.partition("/glibc-hwcaps/")[2].partition("/")[0]
        if not level or level in levels:
            rank = levels.index(level) if level else len(levels)
            paths.setdefault(entry.soname, []).append((rank, entry.path))
    return {
        name: [path for _, path in sorted(found, key=lambda item: item[0])] for name, found in paths.items()
    }


@once_per_host
def cpu_levels(host: Host) -> tuple[str, ...]:
    """Return the names of the hwcaps folders that this CPU may use, best first."""
    if host.machine != "x86_64":
        return ()
    flags = set(host.read("/proc/cpuinfo", 1 << 16).partition("\nflags")[2].partition("\n")[0].split())
    levels = ["x86-64-v2"] * ({"sse4_2", "popcnt", "cx16"} <= flags)
    levels += ["x86-64-v3"] * (bool(levels) and {"avx2", "bmi2", "fma", "movbe"} <= flags)
    levels += ["x86-64-v4"] * (
        len(levels) == 2 and {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags
    )
    return tuple(reversed(levels))


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


def _not_found(name: str, asking: Mapped | None) -> Fault:
    message = f"{name}: cannot open shared object file: No such file or directory"
    return Fault("missing-library", name, message, (*asking.route(), name) if asking else (name,))


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", "") or error)


_FOLDERS = re.compile(rb"(?:/[\w./+-]*lib[\w./+-]*/\0){2,}")
_LOADER_BYTES = 4 << 20
_DT_FLAGS_1, _DF_1_NODEFLIB = 0x6FFFFFFB, 0x800
