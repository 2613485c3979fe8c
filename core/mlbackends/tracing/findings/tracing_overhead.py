"""The calls are so short that printing a line for each distorts what is seen."""

from mlbackends.model.trace import Call, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, percent, times, took

_SHORT_NS = 50_000
_LEAST_CALLS = 100
#: What printing a line cost, about: 3 to 4 us in oneDNN, 10 to 16 in MKL, which opens its file for each.
_LINE_NS = {"onednn": 4_000, "mkl": 12_000}


class Finder(finder.Finder):
    """Counts the lines and their time, by library."""

    WANTS = frozenset(("work", "uncounted"))
    WHY = (
        "a line's time does not include printing it, but the program runs slower"
        " than without a trace, and caches and threads cool down between calls"
    )
    ACTION = (
        "compare calls with each other, not with the program's whole time; trace less:"
        " --level exec, or a filter of components"
    )

    def key(self, record: Record) -> tuple[str, bool] | None:
        return (record.tracer, record.counted) if isinstance(record, Call) else None

    def result(self) -> Found:
        for (tracer, is_counted), calls in list(self.sums.items()):
            count, total = calls.count, calls.total_ns
            if not is_counted or count < _LEAST_CALLS or total / count >= _SHORT_NS:
                continue
            lines = count + self.sums[tracer, False].count
            cost = lines * _LINE_NS.get(tracer, 4_000)
            seen = (
                f"{times(count, 'call')} take {took(total / count)} on average; printing"
                f" {times(lines, 'line')} took about {took(cost)} more,"
                f" {percent(cost / total) if total else 'more'} as long"
            )
            severity = "medium" if cost > total else "low"
            yield self.finding(severity, seen, count=count, total_ns=float(cost))
