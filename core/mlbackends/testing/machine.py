"""The machine that tests run on, or the one that they are held against; each probe is asked once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from mlbackends.host.host import Host
    from mlbackends.model.records import Report


class Machine:
    """What probes say, as far as anybody asked.

    subject: a saved report or a recorded machine, "" for the live one. depth: how far the live one is
    looked at. share: a folder in which the processes of one run keep what was learned, "" for none.
    """

    def __init__(
        self, subject: str = "", depth: Presence = Presence.USABLE, share: str = ""
    ) -> None:
        self.subject = subject
        self.depth = depth
        self._share = share
        self._known: Report | None = None

    @property
    def is_live(self) -> bool:
        """Whether it is the machine of this process."""
        return not self.subject

    def report(self, names: tuple[str, ...]) -> Report:
        """Return a report that has at least the named probes.

        Raises UnknownName for a probe that there is not, BadInput for a subject that is no report.
        """
        if self.subject:
            return self._saved(names)
        missing = tuple(n for n in names if self._known is None or n not in self._known.probes)
        if self._known is not None and not missing:
            return self._known
        from mlbackends.testing.sharing import joined, shared

        if self._share and _made(self._share):
            added = shared(self._share, self.depth.value, missing, self._ask)
        else:
            added = self._ask(missing)
        self._known = joined(self._known, added)
        return self._known

    def looked_at(self, names: tuple[str, ...]) -> Report:
        """Return what files alone tell of the named probes: quick, and "found" at most."""
        if self.subject:
            return self._saved(names)
        from mlbackends.survey import survey

        return survey(names, _host(), Presence.FOUND)

    def _ask(self, names: tuple[str, ...]) -> Report:
        from mlbackends.survey import survey

        return survey(names, _host(), self.depth)

    def _saved(self, names: tuple[str, ...]) -> Report:
        from mlbackends.model.errors import BadInput

        if self._known is None:
            from mlbackends.audit.reports import report_of

            self._known = report_of(self.subject)
        lacking = [name for name in names if name not in self._known.probes]
        if lacking:
            said = f"{self.subject} says nothing about {', '.join(lacking)}"
            raise BadInput(said, "save a whole report: `backends snapshot FILE.json`")
        return self._known


def _made(folder: str) -> bool:
    """Make a folder for this user alone, unless it is there; tell whether that went well."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _host() -> Host:
    from mlbackends.host.host import Host

    return Host()


_CURRENT: list[Machine] = []


def current() -> Machine:
    """Return the machine that the run of pytest is judged by; without a run, this one."""
    if not _CURRENT:
        _CURRENT.append(Machine())
    return _CURRENT[-1]


def make_current(machine: Machine) -> None:
    """Let a machine be the current one until `forget`."""
    _CURRENT.append(machine)


def forget(machine: Machine) -> None:
    """Let a machine be the current one no longer."""
    if machine in _CURRENT:
        _CURRENT.remove(machine)
