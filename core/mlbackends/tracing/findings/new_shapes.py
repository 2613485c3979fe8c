"""New shapes kept coming after warm-up, and oneDNN made a primitive for each."""

from array import array
from collections import Counter
from collections.abc import Callable

from mlbackends.model.trace import Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Evidence, Whole, by_share, percent, times, took

_LEAST = 5
_LEAST_EXECUTIONS = 50


class Finder(finder.Finder):
    """Notes after how many executions each new primitive was made."""

    WANTS = frozenset(("work", "uncounted"))

    def begin(self) -> None:
        self._executions = 0
        self._at = array("Q")
        self._took = array("d")
        self._operations: list[str] = []
        self._names: dict[str, str] = {}
        self._seen: set[int] = set()
        self._latest: list[Primitive] = []

    def add(self, record: Record) -> None:
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
        self._latest = [*self._latest[-2:], record]

    def follow(self, record: Record) -> Callable[[float], None] | None:
        is_execution = isinstance(record, Primitive) and record.executed and not record.nested
        return self._count if is_execution else None

    def _count(self, duration: float) -> None:
        del duration
        self._executions += 1

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if the second half of the trace still made new primitives."""
        late = [index for index, at in enumerate(self._at) if at > self._executions // 2]
        if len(late) < _LEAST or self._executions < _LEAST_EXECUTIONS:
            return []
        counts = Counter(self._operations[index] for index in late)
        total = sum(self._took[index] for index in late)
        share = whole.share(total)
        evidence = Evidence()
        for record in self._latest:
            evidence.add(record)
        named = ", ".join(f"{count} of {operation}" for operation, count in counts.most_common(4))
        seen = (
            f"{times(len(late), 'new primitive')} came in the second half of the calls"
            f" ({named}): {took(total)}, {percent(share)} as long as all work"
        )
        return [
            self.finding(
                by_share(share, high=0.2, medium=0.02),
                seen,
                why="each new shape pays for choosing and compiling code before it runs once",
                action="pad or bucket the inputs, so that warm-up meets all shapes",
                evidence=evidence.lines,
                count=len(late),
                total_ns=total,
                share=share,
            )
        ]
