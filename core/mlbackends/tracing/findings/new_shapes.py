"""New shapes kept coming after warm-up, and oneDNN made a primitive for each."""

from collections import Counter, deque
from collections.abc import Callable

from mlbackends.model.trace import Primitive, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, by_share, percent, times, took

_LEAST = 5
_LEAST_EXECUTIONS = 50


class Finder(finder.Finder):
    """Notes after how many executions each new primitive was made."""

    WANTS = frozenset(("work", "uncounted"))
    WHY = "oneDNN selects and compiles code for each new shape before it runs"
    ACTION = "pad or bucket the inputs, so that warm-up meets all shapes"

    def begin(self) -> None:
        self._executions = 0
        self._creations: list[tuple[int, float, str]] = []
        self._seen: set[int] = set()
        self._latest: deque[Primitive] = deque(maxlen=3)

    def add(self, record: Record) -> None:
        if not isinstance(record, Primitive) or record.nested:
            return
        if record.executed:
            self._executions += 1
            return
        key = hash((record.source, record.process, record.key))
        if record.cache == "cache_miss" and key not in self._seen:
            self._seen.add(key)
            duration = record.duration_ns or 0.0
            self._creations.append((self._executions, duration, record.operation))
            self._latest.append(record)

    def follow(self, record: Record) -> Callable[[float], None] | None:
        if not isinstance(record, Primitive) or not record.executed or record.nested:
            return None

        def count(_: float) -> None:
            self._executions += 1

        return count

    def result(self) -> Found:
        late = [creation for creation in self._creations if creation[0] > self._executions // 2]
        if len(late) < _LEAST or self._executions < _LEAST_EXECUTIONS:
            return
        counts = Counter(operation for _, _, operation in late)
        total = sum(duration for _, duration, _ in late)
        share = self.share(total)
        latest = Sum(3)
        for record in self._latest:
            latest.add(record, 1, 0.0)
        named = ", ".join(f"{count} of {operation}" for operation, count in counts.most_common(4))
        seen = (
            f"{times(len(late), 'new primitive')} were created in the second half of the calls"
            f" ({named}): {took(total)}, {percent(share)} of the time of all counted calls"
        )
        yield self.finding(
            by_share(share, high=0.2, medium=0.02),
            seen,
            evidence=latest.lines,
            count=len(late),
            total_ns=total,
            share=share,
        )
