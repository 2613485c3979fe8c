"""Time went into oneDNN's reference or plain implementations, which are right but slow."""

from collections.abc import Sequence

from mlbackends.model.trace import Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.finder import Evidence, Machine, Whole, by_share, percent, times, took

_MOST = 5


class Finder:
    """Adds up the calls by operation and implementation."""

    WANTS = frozenset(("work",))

    def __init__(self, machine: Machine) -> None:
        del machine
        self._found: dict[tuple[str, str, str], list[float]] = {}
        self._evidence: dict[tuple[str, str, str], Evidence] = {}

    def add(self, record: Record) -> None:
        """Take in one record."""
        self._take(record, 1, record.duration_ns or 0.0)

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added."""
        self._take(record, count, sum(durations))

    def _take(self, record: Record, count: int, total_ns: float) -> None:
        if not isinstance(record, Primitive) or not record.slow_path:
            return
        which = (record.operation, record.implementation, record.slow_path)
        sums = self._found.setdefault(which, [0, 0.0])
        sums[0] += count
        sums[1] += total_ns
        self._evidence.setdefault(which, Evidence(2)).add(record)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one for each operation and implementation, those that take longest."""
        worst = sorted(self._found.items(), key=lambda item: -item[1][1])
        return [
            self._one(which, int(count), total, whole) for which, (count, total) in worst[:_MOST]
        ]

    def _one(
        self, which: tuple[str, str, str], count: int, total_ns: float, whole: Whole
    ) -> Finding:
        operation, implementation, word = which
        share = whole.share(total_ns)
        # A reference part inside a larger implementation may be a small part of its time.
        inside = word.endswith(" inside")
        severity = "low" if inside else by_share(share, high=0.1, medium=0.01)
        return Finding(
            code="reference-implementation",
            severity=severity,
            seen=(
                f"{times(count, 'call')} of {operation} ran {implementation}:"
                f" {took(total_ns)}, {percent(share)} of the time"
            ),
            why=(
                f"{word.removesuffix(' inside')!r} in the name stands for code without vector"
                f" instructions{', here a part of the implementation' if inside else ''};"
                " it is often ten to a hundred times slower"
            ),
            action=(
                "see why the faster ones refused: trace with --level dispatch and read the"
                " dispatch view; other types, layouts or attributes may be supported"
            ),
            evidence=self._evidence[which].lines,
            count=count,
            total_ns=total_ns,
            share=share,
        )
