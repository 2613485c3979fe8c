"""Kept runs of a fleet, and their history: what changed on which nodes, when, and which nodes flap."""

import shlex
from typing import Annotated

from msgspec import Meta, Struct

from mlbackends.model.fleet import Step
from mlbackends.model.records import FactValue

SCHEMA = "backends.fleet-history/1"
#: Seconds since 1970; until the year 5138.
Time = Annotated[float, Meta(ge=0, lt=1e11)]
#: The database in a folder of kept reports.
FILE = "fleet.sqlite3"


class Asked(Struct, frozen=True):
    """What a run asks of its nodes. words: the command; program: the path of backends on the nodes.

    push: the file of a bundle, "" for one of what is installed here; None if none was pushed.
    """

    engine: str
    where: str
    words: tuple[str, ...]
    hosts: str
    program: str
    timeout: float
    fanout: int
    push: str | None = None

    @property
    def command(self) -> str:
        """The command as it is typed."""
        return shlex.join(self.words) or "info"


class Run(Struct, frozen=True):
    """A kept run. ended is None if it was interrupted or still runs.

    varying: the facts that had too many values to be compared.
    """

    number: int
    started: Time
    ended: Time | None
    asked: Asked
    expected: tuple[str, ...] | int | None
    varying: tuple[str, ...]


class RunSummary(Struct, frozen=True):
    """A run as the history has it. ended: null if it was interrupted. silent: nodes without a report."""

    run: int
    started: str
    ended: str | None
    reported: int
    silent: int


class Move(Struct, frozen=True):
    """The nodes that had a new value for the first time in a run."""

    run: int
    nodes: tuple[str, ...]


class RollOut(Struct, frozen=True):
    """Facts that changed on the same nodes in the same runs.

    moves: the first run first. total: the nodes that have changed, and those that still have a former value
    and never had the new one. left: the latter, if they are not more than those that have changed.
    """

    steps: tuple[Step, ...]
    moves: tuple[Move, ...]
    total: int
    left: tuple[str, ...]

    @property
    def done(self) -> int:
        """How many nodes have changed."""
        return sum(len(move.nodes) for move in self.moves)


class Flap(Struct, frozen=True):
    """Nodes on which facts returned to an earlier value. runs: those in which they changed.

    facts: by name, the values that it had, in turn, each once. The fact `status` has the values "ok" and
    "silent"; nodes that were silent twice or more flap.
    """

    nodes: tuple[str, ...]
    runs: tuple[int, ...]
    facts: dict[str, tuple[FactValue | None, ...]]


class SilentSince(Struct, frozen=True):
    """Nodes without a report in the newest run. run: the first since which it is so."""

    run: int
    status: str
    error: str
    nodes: tuple[str, ...]


class Count(Struct, frozen=True):
    """A value of a fact, and how many nodes have it."""

    value: FactValue | None
    nodes: int


class State(Struct, frozen=True):
    """The values of a fact from a run on, the most frequent first; of a silent node its last one."""

    run: int
    counts: tuple[Count, ...]


class FactHistory(Struct, frozen=True):
    """The values of a fact over time. mixed_since: the run since which it has several; null for not."""

    name: str
    mixed_since: int | None
    states: tuple[State, ...]


class History(Struct, frozen=True):
    """The history of a fleet over kept runs of one command.

    not_compared: facts that each node is presumed to have otherwise. facts: of --fact.
    """

    schema: str
    tool: str
    folder: str
    command: str
    runs: tuple[RunSummary, ...]
    rollouts: tuple[RollOut, ...]
    flaps: tuple[Flap, ...]
    silent: tuple[SilentSince, ...]
    not_compared: tuple[str, ...]
    notes: tuple[str, ...] = ()
    facts: tuple[FactHistory, ...] = ()
