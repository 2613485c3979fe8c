"""First calls took far longer than the same calls later: they set the library up."""

from mlbackends.tracing import finder
from mlbackends.tracing.finder import Calls, Found, Sum, percent, times, took

_TIMES_SLOWER = 5
_LEAST_NS = 1_000_000
_LEAST_SHARE = 0.05


class Finder(finder.Finder):
    """Compares the first times of equal calls with the others."""

    WANTS = frozenset[str]()
    WHY = "first calls load kernels, start threads and touch memory for the first time"
    ACTION = "leave them out of comparisons: --skip-first 1"

    def result(self) -> Found:
        slow = Sum(3)
        for calls in sorted(self.calls, key=lambda each: -_excess_ns(each)):
            if excess := _excess_ns(calls):
                slow.add(calls.longest, calls.first.count, excess)
        share = self.share(slow.total_ns)
        if share >= _LEAST_SHARE:
            seen = (
                f"{times(slow.count, 'first call')} took {took(slow.total_ns)} longer than the same"
                f" calls later, {percent(share)} of the time"
            )
            yield self.finding("low", seen, slow)


def _excess_ns(calls: Calls) -> float:
    """Return how much longer the first calls took than as many others; 0 where that is little."""
    usual = calls.later.mean or 0.0
    longest = calls.longest.duration_ns or 0.0
    if calls.later.count < 2 or longest < _LEAST_NS or longest <= _TIMES_SLOWER * usual:
        return 0.0
    return max(0.0, calls.first.total - calls.first.count * usual)
