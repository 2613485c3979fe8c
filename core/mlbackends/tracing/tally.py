"""Times of equal calls added up: count, total, extremes, deviation and median, in little memory."""

import math
from array import array
from collections.abc import Sequence

_EXACT = 16_384
"""So many times are kept one by one; beyond, they are counted in steps of half a percent."""
_STEP = math.log1p(0.005)


class Tally:
    """Collects times in nanoseconds; None is a call whose time is not told.

    The median is exact up to 16,384 times, and from then on within a quarter of a percent.
    """

    __slots__ = (
        "_first",
        "_off",
        "_square",
        "_steps",
        "_times",
        "count",
        "least",
        "most",
        "timed",
        "total",
    )

    def __init__(self) -> None:
        self.count = 0
        self.timed = 0
        self.total = 0.0
        self.least = math.inf
        self.most = -math.inf
        self._first = 0.0
        self._off = 0.0
        self._square = 0.0
        self._times: array[float] | None = array("d")
        self._steps: dict[int, int] = {}

    def add(self, duration: float | None) -> None:
        """Add one call."""
        self.count += 1
        if duration is None:
            return
        if not self.timed:
            self._first = duration
        self.timed += 1
        self.total += duration
        self.least = min(self.least, duration)
        self.most = max(self.most, duration)
        # Around the first, since the squares of times that hardly differ would hide how they do.
        off = duration - self._first
        self._off += off
        self._square += off * off
        if self._times is not None:
            self._times.append(duration)
            if len(self._times) > _EXACT:
                self._coarsen()
        else:
            self._count_step(duration)

    def add_many(self, count: int, durations: Sequence[float]) -> None:
        """Add `count` calls at once; those whose time is told are the durations."""
        self.count += count
        if not durations:
            return
        if not self.timed:
            self._first = durations[0]
        first = self._first
        self.timed += len(durations)
        self.total += math.fsum(durations)
        self.least = min(self.least, *durations)
        self.most = max(self.most, *durations)
        offs = [each - first for each in durations]
        self._off += math.fsum(offs)
        self._square += math.fsum(off * off for off in offs)
        if self._times is not None:
            self._times.extend(durations)
            if len(self._times) > _EXACT:
                self._coarsen()
        else:
            for each in durations:
                self._count_step(each)

    def _coarsen(self) -> None:
        times, self._times = self._times or array("d"), None
        for each in times:
            self._count_step(each)

    def _count_step(self, duration: float) -> None:
        step = round(math.log(duration) / _STEP) if duration > 0 else -1_000_000
        self._steps[step] = self._steps.get(step, 0) + 1

    @property
    def mean(self) -> float | None:
        """The mean, None without a time."""
        return self.total / self.timed if self.timed else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation over the mean; None for fewer than two times, or a mean of 0."""
        if self.timed < 2 or not self.total:
            return None
        spread = max(0.0, self._square - self._off * self._off / self.timed) / (self.timed - 1)
        return math.sqrt(spread) * self.timed / self.total

    @property
    def median(self) -> float | None:
        """The median, None without a time."""
        if not self.timed:
            return None
        if self._times is not None:
            ordered = sorted(self._times)
            middle = len(ordered) // 2
            return (
                ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
            )
        left = (self.timed + 1) // 2
        for step in sorted(self._steps):
            left -= self._steps[step]
            if left <= 0:
                about = math.exp(step * _STEP) if step > -1_000_000 else 0.0
                return min(max(about, self.least), self.most)
        raise AssertionError(self.timed)
