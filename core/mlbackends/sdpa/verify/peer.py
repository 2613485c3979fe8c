"""Peer: another project's attention, which `sdpa check --peers` runs in a process of its own.

Each is a file of kernels/peers/, which defines it as `PEER`; other distributions add theirs through entry
points of the group `mlbackends.kernels.peers`.
"""

import sys
from functools import cache

from msgspec import Struct

from mlbackends.base import registry
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem
from mlbackends.model.records import Presence, ProbeReport
from mlbackends.sdpa.constraints import BEYOND_TORCH, Constraint, no_gradient, unmet

FOLDER = f"{registry.KERNELS}.peers"


class Peer(Struct, frozen=True):
    """Another project's way to compute attention.

    answers_to: the SDPBackend that stands for it. probe: the probe that reports whether it is installed.
    constraints: what it takes; on_cuda: what it takes there, () if the same; takes: names of BEYOND_TORCH.
    program: the path of a Python file that the interpreter of its environment runs with `arguments`; it
    answers as `mlbackends_kernels.checking.serving` does, and imports nothing of mlbackends. install: the
    command that installs it. gradient: whether the program computes gradients. packages: where a probe
    reports several packages, those of which one must be installed.
    """

    name: str
    summary: str
    answers_to: str
    probe: str
    constraints: tuple[Constraint, ...]
    program: str
    arguments: tuple[str, ...] = ()
    install: str = ""
    gradient: bool = False
    takes: frozenset[str] = frozenset()
    on_cuda: tuple[Constraint, ...] = ()
    packages: tuple[str, ...] = ()

    def every_constraint(self, platform: str = "cpu") -> tuple[Constraint, ...]:
        """Return its constraints, and those for what it does not take."""
        own = self.on_cuda if platform == "cuda" and self.on_cuda else self.constraints
        refused = (each for name, each in BEYOND_TORCH.items() if name not in self.takes)
        found = (*own, *refused)
        return found if self.gradient else (*found, no_gradient())

    def sentences(self) -> tuple[str, ...]:
        """Return what it takes in words, of CUDA devices after a word of that where it differs."""
        found = tuple(each.sentence for each in self.every_constraint())
        if not self.on_cuda:
            return found
        others = [each.sentence for each in self.every_constraint("cuda")]
        more = [each for each in others if each not in found]
        return (*found, f"or {'; '.join(more)}")

    def unsupported_reasons(self, problem: AttentionProblem) -> tuple[Reason, ...]:
        """Return every reason against a problem; () if it is supported."""
        return unmet(self.every_constraint(problem.platform), problem)

    def takes_device(self, problem: AttentionProblem) -> bool:
        """Tell whether it computes on a problem's kind of device at all."""
        found = self.every_constraint(problem.platform)
        return not any(each.code == "wrong-device" and each.test(problem) for each in found)

    def why_missing(self, python: str = "") -> tuple[Reason, ...]:
        """Return why it cannot be run; () if it is installed.

        python: the interpreter whose environment is looked at, "" for our own. Raises BadInput where that
        is no Python.
        """
        report = _report(self.probe, python)
        hint = f"{self.install}, or name an environment that has it: --python EXE"
        there = report.facts.get("packages")
        names = there if isinstance(there, dict) else {}
        # Others of its probe may be there.
        if self.packages and names.keys().isdisjoint(self.packages):
            message = f"no {self.packages[0]} in the import path of {interpreter(python)}"
            return (Reason("missing-part", message, hint),)
        if report.presence is None or report.presence is Presence.ABSENT:
            reasons = report.reasons
            message = reasons[0].message if reasons else f"{self.probe} was not found"
            return (Reason("missing-part", message, hint),)
        return ()


def peers() -> tuple[Peer, ...]:
    """Return every peer, by name; an addition that brings none is left out."""
    loaded = (registry.load(FOLDER, name) for name in registry.names(FOLDER))
    found = (getattr(module, "PEER", None) for module in loaded)
    return tuple(each for each in found if isinstance(each, Peer))


def interpreter(python: str = "") -> str:
    """Return the interpreter that runs peers. Raises BadInput where that is no Python."""
    if not python:
        return sys.executable
    from mlbackends.host.interpreter import query

    return str(query(python)["executable"])


@cache
def _report(probe: str, python: str) -> ProbeReport:
    from mlbackends.host.host import Host
    from mlbackends.host.interpreter import query
    from mlbackends.survey import survey

    host = Host("/", python=query(python) if python else None)
    return survey((probe,), host, Presence.FOUND).probes[probe]
