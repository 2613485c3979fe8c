"""The record of `backends bench`: how fast a machine is, to compare it with others and with itself."""

from msgspec import Struct

from mlbackends.base.reasons import Reason

SCHEMA = "backends.bench/1"


class Figure(Struct, frozen=True):
    """One speed: the upper quartile of the rounds, of each of which the fastest call counts.

    value: in `unit`; null if it was not measured, for `reason`. spread: between the quarters of the rounds,
    as a share of the value. repetitions: how many calls. by: what was done. limited_by: "" if unknown.
    """

    name: str
    unit: str
    value: float | None = None
    spread: float | None = None
    repetitions: int = 0
    by: str = ""
    limited_by: str = ""
    reason: Reason | None = None


class MachineSpeed(Struct, frozen=True):
    """The answer to `backends bench`. disturbed: what else used the machine meanwhile, or slowed it down.

    threads: of arithmetic, memory and attention. load: the average of the last minute before the start.
    """

    schema: str
    tool: str
    created: str
    processor: str
    threads: int
    rounds: int
    seconds: float
    figures: tuple[Figure, ...]
    disturbed: tuple[Reason, ...] = ()
    load: float | None = None
