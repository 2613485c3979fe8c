"""Whether a peer is installed, as its probe tells, and by which interpreter it is to be run."""

import sys
from functools import cache

from mlbackends.model.reasons import Reason
from mlbackends.model.records import Presence, ProbeReport
from mlbackends.sdpa.checking.peer import Peer


def why_missing(peer: Peer, python: str = "") -> tuple[Reason, ...]:
    """Return why a peer cannot be run; () if it is there.

    python: the interpreter whose environment is looked at, "" for our own. Raises BadInput where that is
    no Python.
    """
    probe = _report(peer.probe, python)
    if probe.presence is not None and probe.presence is not Presence.ABSENT:
        return ()
    told = probe.reasons[0].message if probe.reasons else f"{peer.probe} was not found"
    hint = f"{peer.install}, or name an environment that has it: --python EXE"
    return (Reason("missing-part", told, hint),)


def version(peer: Peer, python: str = "") -> str:
    """Return the release of what a peer is part of, "" where it does not say."""
    return _report(peer.probe, python).version


def interpreter(python: str = "") -> str:
    """Return the interpreter that runs peers. Raises BadInput as `why_missing` does."""
    if not python:
        return sys.executable
    from mlbackends.probing.interpreter import ask

    return str(ask(python)["executable"])


@cache
def _report(probe: str, python: str) -> ProbeReport:
    from mlbackends.probing.host import Host
    from mlbackends.probing.interpreter import ask
    from mlbackends.probing.survey import survey

    host = Host("/", python=ask(python) if python else None)
    return survey((probe,), host, Presence.FOUND).probes[probe]
