"""The calls are so short that printing a line for each distorts what is seen."""

from collections import Counter, defaultdict

from mlbackends.model.trace import Call, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Sum, Whole, percent, times, took

_SHORT_NS = 50_000
_LEAST_CALLS = 100
_LINE_NS = {"onednn": 4_000, "mkl": 12_000}
"""What printing a line cost, about: 3 to 4 us in oneDNN, 10 to 16 in MKL, which opens its file for each."""


class Finder(finder.Finder):
    """Counts the lines and their time, by library."""

    WANTS = frozenset(("work", "uncounted"))

    def begin(self) -> None:
        self._lines: Counter[str] = Counter()
        self._calls: dict[str, Sum] = defaultdict(Sum)

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Call):
            self._lines[record.tracer] += count
            if record.counted:
                self._calls[record.tracer].add(record, count, total_ns)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one for each library whose calls are short."""
        del whole
        found = []
        for tracer, calls in self._calls.items():
            count, total = calls.count, calls.total_ns
            if count < _LEAST_CALLS or total / count >= _SHORT_NS:
                continue
            cost = self._lines[tracer] * _LINE_NS.get(tracer, 4_000)
            seen = (
                f"{times(count, 'call')} take {took(total / count)} on average; printing"
                f" {times(self._lines[tracer], 'line')} took about {took(cost)} beside them,"
                f" {percent(cost / total) if total else 'more'} as long"
            )
            found.append(
                self.finding(
                    "medium" if cost > total else "low",
                    seen,
                    why=(
                        "each line's own time does not hold the printing, but the program runs slower"
                        " than without a trace, and caches and threads cool down between calls"
                    ),
                    action=(
                        "compare calls with each other, not with the program's whole time; trace less:"
                        " --level exec, or a filter of components"
                    ),
                    count=count,
                    total_ns=float(cost),
                )
            )
        return found
