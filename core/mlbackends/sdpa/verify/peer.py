"""Peer: somebody else's attention, which `sdpa check --peers` runs in a process of its own.

Each is a file of kernels/peers/, which has it as `PEER`; other distributions add theirs through entry
points of the group `mlbackends_kernels.peers`.
"""

from msgspec import Struct

from mlbackends.model import registry
from mlbackends.model.problem import AttentionProblem
from mlbackends.model.reasons import Reason
from mlbackends.sdpa.constraints import Constraint, no_gradient, unmet

FOLDER = "mlbackends_kernels.peers"


class Peer(Struct, frozen=True):
    """Somebody else's way to compute attention.

    summary: what it is. answers_to: the SDPBackend that stands for it. probe: the name of the probe
    that tells whether it is installed. constraints: what it takes. program: the path of a Python file
    that the interpreter of its environment runs with `arguments`; it speaks as
    `mlbackends_kernels.checking.serving` does, and imports nothing of mlbackends. install: what to type.
    function: what a library of the probe must offer; the path of the copy that does is the program's last
    argument. prefers: a fact of that library, and the value that goes before others.
    gradient: whether the program computes gradients.
    """

    name: str
    summary: str
    answers_to: str
    probe: str
    constraints: tuple[Constraint, ...]
    program: str
    arguments: tuple[str, ...] = ()
    install: str = ""
    function: str = ""
    prefers: tuple[str, str] | None = None
    gradient: bool = False

    def every_constraint(self) -> tuple[Constraint, ...]:
        """Return its constraints, and that there be no gradient where it computes none."""
        return self.constraints if self.gradient else (*self.constraints, no_gradient())

    def unsupported_reasons(self, problem: AttentionProblem) -> tuple[Reason, ...]:
        """Return everything that speaks against a problem; () if it fits."""
        return unmet(self.every_constraint(), problem)


def peers() -> tuple[Peer, ...]:
    """Return every peer, by name; an addition that brings none is left out."""
    loaded = (registry.load(FOLDER, name) for name in registry.names(FOLDER))
    found = (getattr(module, "PEER", None) for module in loaded)
    return tuple(each for each in found if isinstance(each, Peer))
