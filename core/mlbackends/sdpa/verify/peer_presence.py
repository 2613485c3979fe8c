"""Whether a peer is installed, as its probe tells, and by which interpreter it is to be run."""

import os
import sys
from functools import cache

from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Library, Presence, ProbeReport
from mlbackends.sdpa.verify.peer import Peer

_NUMBER = pattern(r"\d+")


def why_missing(peer: Peer, python: str = "") -> tuple[Reason, ...]:
    """Return why a peer cannot be run; () if it is there.

    python: the interpreter whose environment is looked at, "" for our own. Raises BadInput where that is
    no Python.
    """
    probe = _report(peer.probe, python)
    hint = f"{peer.install}, or name an environment that has it: --python EXE"
    if probe.presence is None or probe.presence is Presence.ABSENT:
        told = probe.reasons[0].message if probe.reasons else f"{peer.probe} was not found"
        return (Reason("missing-part", told, hint),)
    if not peer.function:
        return ()
    offering = _offering(peer.function, probe)
    if not offering:
        names = " and ".join(dict.fromkeys(map(_named, probe.libraries))) or peer.probe
        verb = "has" if len(probe.libraries) == 1 else "have"
        told = f"{names} {verb} no {peer.function}, which it calls"
        return (Reason("missing-part", told, hint),)
    if _opened(peer, python):
        return ()
    asked = _report(peer.probe, python, Presence.LOADABLE)
    reasons = [each.reasons[0] for each in _offering(peer.function, asked) if each.reasons]
    return (*(Reason(each.code, each.message, hint) for each in reasons[:1]),)


def library(peer: Peer, python: str = "") -> tuple[str, ...]:
    """Return the path of the copy of its library that a peer is given; () for one that needs none."""
    if not peer.function:
        return ()
    opened = _opened(peer, python)
    return (opened[0].path,) if opened else ()


def _opened(peer: Peer, python: str) -> list[Library]:
    """Return the copies that can be opened: those that it prefers first, then the newest."""
    asked = _report(peer.probe, python, Presence.LOADABLE)
    able = [
        each for each in _offering(peer.function, asked) if each.presence.rung > Presence.FOUND.rung
    ]

    def rank(one: Library) -> tuple[bool, list[int]]:
        fact, value = peer.prefers or ("", "")
        # The facts of the copy that speaks for the probe are the probe's own.
        told = one.facts.get(fact, asked.facts.get(fact))
        return told == value, [int(each) for each in _NUMBER.findall(one.version)]

    return sorted(able, key=rank, reverse=True)


def _offering(function: str, probe: ProbeReport) -> list[Library]:
    """Return the copies that have a function for others, read from their files."""
    return [each for each in probe.libraries if _offers(each.path, function)]


@cache
def _offers(path: str, function: str) -> bool:
    from mlbackends.libraries.elf import NotElf, defined_symbols

    try:
        return bool(defined_symbols(os.path.realpath(path), (function,)))
    except (NotElf, OSError):
        return sys.platform != "linux"  # other formats are not read: opening it will tell


def _named(found: Library) -> str:
    return os.path.basename(found.path)


def interpreter(python: str = "") -> str:
    """Return the interpreter that runs peers. Raises BadInput as `why_missing` does."""
    if not python:
        return sys.executable
    from mlbackends.host.interpreter import ask

    return str(ask(python)["executable"])


@cache
def _report(probe: str, python: str, depth: Presence = Presence.FOUND) -> ProbeReport:
    from mlbackends.host.host import Host
    from mlbackends.host.interpreter import ask
    from mlbackends.survey import survey

    host = Host("/", python=ask(python) if python else None)
    return survey((probe,), host, depth).probes[probe]
