"""The copies of MKL and oneDNN that this process has loaded, and the functions that set their levels.

Nothing is loaded for it: the copies inside torch's own libraries are found too.
"""

import _ctypes
import ctypes
import os
import sys
from typing import NamedTuple

from mlbackends.base.tables import table
from mlbackends.tracing.verbose.levels import mkl_start, onednn_start


class Family(NamedTuple):
    """The facts about a library, in any of the forms in which it is shipped."""

    name: str
    #: Functions `int set(int level)`, and what each returns where it succeeded: None is the level.
    #:
    #: The first that a file has is taken.
    symbols: dict[str, int | None]
    #: Functions that give the address of the present level; none where no version has one.
    level_readers: tuple[str, ...]
    #: Functions that give the address of three ints: major, minor, patch.
    version_readers: tuple[str, ...]
    #: Parts of its file names, for messages.
    file_names: tuple[str, ...]
    #: Parts of the names of files that hold a copy without a switch.
    carriers: tuple[str, ...]
    #: The variable that sets such a copy, before the process starts.
    variable: str


MKL, ONEDNN = (Family(**table("tracing/verbose/libraries")[name]) for name in ("mkl", "onednn"))


def loaded_files() -> list[str]:
    """Return the paths of the loaded libraries, [] if the system does not list them.

    Linux: from /proc/self/maps; `dl_iterate_phdr` would call Python under the loader's lock, which
    another thread may want while it holds the interpreter's.
    """
    if sys.platform == "darwin":
        # PyDLL: no other Python thread can unload an image between the count and the name.
        process = ctypes.PyDLL(None)
        name = process._dyld_get_image_name  # noqa: SLF001  that is what it is called
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.c_uint32]
        names = [name(index) for index in range(process._dyld_image_count())]  # noqa: SLF001
        return list(dict.fromkeys(os.fsdecode(path) for path in names if path))
    found: dict[str, None] = {}
    for line in _maps():
        parts = line.split(None, 5)
        if len(parts) == 6 and b"x" in parts[1] and parts[5].startswith(b"/"):
            found[os.fsdecode(parts[5].removesuffix(b" (deleted)"))] = None
    return list(found)


def _maps() -> list[bytes]:
    try:
        with open("/proc/self/maps", "rb") as file:
            return file.read().splitlines()
    except OSError:
        return []


class Loaded:
    """A loaded library, kept from being unloaded until `release`. Raises OSError if it is not loaded."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._close = _ctypes.dlclose
        self._find = _ctypes.dlsym
        # NOLOAD finds copies that were opened RTLD_LOCAL too, and never runs a constructor.
        self._handle = _ctypes.dlopen(path, os.RTLD_LAZY | os.RTLD_NOLOAD)

    def address(self, *symbols: str) -> int:
        """Return where the first of these functions is, here or in a library that is needed; 0 if nowhere."""
        for symbol in symbols:
            try:
                return self._find(self._handle, symbol)
            except OSError:
                continue
        return 0

    def release(self) -> None:
        """Let it be unloaded again, once nothing else holds it."""
        self._close(self._handle)


class Switch:
    """One loaded copy in one scope: `path` is its file, `address` its function.

    level: what the scope sets it to; found: what it restores.
    """

    found = level = 0

    def __init__(self, loaded: Loaded, symbol: str, address: int, family: Family) -> None:
        self.loaded, self.symbol, self.address = loaded, symbol, address
        self._success = family.symbols[symbol]
        # dladdr(3) names the file that contains an address, which may be a dependency of the library.
        place = (ctypes.c_char_p * 4)()
        found = ctypes.PyDLL(None).dladdr(ctypes.c_void_p(address), place)
        self.path = os.fsdecode(place[0]) if found and place[0] else loaded.path
        # PyDLL's kind, which keeps the interpreter's lock: the call is a few instructions, and
        # between it and our own record of it no other Python thread should run.
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)(address)
        self._reader = loaded.address(*family.level_readers)
        if family is MKL:
            self.start = mkl_start(os.environ)
        else:
            reader = loaded.address(*family.version_readers)
            numbers = ctypes.PYFUNCTYPE(ctypes.POINTER(ctypes.c_int))(reader)() if reader else None
            self.start = onednn_start(os.environ, (numbers[0], numbers[1]) if numbers else None)

    def set(self, level: int) -> bool:
        """Set the level, and return whether the library accepted it."""
        answer: int = self._call(level)
        return answer == (level if self._success is None else self._success)

    def read(self) -> int | None:
        """Return the library's level; None if it cannot report it.

        MKL's reader is exported but not documented, so its result is used only where it can be
        nothing else: an aligned address in our own writable memory, with 0, 1 or 2 there.
        """
        if not self._reader:
            return None
        address = ctypes.PYFUNCTYPE(ctypes.c_void_p)(self._reader)() or 0
        for line in _maps() if address % 4 == 0 else ():
            span, rights, *_ = line.split(None, 2)
            first, _, last = span.partition(b"-")
            if int(first, 16) <= address < int(last, 16) and rights.startswith(b"rw"):
                level = ctypes.c_int.from_address(address).value
                return level if 0 <= level <= 2 else None
        return None


def find_switches(family: Family) -> tuple[list[Switch], list[str]]:
    """Return the switches of this process, and every loaded file, with a switch or without.

    The caller releases each switch's `loaded` in the end.
    """
    switches: dict[int, Switch] = {}
    files = loaded_files()
    for path in files:
        try:
            loaded = Loaded(path)
        except OSError:  # a mapped file that is not a library
            continue
        symbol = next(filter(loaded.address, family.symbols), "")
        # A handle also finds what its library needs, so several files may lead to one function.
        address = loaded.address(symbol) if symbol else 0
        if not symbol or address in switches:
            loaded.release()
        else:
            switches[address] = Switch(loaded, symbol, address, family)
    return list(switches.values()), files


def unreachable_hint(family: Family, files: list[str]) -> str:
    """Return which files were examined, and what else would help."""
    if not files:
        return "the system does not list loaded libraries (on Linux, /proc/self/maps)"

    own, carriers = (
        ", ".join(file for file in files if any(part in os.path.basename(file) for part in parts))
        for parts in (family.file_names, family.carriers)
    )
    hint = f"looked at the {len(files)} files that are loaded"
    if own:
        hint += f"; {own} is {family.name} by its name and has no such function"
    if carriers:
        hint += f"; {carriers} holds a copy that no function switches"
    if own or carriers:
        return f"{hint}: set {family.variable} before the process starts"
    return f"{hint}: none is {family.name}; a scope acts on what was imported before it"
