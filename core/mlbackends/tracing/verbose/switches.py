"""The functions by which the loaded copies of a library are set, found by their symbols."""

import ctypes
import os
from collections.abc import Callable
from typing import NamedTuple

from mlbackends.tracing.verbose.environment import Start, Version
from mlbackends.tracing.verbose.loaded_files import Held, is_readable, loaded_files


class Symbol(NamedTuple):
    """A function `int set(int level)`, and how its answer says that it obeyed."""

    name: str
    obeyed: Callable[[int, int], bool]
    """Of the answer and the level that was asked for."""


class Family(NamedTuple):
    """What is known of a library, in any of the forms in which it is shipped."""

    name: str
    symbols: tuple[Symbol, ...]
    """In this order: the first that a file has is taken."""
    level_readers: tuple[str, ...]
    """Functions that give the address of the present level; none where no version has one."""
    version_readers: tuple[str, ...]
    """Functions that give the address of three ints: major, minor, patch."""
    start: Callable[[Version | None], Start]
    file_names: tuple[str, ...]
    """Parts of the names of its own files, for messages."""
    carriers: tuple[str, ...]
    """Parts of the names of files that hold a copy without a switch."""
    variable: str
    """What switches such a copy, before the process starts."""


class Switch:
    """One loaded copy: `path` is its file, `address` its function."""

    def __init__(self, held: Held, symbol: Symbol, address: int, family: Family) -> None:
        self.held, self.symbol, self.address = held, symbol, address
        self.path = _file_of(address) or held.path
        # PyDLL's kind, which keeps the interpreter's lock: the call is a few instructions, and
        # between it and our own note of it no other Python thread should come.
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)(address)
        self._reader = _first(held, family.level_readers)
        self.start = family.start(_version(held, family))

    def set(self, level: int) -> bool:
        """Set the level, and tell whether the library obeyed."""
        return self.symbol.obeyed(self._call(level), level)

    def read(self) -> int | None:
        """Return the level that the library is at; None if it cannot tell.

        MKL's reader is exported but not documented, so its answer is believed only where it can
        be no other thing: an aligned address in our own writable memory, with 0, 1 or 2 there.
        """
        if not self._reader:
            return None
        address = ctypes.PYFUNCTYPE(ctypes.c_void_p)(self._reader)() or 0
        if address % 4 or not is_readable(address, 4):
            return None
        level = ctypes.c_int.from_address(address).value
        return level if 0 <= level <= 2 else None


class Found(NamedTuple):
    """The switches that this process has, and what was looked at."""

    switches: list[Switch]
    files: list[str]
    """Every loaded file, with a switch or without."""


def find_switches(family: Family) -> Found:
    """Look through every loaded library. The caller releases each switch's `held` in the end."""
    switches: dict[int, Switch] = {}
    files = loaded_files()
    for path in files:
        try:
            held = Held(path)
        except OSError:  # a mapped file that is no library
            continue
        # A handle answers for the libraries that its own needs, too: one function is one switch.
        switch = _switch(held, family)
        if switch is None or switch.address in switches:
            held.release()
        else:
            switches[switch.address] = switch
    return Found(list(switches.values()), files)


def _switch(held: Held, family: Family) -> Switch | None:
    for symbol in family.symbols:
        if address := held.address(symbol.name):
            return Switch(held, symbol, address, family)
    return None


class _Place(ctypes.Structure):
    """What dladdr(3) tells of an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("origin", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _file_of(address: int) -> str:
    """Return the file that an address stands in, which may be one that the asked library needs."""
    place = _Place()
    known = ctypes.PyDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(place))
    return os.fsdecode(place.file) if known and place.file else ""


def _first(held: Held, names: tuple[str, ...]) -> int:
    """Return where the first of some functions is, 0 if the library has none."""
    return next((address for name in names if (address := held.address(name))), 0)


def _version(held: Held, family: Family) -> Version | None:
    reader = _first(held, family.version_readers)
    numbers = ctypes.PYFUNCTYPE(ctypes.POINTER(ctypes.c_int))(reader)() if reader else None
    return (numbers[0], numbers[1]) if numbers else None


def unreachable_hint(family: Family, files: list[str]) -> str:
    """Say which files were looked at, and what else would help."""
    if not files:
        return "the system does not tell which libraries are loaded (on Linux, /proc/self/maps)"
    own = [each for each in files if _named(each, family.file_names)]
    carriers = [each for each in files if _named(each, family.carriers)]
    said = f"looked at the {len(files)} files that are loaded"
    if own:
        said += f"; {', '.join(own)} is {family.name} by its name and has no such function"
    if carriers:
        said += f"; {', '.join(carriers)} holds a copy that no function switches"
    if own or carriers:
        return f"{said}: set {family.variable} before the process starts"
    return f"{said}: none is {family.name}; a scope acts on what was imported before it"


def _named(path: str, parts: tuple[str, ...]) -> bool:
    name = os.path.basename(path)
    return any(part in name for part in parts)
