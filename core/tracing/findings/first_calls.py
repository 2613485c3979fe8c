"""First calls took far longer than the same calls later: they set the library up."""

from mlbackends.model.trace import Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.fields import origin
from mlbackends.tracing.observing import Evidence, Machine, Whole, percent, times, took

_TIMES_SLOWER = 5
_LEAST_NS = 1_000_000
_LEAST_SHARE = 0.05


class Finder:
    """Keeps, for each different call, the first time and the sum of the others."""

    WANTS = frozenset(("work",))

    def __init__(self, machine: Machine) -> None:
        del machine
        self._calls: dict[tuple[str, int | None, str], list[float]] = {}
        self._first: dict[tuple[str, int | None, str], Record] = {}

    def add(self, record: Record) -> None:
        """Take in one record."""
        duration = record.duration_ns
        if duration is None:
            return
        which = (origin(record.source), record.process, record.key)
        sums = self._calls.get(which)
        if sums is None:
            self._calls[which] = [duration, 0, 0.0]
            if duration >= _LEAST_NS:
                self._first[which] = record
        else:
            sums[1] += 1
            sums[2] += duration

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if first calls take a share that matters."""
        slow = []
        for which, record in self._first.items():
            first, count, rest = self._calls[which]
            if count >= 2 and first > _TIMES_SLOWER * rest / count:
                slow.append((first - rest / count, record))
        slow.sort(key=lambda item: -item[0])
        total = sum(excess for excess, _ in slow)
        share = whole.share(total)
        if share < _LEAST_SHARE:
            return []
        evidence = Evidence()
        for _, record in slow:
            evidence.add(record)
        return [
            Finding(
                code="first-calls",
                severity="low",
                seen=(
                    f"{times(len(slow), 'first call')} took {took(total)} longer than the same calls"
                    f" later, {percent(share)} of the time"
                ),
                why="they load kernels, start threads and touch memory for the first time",
                action="leave them out of comparisons: --skip-first 1",
                evidence=evidence.lines,
                count=len(slow),
                total_ns=total,
                share=share,
            )
        ]
