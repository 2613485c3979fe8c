"""Time went into oneDNN's reference or plain implementations, which are right but slow."""

from collections import defaultdict

from mlbackends.model.trace import Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Sum, Whole, by_share, percent, times, took

_MOST = 5


class Finder(finder.Finder):
    """Adds up the calls by operation and implementation."""

    def begin(self) -> None:
        self._sums: dict[tuple[str, str, str], Sum] = defaultdict(Sum)

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Primitive) and record.slow_path:
            which = (record.operation, record.implementation, record.slow_path)
            self._sums[which].add(record, count, total_ns)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one for each operation and implementation, those that take longest."""
        worst = sorted(self._sums.items(), key=lambda item: -item[1].total_ns)
        return [self._one(*which, calls, whole) for which, calls in worst[:_MOST]]

    def _one(
        self, operation: str, implementation: str, word: str, calls: Sum, whole: Whole
    ) -> Finding:
        share = whole.share(calls.total_ns)
        # A reference part inside a larger implementation may be a small part of its time.
        inside = word.endswith(" inside")
        seen = (
            f"{times(calls.count, 'call')} of {operation} ran {implementation}:"
            f" {took(calls.total_ns)}, {percent(share)} of the time"
        )
        return self.finding(
            "low" if inside else by_share(share, high=0.1, medium=0.01),
            seen,
            why=(
                f"{word.removesuffix(' inside')!r} in the name stands for code without vector"
                f" instructions{', here a part of the implementation' if inside else ''};"
                " it is often ten to a hundred times slower"
            ),
            action=(
                "see why the faster ones refused: trace with --level dispatch and read the"
                " dispatch view; other types, layouts or attributes may be supported"
            ),
            evidence=calls.evidence.lines,
            count=calls.count,
            total_ns=calls.total_ns,
            share=share,
        )
