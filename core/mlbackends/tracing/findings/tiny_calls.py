"""Many calls are so short that calling costs more than computing."""

from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, percent, times, took
from mlbackends.tracing.groups import Groups

_TINY_NS = 20_000
_LEAST_CALLS = 100


class Finder(finder.Finder):
    """Groups calls by operation and shape, and looks at their means."""

    WANTS = frozenset[str]()
    WHY = (
        "checking arguments, waking threads and, in Python, the call itself take some"
        " microseconds each: more than the work"
    )
    ACTION = (
        "batch them into one call (bmm, larger batches), fuse them (torch.compile), or use"
        " fewer threads for them"
    )

    def result(self) -> Found:
        by_name = Groups(("tracer", "operation", "shape", "dtype"))
        for calls in self.calls:
            by_name.add_many(calls.record, calls.count, calls.times)
        groups = by_name.sorted()
        tiny = [
            (values, group)
            for values, group in groups
            if group.tally.mean is not None and group.tally.mean < _TINY_NS
        ]
        count = sum(group.tally.count for _, group in tiny)
        if count < _LEAST_CALLS:
            return
        total = sum(group.tally.total for _, group in tiny)
        share, of_calls = self.share(total), count / (self.all_count or 1)
        heavy = share >= 0.2 or (of_calls >= 0.5 and count >= 1000)
        work_ns = sum(group.flops_ns for _, group in tiny)
        speed = sum(group.flops for _, group in tiny) / work_ns if work_ns else 0.0
        best = max(
            (group.flops / group.flops_ns for _, group in groups if group.flops_ns), default=0.0
        )
        is_slower = speed and best > 2 * speed
        slower = (
            f"; they reach {speed:.3g} GFLOP/s; the best in this trace is {best:.3g}"
            if is_slower
            else ""
        )
        most = sorted(tiny, key=lambda item: -item[1].tally.count)[:4]
        yield self.finding(
            "medium" if heavy else "low",
            f"{times(count, 'call')} ({percent(of_calls)} of all) take under"
            f" {took(_TINY_NS)} each, {took(total)} together{slower}",
            evidence=tuple(
                f"{times(group.tally.count, 'call')} of"
                f" {' '.join(value for value in values[1:] if value)},"
                f" {took(group.tally.mean or 0)} each"
                for values, group in most
            ),
            count=count,
            total_ns=total,
            share=share,
        )
