"""Peer: another project's attention, which `sdpa check --peers` runs in a separate process.

The table kernels/peers/projects.toml has ours; other distributions add peers through entry points of the
group `mlbackends.kernels.peers`.
"""

import sys
from functools import cache

from msgspec import Struct

from mlbackends.base import registry
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.interpreter import query
from mlbackends.model.problem import AttentionProblem
from mlbackends.model.records import Presence, ProbeReport
from mlbackends.sdpa.constraints import BEYOND_TORCH, Constraint, no_gradient, unmet
from mlbackends.survey import survey

FOLDER = f"{registry.KERNELS}.peers"


class Peer(Struct, frozen=True):
    """Another project's way to compute attention.

    answers_to: its SDPBackend. probe: the probe that reports whether it is installed. constraints: its
    requirements. on_cuda: those on CUDA, () if the same. takes: the names in BEYOND_TORCH that it supports.
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
        """Return its constraints, and those of the features that it lacks."""
        own = self.on_cuda if platform == "cuda" and self.on_cuda else self.constraints
        lacking = (made for name, made in BEYOND_TORCH.items() if name not in self.takes)
        return (*own, *lacking) if self.gradient else (*own, *lacking, no_gradient())

    def sentences(self) -> tuple[str, ...]:
        """Return its constraints as sentences; those that differ on CUDA are the last one."""
        sentences = tuple(constraint.sentence for constraint in self.every_constraint())
        if not self.on_cuda:
            return sentences
        on_cuda = [constraint.sentence for constraint in self.every_constraint("cuda")]
        others = [sentence for sentence in on_cuda if sentence not in sentences]
        return (*sentences, f"or {'; '.join(others)}")

    def unsupported_reasons(self, problem: AttentionProblem) -> tuple[Reason, ...]:
        """Return every reason against a problem; () if it is supported."""
        return unmet(self.every_constraint(problem.platform), problem)

    def takes_device(self, problem: AttentionProblem) -> bool:
        """Return whether it computes on the problem's kind of device at all."""
        return not any(reason.code == "wrong-device" for reason in self.unsupported_reasons(problem))

    def why_missing(self, python: str = "") -> tuple[Reason, ...]:
        """Return why it cannot run; () if it is installed.

        python: the interpreter whose environment is searched, "" for our own. Raises BadInput where it is not
        a Python.
        """
        report = _report(self.probe, python)
        hint = f"{self.install}, or name an environment that has it: --python EXE"
        packages = report.facts.get("packages")
        names = packages if isinstance(packages, dict) else {}
        # The probe may have found other packages.
        if self.packages and names.keys().isdisjoint(self.packages):
            message = f"no {self.packages[0]} in the import path of {interpreter(python)}"
            return (Reason("missing-part", message, hint),)
        if report.presence is None or report.presence is Presence.ABSENT:
            reasons = report.reasons
            message = reasons[0].message if reasons else f"{self.probe} was not found"
            return (Reason("missing-part", message, hint),)
        return ()


def peers() -> tuple[Peer, ...]:
    """Return every peer, by name; anything else in the `PEERS` of an addition is left out."""
    modules = (registry.load(FOLDER, name) for name in registry.names(FOLDER))
    entries = [entry for module in modules for entry in getattr(module, "PEERS", ())]
    return tuple(sorted((e for e in entries if isinstance(e, Peer)), key=lambda peer: peer.name))


def interpreter(python: str = "") -> str:
    """Return the interpreter that runs peers. Raises BadInput where it is not a Python."""
    if not python:
        return sys.executable
    return str(query(python)["executable"])


@cache
def _report(probe: str, python: str) -> ProbeReport:
    host = Host("/", python=query(python) if python else None)
    return survey((probe,), host, Presence.FOUND).probes[probe]
