"""The machine that tests run on, or the one that they are judged by; each probe is asked once."""

import contextlib
import os
import time
from collections import Counter

import msgspec
from msgspec.structs import replace

from mlbackends.base.errors import BadInput
from mlbackends.model.records import Presence, Report

_ACCELERATORS = ("nvidia", "rocm", "xpu", "mps")
_FACTS = (("cpu", "capability"), ("limits", "effective_cpus"), ("limits", "effective_cpus_because"))


class Machine:
    """The reports of probes, as far as they were asked.

    subject: a saved report or a recorded machine, "" for the live one. depth: how far the live one is
    looked at. share: a folder in which the processes of one run keep their report, "" for none.

    Workers that each ask could get different answers (a driver may be slow once), and
    then collect different tests: the first that needs a probe asks it, the others read its report. A
    worker on another machine has no such folder, and asks for itself.
    """

    def __init__(self, subject: str = "", depth: Presence = Presence.USABLE, share: str = "") -> None:
        self.subject = subject
        self.depth = depth
        self._share = share
        self._report: Report | None = None

    def report(self, names: tuple[str, ...]) -> Report:
        """Return a report that has at least the named probes.

        Raises UnknownName for an unknown probe, BadInput for a subject that is not a report.
        """
        if self.subject:
            return self._saved(names)
        missing = _missing(self._report, names)
        if self._report is None or missing:
            added = self._shared(missing) if self._share else self._survey(missing, self.depth)
            self._report = _joined(self._report, added)
        return self._report

    def looked_at(self, names: tuple[str, ...]) -> Report:
        """Return what the named probes find in files: quick, and "found" at most."""
        return self._saved(names) if self.subject else self._survey(names, Presence.FOUND)

    def _shared(self, names: tuple[str, ...]) -> Report:
        """Return a report of the named probes, from the shared folder as far as they are there."""
        from mlbackends.host.files import lock

        path = os.path.join(self._share, f"{self.depth.value}.json")
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._share, 0o700)
            handle = os.open(os.path.join(self._share, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return self._survey(names, self.depth)
        with os.fdopen(handle):  # its end frees the lock
            while not lock(handle):
                time.sleep(0.01)
            found = None
            # It may not be there yet, or its writer was killed amid it.
            with contextlib.suppress(OSError, msgspec.DecodeError), open(path, "rb") as file:
                found = msgspec.json.decode(file.read(), type=Report)
            missing = _missing(found, names)
            if found is None or missing:
                found = _joined(found, self._survey(missing, self.depth))
                with contextlib.suppress(OSError):
                    with open(f"{path}.new", "wb") as new:
                        new.write(msgspec.json.encode(found))
                    os.replace(new.name, path)
            return found

    def _survey(self, names: tuple[str, ...], depth: Presence) -> Report:
        from mlbackends.host.host import Host
        from mlbackends.survey import survey

        return survey(names, Host(), depth)

    def _saved(self, names: tuple[str, ...]) -> Report:
        from mlbackends.audit.reports import report_of

        if self._report is None:
            self._report = report_of(self.subject)
        if missing := _missing(self._report, names):
            message = f"{self.subject} has no report of {', '.join(missing)}"
            raise BadInput(message, "save a whole report: `backends snapshot FILE.json`")
        return self._report


def _missing(report: Report | None, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if report is None or name not in report.probes)


def _joined(before: Report | None, added: Report) -> Report:
    """Return a report with the probes of both."""
    return replace(added, probes={**before.probes, **added.probes}) if before else added


# ---- the current machine -----------------------------------------------------------------------

#: The machines that runs of pytest are judged by; the last one counts.
CURRENT: list[Machine] = []


def current() -> Machine:
    """Return the machine that the run of pytest is judged by; without a run, this one."""
    if not CURRENT:
        CURRENT.append(Machine())
    return CURRENT[-1]


# ---- facts in the header of a run --------------------------------------------------------------


def facts(machine: Machine) -> dict[str, str]:
    """Return facts by dotted name, those that are there; from files alone: "found" is all that they claim."""
    report = machine.looked_at(("cpu", "limits", "torch", *_ACCELERATORS))
    accelerators = []
    for name in _ACCELERATORS:
        devices = [device for device in report.probes[name].devices if device.kind != "mig"]
        for (kind, title), count in Counter((device.kind, device.name) for device in devices).items():
            accelerators.append(f"{count} {kind} ({title})" if title else f"{count} {kind}")
    values = {f"{probe}.{fact}": str(report.probes[probe].facts.get(fact, "")) for probe, fact in _FACTS}
    values |= {
        "torch.version": report.probes["torch"].version,
        "accelerators": ", ".join(accelerators),
        "depth": str(report.depth),
        "subject": machine.subject,
    }
    return {name: value for name, value in values.items() if value}


def fact_lines(values: dict[str, str]) -> list[str]:
    """Return the facts as the header of a run shows them."""
    cpus = values.get("limits.effective_cpus", "")
    because = values.get("limits.effective_cpus_because", "")
    parts = [
        f"CPU {values['cpu.capability']}" if "cpu.capability" in values else "",
        f"{cpus} CPUs usable (set by {because})" if cpus else "",
        f"accelerators {values['depth']}: {values.get('accelerators', 'none')}",
        f"torch {values['torch.version']} found" if "torch.version" in values else "no torch found",
    ]
    lines = [f"backends: {', '.join(part for part in parts if part)}"]
    if "subject" in values:
        lines.append(f"backends: judged by {values['subject']}, not by this machine")
    return lines
