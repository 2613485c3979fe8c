"""Times of equal calls: count, total, extremes, deviation and median."""

import math
from array import array
from collections.abc import Sequence

_FEW = 4000
_SAMPLE = 1001
_MARGIN = 40


class Tally:
    """Collects times in nanoseconds. count: the calls. times: those that are known. total: of them."""

    __slots__ = ("count", "times", "total")

    def __init__(self) -> None:
        self.count = 0
        self.times = array("d")
        self.total = 0.0

    def add_many(self, count: int, durations: Sequence[float]) -> None:
        """Add `count` calls at once; the durations are the known times."""
        self.count += count
        self.times.extend(durations)
        self.total += math.fsum(durations)

    @property
    def least(self) -> float | None:
        """The shortest time, None without a time."""
        return min(self.times, default=None)

    @property
    def most(self) -> float | None:
        """The longest time, None without a time."""
        return max(self.times, default=None)

    @property
    def timed(self) -> int:
        """How many calls have a time."""
        return len(self.times)

    @property
    def mean(self) -> float | None:
        """The mean, None without a time."""
        return self.total / self.timed if self.times else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation over the mean; None for fewer than two times, or a mean of 0."""
        if self.timed < 2 or not self.total:
            return None
        mean = self.total / self.timed
        offs = [each - mean for each in self.times]
        return math.sqrt(sum([off * off for off in offs]) / (self.timed - 1)) / mean

    @property
    def median(self) -> float | None:
        """The median, the mean of the two in the middle; None without a time."""
        times, upper = self.times, len(self.times) // 2
        lower = upper if len(times) % 2 else upper - 1
        if len(times) > _FEW:
            # A sample tells between which values the middle lies; only those are sorted.
            sample = sorted(times[:: len(times) // _SAMPLE])
            low, high = (sample[len(sample) // 2 + margin] for margin in (-_MARGIN, _MARGIN))
            below = len([0 for each in times if each < low])
            between = sorted([each for each in times if low <= each <= high])
            if below <= lower and upper < below + len(between):
                return (between[lower - below] + between[upper - below]) / 2
        ordered = sorted(times)
        return (ordered[lower] + ordered[upper]) / 2 if ordered else None
