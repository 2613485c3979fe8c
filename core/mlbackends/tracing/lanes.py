"""When and where each call ran, as far as the trace records it.

A lane is a thread of a process; where these are not known, a source (a rank) or the whole trace.
Stamps of different clocks (the wall's, the machine's since it started) cannot be compared, so each
clock's first call begins at 0. Calls without a stamp begin where the call before them on their lane ended:
a synthetic time, and marked so.
"""

from typing import NamedTuple

from mlbackends.model.trace import Call, GraphPartition, Record

#: Thirty years: what is longer was not printed by a library.
_LONGEST_NS = 10**18
#: Calls on further lanes have no place: no trace has as many threads.
_MOST_LANES = 100_000


#: Source, process and thread.
Lane = tuple[str, int | None, int | None]


class Placed(NamedTuple):
    """A call's place. start_ns: since the first call; synthetic: it was not in the trace."""

    lane: Lane
    start_ns: int
    duration_ns: float
    synthetic: bool


class Placing:
    """Gives each call its place; `lanes` names those that were met, in their order."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, None] = {}
        self._origins: dict[str, int] = {}
        self._ends: dict[Lane, int] = {}

    def place(self, record: Record) -> Placed | None:
        """Return the place of a call that ran or was made; None for others, and without a time.

        A call may begin before 0: a part of a graph comes after what ran inside it.
        """
        duration = record.duration_ns
        if not isinstance(record, Call) or duration is None or not 0 <= duration <= _LONGEST_NS:
            return None
        lane = (record.source, record.process, record.thread)
        if lane not in self.lanes:
            if len(self.lanes) >= _MOST_LANES:
                return None
            self.lanes[lane] = None
        encloses = isinstance(record, GraphPartition) and record.executed
        if record.start_ns is None:
            start = self._ends.get(lane, 0) - (round(duration) if encloses else 0)
        else:
            start = record.start_ns - self._origins.setdefault(record.clock, record.start_ns)
        # Calls inside or around others do not add time to the lane.
        if not record.nested and not encloses:
            self._ends[lane] = max(self._ends.get(lane, start), start + round(duration))
        return Placed(lane, start, duration, record.start_ns is None)


def lane_name(lane: Lane) -> str:
    """Return the name of a lane for people."""
    parts = zip(("", "process ", "thread "), lane, strict=True)
    return " ".join(f"{word}{value}" for word, value in parts if value not in {None, ""}) or "all calls"
