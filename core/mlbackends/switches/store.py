"""The value of each switch, and where it came from.

Per process: the values. Every thread sees them, and each read or write of one or several is whole.
Per context (thread or asyncio task): whether the freeze of `disable_global_flags()` is lifted.

A value comes from, in this order: what was set in Python; the environment; the file that the variable
MLBACKENDS_FLAGS names; the default. Variables are read once, at the first touch of any switch.

`mlbackends.switches.cells` has what a switch reads and writes, `mlbackends.switches.startup` how they start.
"""

import os
from _thread import RLock
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from mlbackends.switches.cells import PARENTS, Cells, cells_of, deciding, put, reading
from mlbackends.switches.startup import FILE, first_cells, variables, warn
from mlbackends.switches.table import PROBED, SWITCHES, Switch

SET = "set"

_lock = RLock()
_cells: Cells = {}
_problems: list[str] = []
_frozen = False
_lifted: ContextVar[bool] = ContextVar("mlbackends_freeze_lifted", default=False)


def read(name: str) -> object:
    """Return the value of a switch, as torch's getter of that name returns it.

    Raises UnknownName, and RuntimeError where an older switch has no word for the state.
    """
    return read_all((name,))[0]


def read_all(names: "tuple[str, ...]") -> "tuple[object, ...]":
    """Return the values of several switches at one moment. Raises as `read`."""
    flags = [_switch(name) for name in names]
    with _lock:
        _load()
        found = [reading(_cells, switch) for switch in flags]
    return tuple(map(_decided, names, found))


def origin(name: str) -> str:
    """Return where the value comes from: default, environment, file or set.

    An entry of the precision tree that inherits has the origin of the entry that decides.
    """
    switch = _switch(name)
    with _lock:
        _load()
        cell = cells_of(switch.name)[0]
        if cell in PARENTS:
            cell = deciding(_cells, cell)
        return _cells[cell][1]


def write(name: str, value: object) -> None:
    """Set one switch. Raises what torch raises for a value that it does not take."""
    write_all({name: value})


def write_all(values: "Mapping[str, object]", origin: str = SET) -> None:
    """Set several switches, all or none of them."""
    _put_all(_checked(values), origin)


def swap(names: "tuple[str, ...]", values: "Mapping[str, object]") -> "tuple[object, ...]":
    """Set several switches, all or none, and return what the named ones were just before."""
    checked = _checked(values)
    with _lock:
        _load()
        found = [reading(_cells, SWITCHES[name]) for name in names]
        _put_all(checked, SET)
    return tuple(map(_decided, names, found))


def assume(values: "Mapping[str, object]", origin: str = SET) -> None:
    """Set switches that have been checked already, also such as a library reads at its start.

    It shows what a process would be like: what is installed here does not matter.
    """
    _put_all({_switch(name): value for name, value in values.items()}, origin)


def restored(*names: str) -> "AbstractContextManager[None]":
    """Put the named switches back, on leaving the block, exactly as they were found."""
    return _scope([_switch(name) for name in names], {})


def applied(values: "Mapping[str, object]") -> "AbstractContextManager[None]":
    """Set several switches for the block, all or none, and put them back as they were found."""
    checked = _checked(values)
    return _scope(checked, checked)


@contextmanager
def _scope(switches: "Iterable[Switch]", values: "Mapping[Switch, object]") -> Iterator[None]:
    """Put switches back on leaving the block, whatever happened in it; set values before."""
    with _lock:
        _load()
        found = {cell: _cells[cell] for switch in switches for cell in cells_of(switch.name)}
        _put_all(values, SET)
    try:
        yield
    finally:
        with _lock:
            _cells.update(found)


def freeze() -> None:
    """Forbid bare assignment to the freezable switches, for the life of the process."""
    global _frozen  # noqa: PLW0603  it is the process's own
    _frozen = True


def frozen() -> bool:
    """Return whether bare assignment to a freezable switch is forbidden here and now."""
    return _frozen and not _lifted.get()


@contextmanager
def freeze_lifted() -> Iterator[None]:
    """Allow bare assignment inside the block, in this thread or task alone."""
    token = _lifted.set(True)
    try:
        yield
    finally:
        _lifted.reset(token)


def problems() -> list[str]:
    """Return what was wrong with the variables and the file, one sentence each; those were ignored."""
    with _lock:
        _load()
        return list(_problems)


def environment() -> "dict[str, str]":
    """Return the variables with which a new process starts with these values; {} where all are defaults."""
    with _lock:
        _load()
        return variables(_cells)


def load_file(path: str) -> None:
    """Take the switches of a TOML file, all or none. Raises BadInput with file, line and key."""
    from mlbackends.switches import files

    assume(files.read(path), FILE)


def forget() -> None:
    """Go back to the start: the next touch reads the environment again. For tests."""
    global _frozen  # noqa: PLW0603
    with _lock:
        _cells.clear()
        _problems.clear()
        _frozen = False


def _switch(name: str) -> Switch:
    switch = SWITCHES.get(name)
    if switch is None:
        from mlbackends.switches.files import unknown

        raise unknown(name)
    return switch


def _decided(name: str, value: object) -> object:
    """Return the value itself, or what is installed here decides, for which the lock is not held."""
    if value is PROBED:
        from mlbackends.switches import conditions

        return conditions.default(name)
    return value


def _checked(values: "Mapping[str, object]") -> "dict[Switch, object]":
    """Check values, without the lock: that may have to look for what is installed here."""
    from mlbackends.switches import conditions

    checked: dict[Switch, object] = {}
    for switch in map(_switch, values):
        value = values[switch.name]
        conditions.refuse(switch, value)
        if value is None and switch.default in (None, PROBED):
            checked[switch] = switch.default
        else:
            checked[switch] = switch.kind.checked(switch.name, value)
    return checked


def _put_all(checked: "Mapping[Switch, object]", origin: str) -> None:
    with _lock:
        _load()
        for switch, value in checked.items():
            put(_cells, switch, value, origin)


def _load() -> None:
    """Fill the cells once: defaults, then the file, then the environment. Called with the lock held."""
    if _cells:
        return
    cells, problems = first_cells()
    _cells.update(cells)
    _problems.extend(problems)
    for problem in _problems:
        warn(problem)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        # Another thread in the middle of a change would leave it half done in the child, whose one
        # thread is not the one that holds the lock.
        before=_lock.acquire,
        after_in_parent=_lock.release,
        after_in_child=_lock._at_fork_reinit,  # type: ignore[attr-defined]  # noqa: SLF001
    )
