"""Calls put together by what is equal in them, each group with its times and its work."""

import math
import statistics
from array import array
from collections.abc import Callable, Sequence

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.model.trace import Call, GraphPartition, Record
from mlbackends.model.trace_views import SummaryRow, Uncounted
from mlbackends.tracing import fields

_UNTIMED = "calls without a time (as on a GPU)"
#: Which calls go into a summary: work that is counted once, what was created, parts of graphs, or all.
OF: dict[str, Callable[[Record], bool]] = {
    "work": lambda record: record.counted,
    "creations": lambda record: isinstance(record, Call) and not record.executed and not record.nested,
    "partitions": lambda record: isinstance(record, GraphPartition) and record.executed,
    "all": lambda record: isinstance(record, Call),
}


class Tally:
    """Collects times in nanoseconds. count: the calls. times: those that are known. total: of them."""

    __slots__ = ("_median", "count", "times", "total")

    def __init__(self) -> None:
        self.count = 0
        self.times = array("d")
        self.total = 0.0
        self._median: tuple[int, float | None] = (0, None)

    def add_many(self, count: int, durations: Sequence[float]) -> None:
        """Add `count` calls at once; the durations are the known times."""
        self.count += count
        self.times.extend(durations)
        self.total += math.fsum(durations)

    @property
    def least(self) -> float | None:
        """The shortest time, None without a time."""
        return min(self.times, default=None)

    @property
    def most(self) -> float | None:
        """The longest time, None without a time."""
        return max(self.times, default=None)

    @property
    def mean(self) -> float | None:
        """The mean, None without a time."""
        return self.total / len(self.times) if self.times else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation over the mean; None for fewer than two times, or a mean of 0."""
        count = len(self.times)
        if count < 2 or not self.total:
            return None
        mean = self.total / count
        offs = [duration - mean for duration in self.times]
        return math.sqrt(sum([off * off for off in offs]) / (count - 1)) / mean

    @property
    def median(self) -> float | None:
        """The median, the mean of the two in the middle; None without a time."""
        if self._median[0] != len(self.times):
            self._median = len(self.times), statistics.median(self.times) if self.times else None
        return self._median[1]


class Group:
    """Equal calls: their times, and the work and traffic of those with a time."""

    __slots__ = ("flops", "flops_ns", "record", "tally", "traffic", "traffic_ns")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.tally = Tally()
        self.flops = self.flops_ns = self.traffic = self.traffic_ns = 0.0

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Add `count` calls that are equal to one; those with a time are the durations."""
        self.tally.add_many(count, durations)
        total_ns = sum(durations)
        if not total_ns or not record.executed:
            return
        derived, timed = record.derived, len([1 for duration in durations if duration])
        if derived.flops is not None:
            self.flops += derived.flops * timed
            self.flops_ns += total_ns
        if derived.bytes is not None:
            self.traffic += derived.bytes * timed
            self.traffic_ns += total_ns

    def add(self, other: "Group") -> None:
        """Add the calls of another group."""
        self.tally.count += other.tally.count
        self.tally.times.extend(other.tally.times)
        self.tally.total += other.tally.total
        self.flops += other.flops
        self.flops_ns += other.flops_ns
        self.traffic += other.traffic
        self.traffic_ns += other.traffic_ns

    def row(self, values: tuple[str, ...], whole_ns: float) -> SummaryRow:
        """Return the group as a row; the cumulative share is left to who knows the order."""
        tally = self.tally
        return SummaryRow(
            values=values,
            count=tally.count,
            total_ns=tally.total,
            share=tally.total / whole_ns if whole_ns else 0.0,
            mean_ns=tally.mean,
            median_ns=tally.median,
            min_ns=tally.least,
            max_ns=tally.most,
            deviation=tally.deviation,
            gflops=self.flops / self.flops_ns if self.flops else None,
            gigabytes_per_second=self.traffic / self.traffic_ns if self.traffic else None,
        )


class Groups:
    """Puts calls into groups as they come; holds a group for each different call, and no call.

    by: fields (`fields.field_name`). of: a name in OF. top: the number of groups shown, 0 for all.
    Raises BadInput for a negative number.
    """

    def __init__(self, by: tuple[str, ...], of: str = "work", top: int = 0) -> None:
        if top < 0:
            raise BadInput(f"the number of rows cannot be {top}; use 0 for all")
        if of not in OF:
            raise UnknownName("kind of calls", of, tuple(OF))
        self.by = tuple(fields.field_name(name) for name in by)
        self.top = top
        self.groups: dict[tuple[str, ...], Group] = {}
        self.count = 0
        self.total_ns = 0.0
        self._belongs = OF[of]
        self._readers = [fields.read_text(name) for name in self.by]
        self._constant = not fields.CHANGING.intersection(self.by)
        self._by_key: dict[str, Group] = {}
        self._uncounted: dict[str, Tally] = {}

    def add(self, record: Record) -> None:
        """Add a record, if it is one of the calls that belong here."""
        duration = record.duration_ns
        self.add_many(record, 1, () if duration is None else (duration,))

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Add `count` calls that are equal to one; its fields are those of all but for their times."""
        if not self._belongs(record):
            if isinstance(record, Call) and (why := _why_not(record)):
                self._uncounted.setdefault(why, Tally()).add_many(count, durations)
            return
        self.count += count
        self.total_ns += sum(durations)
        if untimed := count - len(durations):
            self._uncounted.setdefault(_UNTIMED, Tally()).add_many(untimed, ())
        # Fields are the same for all calls of one key, unless one differs from call to call.
        key = f"{record.kind} {record.key}" if self._constant else ""
        group = self._by_key.get(key) if key else None
        if group is None:
            values = tuple(reader(record) for reader in self._readers)
            group = self.groups.setdefault(values, Group(record))
            if key:
                self._by_key[key] = group
        group.add_many(record, count, durations)

    def add_groups(self, finer: "Groups") -> None:
        """Add calls that are in groups by more fields."""
        places = [finer.by.index(name) for name in self.by]
        for values, group in finer.groups.items():
            own = tuple(values[place] for place in places)
            self.groups.setdefault(own, Group(group.record)).add(group)
        self.count += finer.count
        self.total_ns += finer.total_ns

    def sorted(self) -> list[tuple[tuple[str, ...], Group]]:
        """Return the groups, those that took longest first, then those that came most often."""
        return sorted(
            self.groups.items(),
            key=lambda item: (-item[1].tally.total, -item[1].tally.count, item[0]),
        )

    def uncounted(self) -> tuple[Uncounted, ...]:
        """Return what was left out of the totals, and why."""
        return tuple(
            Uncounted(reason=reason, count=tally.count, total_ns=tally.total)
            for reason, tally in sorted(self._uncounted.items())
        )


def _why_not(record: Call) -> str:
    """Return why a call is in no total; "" for what was not requested."""
    if record.workspace_query:
        return "workspace size queries"
    if isinstance(record, GraphPartition):
        if record.executed:
            return "graph partitions, whose primitives are counted"
        return "graph compilations"
    if record.event.endswith(":start"):
        return "starts of calls that have their own line"
    if record.event.startswith("exec:"):
        return "parts of primitives that are counted as a whole"
    if record.nested:
        return "nested primitive creations"
    if not record.executed:
        return "primitive creations"
    return ""
