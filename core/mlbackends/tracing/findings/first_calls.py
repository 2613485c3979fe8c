"""First calls took far longer than the same calls later: they set the library up."""

from mlbackends.model.trace import Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Evidence, Whole, percent, times, took

_TIMES_SLOWER = 5
_LEAST_NS = 1_000_000
_LEAST_SHARE = 0.05
_MOST_THREADS = 4096
Which = tuple[str, int | None, str]


class Calls:
    """Equal calls of one process: the first ones, and the others.

    First are the first call, what began before it ended and so waited for the same, and the first call
    of each other thread. longest: the record of the longest of them, None where all are short.
    """

    __slots__ = ("_end_ns", "_threads", "count", "first_count", "first_ns", "longest", "rest_ns")

    longest: Record | None
    _threads: tuple[int | None, ...] | set[int | None]

    def __init__(self, record: Record, duration: float) -> None:
        start = record.start_ns
        self._end_ns = None if start is None else start + duration
        self._threads = (record.thread,)
        self.count = 0
        self.rest_ns = 0.0
        self.first_count = 1
        self.first_ns = duration
        self.longest = record if duration >= _LEAST_NS else None

    def add(self, record: Record, duration: float) -> None:
        """Take in another call."""
        if not self._is_first(record):
            self.count += 1
            self.rest_ns += duration
            return
        self.first_count += 1
        self.first_ns += duration
        if duration >= max(_LEAST_NS, self._longest_ns):
            self.longest = record

    def _is_first(self, record: Record) -> bool:
        if record.thread not in self._threads and len(self._threads) < _MOST_THREADS:
            self._threads = {*self._threads} if isinstance(self._threads, tuple) else self._threads
            self._threads.add(record.thread)
            return True
        start = record.start_ns
        return self._end_ns is not None and start is not None and start < self._end_ns

    @property
    def _longest_ns(self) -> float:
        return (self.longest.duration_ns or 0.0) if self.longest else 0.0

    @property
    def excess_ns(self) -> float:
        """How much longer the first calls took than as many others; 0 where that is little."""
        if self.count < 2 or self.longest is None:
            return 0.0
        usual = self.rest_ns / self.count
        if self._longest_ns <= _TIMES_SLOWER * usual:
            return 0.0
        return max(0.0, self.first_ns - self.first_count * usual)


class Finder(finder.Finder):
    """Keeps, for each different call, the sum of the first times and of the others."""

    def begin(self) -> None:
        self._calls: dict[Which, Calls] = {}

    def add(self, record: Record) -> None:
        duration = record.duration_ns
        if duration is None:
            return
        which = (record.source, record.process, record.key)
        calls = self._calls.get(which)
        if calls is None:
            self._calls[which] = Calls(record, duration)
        else:
            calls.add(record, duration)

    def take(self, record: Record, count: int, total_ns: float) -> None:
        # Later calls of the first one's thread, that began after it ended.
        calls = self._calls.get((record.source, record.process, record.key))
        if calls is not None:
            calls.count += count
            calls.rest_ns += total_ns

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if first calls take a share that matters."""
        slow = [
            (excess, calls) for calls in self._calls.values() if (excess := calls.excess_ns) > 0
        ]
        slow.sort(key=lambda item: -item[0])
        total = sum(excess for excess, _ in slow)
        count = sum(calls.first_count for _, calls in slow)
        share = whole.share(total)
        if share < _LEAST_SHARE:
            return []
        evidence = Evidence()
        for _, calls in slow:
            if calls.longest is not None:
                evidence.add(calls.longest)
        return [
            self.finding(
                "low",
                (
                    f"{times(count, 'first call')} took {took(total)} longer than the same calls"
                    f" later, {percent(share)} of the time; each thread has first calls"
                ),
                why="they load kernels, start threads and touch memory for the first time",
                action="leave them out of comparisons: --skip-first 1",
                evidence=evidence.lines,
                count=count,
                total_ns=total,
                share=share,
            )
        ]
