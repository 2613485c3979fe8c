"""First calls took far longer than the same calls later: they set the library up."""

from math import inf

from mlbackends.model.trace import Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, percent, times, took

_TIMES_SLOWER = 5
_LEAST_NS = 1_000_000
_LEAST_SHARE = 0.05


class Calls:
    """Equal calls of one process: the first ones, and the others.

    First are the first call, what began before it ended and so waited for the same, and the first call
    of each other thread. longest: the record of the longest of them, None where all are short.
    """

    __slots__ = ("_end_ns", "_threads", "count", "first_count", "first_ns", "longest", "rest_ns")

    def __init__(self, record: Record) -> None:
        start = record.start_ns
        self._end_ns = -inf if start is None else start + (record.duration_ns or 0.0)
        self._threads: set[int | None] = set()
        self.count = self.first_count = 0
        self.rest_ns = self.first_ns = 0.0
        self.longest: Record | None = None

    def add(self, record: Record, duration: float) -> None:
        """Take in a call."""
        is_early = record.start_ns is not None and record.start_ns < self._end_ns
        if record.thread in self._threads and not is_early:
            self.count += 1
            self.rest_ns += duration
            return
        self._threads.add(record.thread)
        self.first_count += 1
        self.first_ns += duration
        if duration >= max(_LEAST_NS, self.longest_ns):
            self.longest = record

    @property
    def longest_ns(self) -> float:
        """How long the longest first call took, 0 where all are short."""
        return (self.longest.duration_ns or 0.0) if self.longest else 0.0

    @property
    def excess_ns(self) -> float:
        """How much longer the first calls took than as many others; 0 where that is little."""
        usual = self.rest_ns / self.count if self.count else 0.0
        if self.count < 2 or self.longest_ns <= _TIMES_SLOWER * usual:
            return 0.0
        return max(0.0, self.first_ns - self.first_count * usual)


class Finder(finder.Finder):
    """Keeps, for each different call, the sum of the first times and of the others."""

    WHY = "they load kernels, start threads and touch memory for the first time"
    ACTION = "leave them out of comparisons: --skip-first 1"

    def begin(self) -> None:
        self._calls: dict[tuple[str, int | None, str], Calls] = {}

    def add(self, record: Record) -> None:
        if record.duration_ns is not None:
            which = (record.source, record.process, record.key)
            calls = self._calls.get(which)
            if calls is None:
                calls = self._calls[which] = Calls(record)
            calls.add(record, record.duration_ns)

    def take(self, record: Record, count: int, total_ns: float) -> None:
        # Later calls of the first one's thread, that began after it ended.
        calls = self._calls.get((record.source, record.process, record.key))
        if calls is not None:
            calls.count += count
            calls.rest_ns += total_ns

    def result(self) -> Found:
        slow = Sum(3)
        for calls in sorted(self._calls.values(), key=lambda each: -each.excess_ns):
            if calls.longest is not None and (excess := calls.excess_ns):
                slow.add(calls.longest, calls.first_count, excess)
        share = self.share(slow.total_ns)
        if share >= _LEAST_SHARE:
            seen = (
                f"{times(slow.count, 'first call')} took {took(slow.total_ns)} longer than the same"
                f" calls later, {percent(share)} of the time; each thread has first calls"
            )
            yield self.finding("low", seen, slow)
