"""Equal calls took very different times: the machine was busy with something else, or throttled."""

from mlbackends.tracing import finder
from mlbackends.tracing.finder import Calls, Found, Sum, by_share, percent, times, took

_LEAST_CALLS = 5
_LEAST_MEDIAN_NS = 5_000
_TIMES_LONGER = 3
_LEAST_SHARE = 0.1


class Finder(finder.Finder):
    """Adds up what later calls took beyond the median, where they took over three times as long.

    Calls whose sizes are not known are left out, since they may differ; and those on GPUs, whose lines
    may hold the time of the submission alone.
    """

    WANTS = frozenset[str]()
    GOES_FIRST = True
    WHY = (
        "on a quiet machine equal calls take equal time: here other programs used the CPUs, a quota"
        " stopped the process, or there are more threads than CPUs. Means, totals, shares and all"
        " findings below depend on these times"
    )
    ACTION = (
        "trace again with nothing else on the machine; until then compare medians and minima"
        " (trace diff --measure min), not totals"
    )

    def result(self) -> Found:
        slow = Sum(0)
        for calls in self.calls:
            count, excess = _disturbed(calls)
            if count:
                later = calls.later
                median, mean, longest = map(
                    took, (calls.median_ns, later.mean or 0, later.most or 0)
                )
                about = f"median {median}, mean {mean}, longest {longest} after the first"
                slow.add_calls(calls, about, count, excess)
        share = self.share(slow.total_ns)
        if share < _LEAST_SHARE:
            return
        yield self.finding(
            by_share(share, high=0.3, medium=_LEAST_SHARE),
            f"{times(slow.count, 'call')} took over {_TIMES_LONGER} times the median of the same"
            f" calls: {took(slow.total_ns)} more than the median, {percent(share)} of the time",
            slow,
        )


def _disturbed(calls: Calls) -> tuple[int, float]:
    """Return how many later calls took far longer than the median, and what they took beyond it."""
    record, later = calls.record, calls.later
    has_sizes = record.flops is not None or record.bytes is not None
    if later.count < _LEAST_CALLS or not has_sizes or calls.is_on_gpu:
        return 0, 0.0
    median = later.median or 0.0
    if median < _LEAST_MEDIAN_NS:
        return 0, 0.0
    beyond = [duration - median for duration in later.times if duration > _TIMES_LONGER * median]
    return len(beyond), sum(sorted(beyond))
