"""What `sdpa check` is asked for beside the problems, and whom that means."""

import msgspec

from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import backends
from mlbackends.sdpa.verify.peer import Peer, peers


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for beside the problems.

    names: the backends to run, ours and peers, () for all of ours. required: those that must run and be
    right. also: those that are run beside either. peers: whether all peers are run too, by the interpreter
    `python`. rounds: how often each is timed; 0 for not at all. timeout: seconds for each answer.
    """

    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    peers: bool = False
    python: str = ""
    rounds: int = 7
    timeout: float = 60.0


def wanted(plan: Plan) -> tuple[tuple[AttentionBackend, ...], tuple[Peer, ...]]:
    """Return our backends and the peers that are to be run.

    Raises UnknownName, and BadInput for an interpreter that nobody is run by.
    """
    ours = {each.name: each for each in backends()}
    others = {each.name: each for each in peers()}
    beside = (*plan.required, *plan.also)
    for name in (*plan.names, *beside):
        if name not in ours and name not in others:
            raise UnknownName("attention backend", name, (*ours, *others), "backends sdpa list")
    named = {*(plan.names or ours), *beside, *(others if plan.peers else ())}
    if plan.python and not named & set(others):
        told = "--python says where peers are looked for, and no peer is asked for"
        raise BadInput(told, "say --peers, or --backend with the name of a peer")
    return (
        tuple(each for name, each in ours.items() if name in named),
        tuple(each for name, each in others.items() if name in named),
    )
