"""The calls are so short that printing a line for each distorts what is seen."""

from collections.abc import Sequence

from mlbackends.model.trace import Call, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.finder import Machine, Whole, percent, times, took

_SHORT_NS = 50_000
_LEAST_CALLS = 100
_LINE_NS = {"onednn": 4_000, "mkl": 12_000}
"""What printing a line cost, about: 3 to 4 us in oneDNN, 10 to 16 in MKL, which opens its file for each."""


class Finder:
    """Counts the lines and their time, by library."""

    WANTS = frozenset(("work", "uncounted"))

    def __init__(self, machine: Machine) -> None:
        del machine
        self._lines: dict[str, int] = {}
        self._calls: dict[str, list[float]] = {}

    def add(self, record: Record) -> None:
        """Take in one record."""
        self._take(record, 1, record.duration_ns or 0.0)

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added."""
        self._take(record, count, sum(durations))

    def _take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Call):
            self._lines[record.tracer] = self._lines.get(record.tracer, 0) + count
            if record.counted:
                sums = self._calls.setdefault(record.tracer, [0, 0.0])
                sums[0] += count
                sums[1] += total_ns

    def result(self, whole: Whole) -> list[Finding]:
        """Return one for each library whose calls are short."""
        del whole
        found = []
        for tracer, (count, total) in self._calls.items():
            if count < _LEAST_CALLS or total / count >= _SHORT_NS:
                continue
            cost = self._lines[tracer] * _LINE_NS.get(tracer, 4_000)
            found.append(
                Finding(
                    code="tracing-overhead",
                    severity="medium" if cost > total else "low",
                    seen=(
                        f"{times(int(count), 'call')} take {took(total / count)} on average; printing"
                        f" {times(self._lines[tracer], 'line')} took about {took(cost)} beside them,"
                        f" {percent(cost / total) if total else 'more'} as long"
                    ),
                    why=(
                        "each line's own time does not hold the printing, but the program runs slower"
                        " than without a trace, and caches and threads cool down between calls"
                    ),
                    action=(
                        "compare calls with each other, not with the program's whole time; trace less:"
                        " --level exec, or a filter of components"
                    ),
                    count=int(count),
                    total_ns=float(cost),
                )
            )
        return found
