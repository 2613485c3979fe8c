"""What `sdpa check` is asked for beside the problems, and whom that means."""

import msgspec

from mlbackends.model.errors import UnknownName
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.checking.peer import Peer, peers
from mlbackends.sdpa.dispatch import backends


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for beside the problems.

    names: the backends to run, ours and peers, () for all of ours. required: those that must run and be
    right. peers: whether all peers are run too, by the interpreter `python`. rounds: how often each is
    timed; 0 for not at all. timeout: seconds for each answer.
    """

    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    peers: bool = False
    python: str = ""
    rounds: int = 7
    timeout: float = 60.0


def wanted(plan: Plan) -> tuple[tuple[AttentionBackend, ...], tuple[Peer, ...]]:
    """Return our backends and the peers that are to be run. Raises UnknownName."""
    ours = {each.name: each for each in backends()}
    others = {each.name: each for each in peers()}
    for name in (*plan.names, *plan.required):
        if name not in ours and name not in others:
            raise UnknownName("attention backend", name, (*ours, *others), "backends sdpa list")
    named = {*plan.names, *plan.required} if plan.names else {*ours, *plan.required}
    if plan.peers:
        named |= set(others)
    return (
        tuple(each for name, each in ours.items() if name in named),
        tuple(each for name, each in others.items() if name in named),
    )
