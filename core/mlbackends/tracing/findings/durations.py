"""What the times of calls reveal: unsteady ones, slow first calls, calls that are too short."""

from mlbackends.base.errors import counted
from mlbackends.tracing.finder import Calls, Finder, Found, Sum, by_share, percent, took
from mlbackends.tracing.groups import Groups

_LEAST_REPEATED = 5
_LEAST_MEDIAN_NS = 5_000
_TIMES_LONGER = 3
_LEAST_UNSTEADY_SHARE = 0.1
_TIMES_SLOWER = 5
_LEAST_FIRST_NS = 1_000_000
_LEAST_FIRST_SHARE = 0.05
_TINY_NS = 20_000
_LEAST_TINY, _LEAST_TINY_SHARE = 100, 0.01
#: A core computes so many operations in some microseconds.
_TINY_FLOPS = 100_000


class UnsteadyTimes(Finder):
    """Equal calls took very different times: the machine was busy with something else, or throttled.

    It adds up what later calls took beyond the median, where they took over three times as long.
    Calls whose sizes are not known are left out, since they may differ; and those on GPUs, whose lines
    may hold the time of the submission alone.
    """

    GOES_FIRST = True

    def result(self) -> Found:
        slow = Sum(0)
        for calls in self.calls:
            record, later, median = calls.record, calls.later, calls.later.median or 0.0
            has_sizes = record.flops is not None or record.bytes is not None
            is_known = has_sizes and not calls.is_on_gpu
            if later.count < _LEAST_REPEATED or median < _LEAST_MEDIAN_NS or not is_known:
                continue
            beyond = [time - median for time in later.times if time > _TIMES_LONGER * median]
            if beyond:
                numbers = map(took, (median, later.mean or 0, later.most or 0))
                about = "median {}, mean {}, longest {} after the first".format(*numbers)
                slow.add_calls(calls, about, len(beyond), sum(sorted(beyond)))
        share = self.share(slow.total_ns)
        if share >= _LEAST_UNSTEADY_SHARE:
            yield self.finding(
                by_share(share, high=0.3, medium=_LEAST_UNSTEADY_SHARE),
                f"{counted(slow.count, 'call')} took over {_TIMES_LONGER} times the median of the same"
                f" calls: {took(slow.total_ns)} more than the median, {percent(share)} of the time",
                slow,
            )


class FirstCalls(Finder):
    """First calls took far longer than the same calls later: they set the library up."""

    def result(self) -> Found:
        slow = Sum(3)
        for calls in sorted(self.calls, key=lambda calls: -_excess_ns(calls)):
            if excess := _excess_ns(calls):
                slow.add(calls.longest, calls.first.count, excess)
        share = self.share(slow.total_ns)
        if share >= _LEAST_FIRST_SHARE:
            seen = (
                f"{counted(slow.count, 'first call')} took {took(slow.total_ns)} longer than the same"
                f" calls later, {percent(share)} of the time"
            )
            yield self.finding("low", seen, slow)


def _excess_ns(calls: Calls) -> float:
    """Return how much longer the first calls took than as many others; 0 where that is little."""
    usual = calls.later.mean or 0.0
    longest = calls.longest.duration_ns or 0.0
    if calls.later.count < 2 or longest < _LEAST_FIRST_NS or longest <= _TIMES_SLOWER * usual:
        return 0.0
    return max(0.0, calls.first.total - calls.first.count * usual)


class TinyCalls(Finder):
    """Many calls are so short that calling costs more than computing.

    They are grouped by operation and shape; the mean of each group decides, or how little a call computes.
    """

    def result(self) -> Found:
        by_name = Groups(("tracer", "operation", "shape", "dtype"))
        for calls in self.calls:
            by_name.add_many(calls.record, calls.count, calls.times)
        groups = by_name.sorted()
        tiny = [
            (values, group)
            for values, group in groups
            if group.tally.mean is not None
            # or its calls multiply so little that its time is that of calling
            and (group.tally.mean < _TINY_NS or 0 < group.flops < _TINY_FLOPS * group.tally.count)
        ]
        count = sum(group.tally.count for _, group in tiny)
        total = sum(group.tally.total for _, group in tiny)
        if count < _LEAST_TINY or self.share(total) < _LEAST_TINY_SHARE:
            return
        share, of_calls = self.share(total), count / (self.all_count or 1)
        heavy = share >= 0.2 or (of_calls >= 0.5 and count >= 1000)
        work_ns = sum(group.flops_ns for _, group in tiny)
        speed = sum(group.flops for _, group in tiny) / work_ns if work_ns else 0.0
        speeds = (group.flops / group.flops_ns for _, group in groups if group.flops_ns)
        best, slower = max(speeds, default=0.0), ""
        if 0 < 2 * speed < best:
            slower = f"; they reach {speed:.3g} GFLOP/s; the best in this trace is {best:.3g}"
        most = sorted(tiny, key=lambda item: -item[1].tally.count)[:4]
        yield self.finding(
            "medium" if heavy else "low",
            f"{counted(count, 'call')} ({percent(of_calls)} of all) take under {took(_TINY_NS)} or compute"
            f" under {_TINY_FLOPS:,} operations each, {took(total)} together{slower}",
            evidence=tuple(
                f"{counted(group.tally.count, 'call')} of"
                f" {' '.join(value for value in values[1:] if value)},"
                f" {took(group.tally.mean or 0)} each"
                for values, group in most
            ),
            count=count,
            total_ns=total,
            share=share,
        )
