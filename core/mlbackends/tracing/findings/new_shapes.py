"""New shapes kept coming after warm-up, and oneDNN made a primitive for each."""

from array import array
from collections.abc import Callable, Sequence

from mlbackends.model.trace import Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.finder import Evidence, Machine, Whole, by_share, percent, times, took

_LEAST = 5
_LEAST_EXECUTIONS = 50


class Finder:
    """Notes after how many executions each new primitive was made."""

    WANTS = frozenset(("work", "uncounted"))

    def __init__(self, machine: Machine) -> None:
        del machine
        self._executions = 0
        self._at: array[int] = array("Q")
        self._took: array[float] = array("d")
        self._operations: list[str] = []
        self._names: dict[str, str] = {}
        self._seen: set[int] = set()
        self._evidence: list[Primitive] = []

    def add(self, record: Record) -> None:
        """Take in one record."""
        if not isinstance(record, Primitive) or record.nested:
            return
        if record.executed:
            self._executions += 1
            return
        which = hash((record.source, record.process, record.key))
        if record.cache != "cache_miss" or which in self._seen:
            return
        self._seen.add(which)
        self._at.append(self._executions)
        self._took.append(record.duration_ns or 0.0)
        self._operations.append(self._names.setdefault(record.operation, record.operation))
        self._evidence = [*self._evidence[-2:], record]

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added: nothing new, but see `follow`."""

    def follow(self, record: Record) -> Callable[[float], None] | None:
        """Return what takes each later call that is equal."""
        if isinstance(record, Primitive) and record.executed and not record.nested:
            return self._executed
        return None

    def _executed(self, duration: float) -> None:
        del duration
        self._executions += 1

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if the second half of the trace still made new primitives."""
        half = self._executions // 2
        late = [index for index, at in enumerate(self._at) if at > half]
        if len(late) < _LEAST or self._executions < _LEAST_EXECUTIONS:
            return []
        counts: dict[str, int] = {}
        for index in late:
            counts[self._operations[index]] = counts.get(self._operations[index], 0) + 1
        total = sum(self._took[index] for index in late)
        share = whole.share(total)
        evidence = Evidence()
        for record in self._evidence:
            evidence.add(record)
        named = ", ".join(
            f"{count} of {operation}"
            for operation, count in sorted(counts.items(), key=lambda item: -item[1])[:4]
        )
        return [
            Finding(
                code="new-shapes",
                severity=by_share(share, high=0.2, medium=0.02),
                seen=(
                    f"{times(len(late), 'new primitive')} came in the second half of the calls"
                    f" ({named}): {took(total)}, {percent(share)} as long as all work"
                ),
                why="each new shape pays for choosing and compiling code before it runs once",
                action="pad or bucket the inputs, so that warm-up meets all shapes",
                evidence=evidence.lines,
                count=len(late),
                total_ns=total,
                share=share,
            )
        ]
