"""Lines whose time is also in other lines: they are in no total."""

from collections.abc import Sequence

from mlbackends.model.trace import Call, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, took
from mlbackends.tracing.groups import Groups

_CREATIONS = frozenset({"primitive creations", "graph compilations"})


class Finder(finder.Finder):
    """Adds up what is nested, by reason."""

    WANTS = frozenset(("uncounted",))
    WHY = (
        "a graph partition includes its primitives, and a creation the nested ones; a workspace size"
        " query does no work"
    )
    ACTION = "nothing to do; group by kind or event, of all calls, to see them"

    def begin(self) -> None:
        self._groups = Groups(())
        self._nested = Sum(3)

    def add(self, record: Record) -> None:
        if isinstance(record, Call):
            self._groups.add(record)
            if record.executed:
                self._nested.add(record, 1, 0.0)

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        self._groups.add_many(record, count, durations)

    def result(self) -> Found:
        left = [one for one in self._groups.uncounted() if one.reason not in _CREATIONS]
        total = sum(one.total_ns for one in left)
        sums = (f"{one.count:,} {one.reason}, {took(one.total_ns)}" for one in left)
        if left:
            yield self.finding(
                "note",
                f"{took(total)} in nested or enclosing lines is not counted",
                evidence=(*sums, *self._nested.lines),
                count=sum(one.count for one in left),
                total_ns=total,
            )
