"""The scopes in which MKL and oneDNN print a line for each call: the copies that this process has loaded.

The level belongs to the process, as in the libraries: a scope in one thread shows the calls of all.
Scopes of one thread nest. Scopes of several threads may end in any order: one that ends before a
later one leaves the level alone, and the later one restores what the earlier one had found.
"""

import _thread
import operator
import os
import warnings

from mlbackends.base.errors import MlBackendsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType, TracebackType
    from typing import Literal, Self

    from mlbackends.tracing.verbose.copies import Family, Switch

OFF = 0


class VerboseUnreachable(MlBackendsError, AssertionError):
    """No copy could be set, or one refused; nothing was changed. torch raises AssertionError too."""


_lock = _thread.RLock()
#: Per function's address the switches of scopes that have not ended, oldest first.
_active: dict[int, list["Switch"]] = {}
_warned: set[str] = set()


class Scope:
    """A scope in which every loaded copy of a library is at a level.

    Entering raises TypeError for a level that is not an integer, and VerboseUnreachable (an
    AssertionError) for one outside 0 to 2, where no copy can be set, or where one refuses; then
    nothing has changed. Level 0 silences, and needs no copy. One object may be entered repeatedly.
    """

    _family: str
    #: The attribute with the level, which need be no int. torch, too, looks on entering.
    _setting: str

    def __init__(self) -> None:
        self._entered: list[list[Switch]] = []

    def __enter__(self) -> "Self":
        from mlbackends.tracing.verbose import copies

        family: Family = getattr(copies, self._family)
        setting = getattr(self, self._setting)
        try:
            level = operator.index(setting)
        except TypeError:
            raise TypeError(
                f"{family.name}'s verbose level is an integer, 0 to 2; got {type(setting).__name__}"
            ) from None
        if not 0 <= level <= 2:
            why = f"{family.name} has no level {level}"
            raise _unreachable(family, why, "levels are 0, 1 and 2")
        with _lock:
            self._entered.append(_enter(copies, family, level))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> "Literal[False]":
        with _lock:
            for switch in reversed(self._entered.pop()):
                _leave(switch)
                switch.loaded.release()
        return False


class MklVerbose(Scope):
    """Have MKL print a line for each call, in every thread of this process, until the scope ends.

    enable: 0 silences, 1 prints each call with its time; 2 prints the same on a CPU, and MKL before
    2022 has no 2. The lines go to the standard output of the process, or to the file that
    MKL_VERBOSE_OUTPUT_FILE names. As torch's, but the level that was found is restored, and 0
    silences.
    """

    _family, _setting = "MKL", "enable"

    def __init__(self, enable: int) -> None:
        super().__init__()
        self.enable = enable


class OnednnVerbose(Scope):
    """Have oneDNN print a line for each primitive, in every thread of this process, until the end.

    level: 0 silences (its error messages too), 1 prints executions, 2 creations as well. The lines go
    to the standard output of the process. As torch's, but the level that was found is restored, and
    0 silences. oneDNN does not return its level: but for torch's own scope around this one (up to
    Python 3.13), a level that other code set is not seen, and what ONEDNN_VERBOSE sets beyond the
    levels cannot be restored (with a warning).
    """

    _family, _setting = "ONEDNN", "level"

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level


for _class in (MklVerbose, OnednnVerbose):
    _class.__name__ = _class.__qualname__ = "verbose"  # torch's name


def _enter(copies: "ModuleType", family: "Family", level: int) -> "list[Switch]":
    """Set every copy that is loaded, or none."""
    switches, files = copies.find_switches(family)
    done: list[Switch] = []
    try:
        # All are read before one is set: two files may switch the same copy, as libmkl_rt does.
        for switch in switches:
            switch.found, switch.level = _level_of(switch, family), level
        for switch in switches:
            if switch.set(level):
                _active.setdefault(switch.address, []).append(switch)
                done.append(switch)
            elif level != OFF and switch.set(switch.found):
                # A copy that takes no level at all is a build without the library in it.
                why = f"{switch.path} refused level {level}"
                raise _unreachable(family, why, "older versions have fewer levels")  # noqa: TRY301
        if level != OFF and not done:
            why = f"this process has no {family.name} that can be switched"
            raise _unreachable(family, why, copies.unreachable_hint(family, files))  # noqa: TRY301
    except BaseException:
        for switch in reversed(done):
            _leave(switch)
        done = []
        raise
    finally:
        for switch in switches:
            if switch not in done:
                switch.loaded.release()
    return done


def _unreachable(family: "Family", why: str, hint: str) -> VerboseUnreachable:
    return VerboseUnreachable(f"Failed to set {family.name} into verbose mode: {why}", hint)


def _leave(switch: "Switch") -> None:
    """End one copy's part in a scope: the last that was set restores, an earlier one hands down."""
    active = _active[switch.address]
    place = active.index(switch)
    del active[place]
    if place < len(active):
        active[place].found = switch.found
    else:
        switch.set(switch.found)
    if not active:
        del _active[switch.address]


def _level_of(switch: "Switch", family: "Family") -> int:
    """Return a copy's level: as it reports it, as a scope of ours set it, or as it started."""
    level = switch.read()
    if level is not None:
        return level
    if active := _active.get(switch.address):
        return active[-1].level
    # The fourth frame from here is the one that enters: a comprehension in between would be a fifth.
    beyond = switch.start.beyond
    if beyond and beyond not in _warned:
        _warned.add(beyond)
        warnings.warn(
            f"{family.name} cannot be set back to {beyond} from within a process: after this scope"
            f" it is at level {switch.start.level}",
            UserWarning,
            stacklevel=4,
        )
    return switch.start.level


if hasattr(os, "register_at_fork"):
    # The thread that held the lock does not exist in the child.
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001
