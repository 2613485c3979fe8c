"""Entering and leaving: which level each copy was found at, and who gives it back.

The level belongs to the process, as in the libraries: a scope in one thread shows the calls of all.
Scopes of one thread nest. Scopes of several threads may end in any order: one that ends before a
later one leaves the level alone, and the later one gives back what the earlier one had found.
"""

import _thread
import os

from mlbackends.model.errors import MlBackendsError

OFF = 0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal, NoReturn, Self

    from mlbackends.tracing.verbose.switches import Family, Found, Switch


class VerboseUnreachable(MlBackendsError, AssertionError):
    """No copy could be set, or one refused; nothing was changed. torch raises AssertionError too."""


class _Entry:
    """One copy in one scope: what was set, and what to give back."""

    def __init__(self, switch: "Switch", found: int, level: int) -> None:
        self.switch, self.found, self.level = switch, found, level


_LOCK = _thread.RLock()

_active: dict[int, list[_Entry]] = {}
"""Per function's address the entries that have not ended, oldest first."""

_warned: set[str] = set()


def _renew_lock() -> None:
    global _LOCK  # noqa: PLW0603  in the child of a fork, its holder is gone
    _LOCK = _thread.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Scope:
    """A scope in which every loaded copy of a library is at a level.

    Entering raises TypeError for a level that is no integer, and VerboseUnreachable (an
    AssertionError) for one outside 0 to 2, where no copy can be set, or where one refuses; then
    nothing has changed. Level 0 silences, and needs no copy. One object may be entered repeatedly.
    """

    def __init__(self) -> None:
        self._entered: list[list[_Entry]] = []

    def _asked(self) -> "tuple[Family, int]":
        """Return the library and the level, which need be no int. torch, too, looks on entering."""
        raise NotImplementedError

    def __enter__(self) -> "Self":
        import operator

        family, asked = self._asked()
        try:
            level = operator.index(asked)
        except TypeError:
            raise TypeError(
                f"{family.name}'s verbose level is an integer, 0 to 2; got {type(asked).__name__}"
            ) from None
        if not 0 <= level <= 2:
            raise _failure(family, f"{family.name} has no level {level}", "levels are 0, 1 and 2")
        with _LOCK:
            self._entered.append(_enter(family, level))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> "Literal[False]":
        with _LOCK:
            for entry in reversed(self._entered.pop()):
                _leave(entry)
        return False


def _enter(family: "Family", level: int) -> list[_Entry]:
    """Set every copy that is loaded, or none."""
    from mlbackends.tracing.verbose.switches import find_switches

    found = find_switches(family)
    done: list[_Entry] = []
    try:
        # All are read before one is set: two files may switch the same copy, as libmkl_rt does.
        entries = []
        for switch in found.switches:
            entries.append(_Entry(switch, _level_of(switch, family), level))  # noqa: PERF401
        for entry in entries:
            if _obeys(entry, family):
                _active.setdefault(entry.switch.address, []).append(entry)
                done.append(entry)
        if level != OFF and not done:
            _refuse_unreachable(family, found)
    except BaseException:
        for entry in reversed(done):
            _leave(entry, release=False)
        done = []
        raise
    finally:
        kept = {entry.switch.address for entry in done}
        for switch in found.switches:
            if switch.address not in kept:
                switch.held.release()
    return done


def _obeys(entry: _Entry, family: "Family") -> bool:
    """Set one copy. False if it takes no level at all: a build without the library in it.

    Raises VerboseUnreachable if it takes the level that it was found at and not this one.
    """
    if entry.switch.set(entry.level):
        return True
    if entry.level != OFF and entry.switch.set(entry.found):
        why = f"{entry.switch.path} refused level {entry.level}"
        raise _failure(family, why, "older versions have fewer levels")
    return False


def _leave(entry: _Entry, *, release: bool = True) -> None:
    """End one copy's part in a scope: the last that was set gives back, an earlier one hands down."""
    address = entry.switch.address
    active = _active[address]
    place = active.index(entry)
    del active[place]
    if place < len(active):
        active[place].found = entry.found
    else:
        entry.switch.set(entry.found)
    if not active:
        del _active[address]
    if release:
        entry.switch.held.release()


def _level_of(switch: "Switch", family: "Family") -> int:
    """Return the level that a copy is at: as it says, as a scope set it (ours, torch's), or as it started."""
    level = switch.read()
    if level is not None:
        return level
    if active := _active.get(switch.address):
        return active[-1].level
    if switch.symbol.name.startswith("_ZN5torch"):
        from mlbackends.tracing.verbose.torch_scopes import entered_level

        if (level := entered_level()) is not None:
            return level
    # The fourth frame from here is the one that enters: a comprehension in between would be a fifth.
    beyond = switch.start.beyond
    if beyond and beyond not in _warned:
        import warnings

        _warned.add(beyond)
        warnings.warn(
            f"{family.name} cannot be set back to {beyond} from within a process: after this scope"
            f" it is at level {switch.start.level}",
            UserWarning,
            stacklevel=4,
        )
    return switch.start.level


def _failure(family: "Family", why: str, hint: str) -> VerboseUnreachable:
    return VerboseUnreachable(f"Failed to set {family.name} into verbose mode: {why}", hint)


def _refuse_unreachable(family: "Family", found: "Found") -> "NoReturn":
    from mlbackends.tracing.verbose.switches import unreachable_hint

    hint = unreachable_hint(family, found.files)
    raise _failure(family, f"this process has no {family.name} that can be switched", hint)
