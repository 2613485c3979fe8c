"""Sum, extremes and exact median of times that lie in several arrays, without a second copy of all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from array import array

_FEW = 4000
_SAMPLE = 1001


class Statistics(Struct, frozen=True):
    """Of so many times, in their unit; the extremes and the median are None where there is none."""

    count: int
    total: float
    minimum: float | None
    maximum: float | None
    median: float | None


def statistics(parts: Sequence["array[float]"]) -> Statistics:
    """Return what is asked for of the numbers in all parts; two middle ones have their mean as median."""
    count = sum(len(part) for part in parts)
    if not count:
        return Statistics(0, 0.0, None, None, None)
    upper = count // 2
    lower = upper if count % 2 else upper - 1
    if count <= _FEW:
        ordered = sorted(parts[0]) if len(parts) == 1 else sorted(x for part in parts for x in part)
        middle = (ordered[lower] + ordered[upper]) / 2
        return Statistics(count, sum(ordered), ordered[0], ordered[-1], middle)
    low, high = _ranked(parts, count, lower, upper)
    return Statistics(
        count,
        sum(sum(part) for part in parts),
        min(min(part) for part in parts if part),
        max(max(part) for part in parts if part),
        (low + high) / 2,
    )


def _ranked(
    parts: Sequence["array[float]"], count: int, first: int, last: int
) -> tuple[float, float]:
    """Return the numbers of two neighbouring ranks, counted from 0.

    A sample tells between which values they lie; only those are sorted. A bad guess is widened.
    """
    margin = 40
    sample = sorted(_every(parts, count // _SAMPLE))
    while True:
        middle = round(first / count * len(sample))
        low = sample[middle - margin] if middle - margin > 0 else float("-inf")
        high = sample[middle + margin] if middle + margin < len(sample) else float("inf")
        # Not those at the ends: of coarse times half may be the same.
        start = sum(len([0 for each in part if each <= low]) for part in parts)
        between = sorted([each for part in parts for each in part if low < each < high])
        if start <= first and last < start + len(between):
            return between[first - start], between[last - start]
        lows = sum(part.count(low) for part in parts)
        highs = sum(part.count(high) for part in parts) if high > low else 0
        if start - lows <= first and last < start + len(between) + highs:
            chosen = [_value(rank - start, low, between, high) for rank in (first, last)]
            return chosen[0], chosen[1]
        margin *= 4


def _value(rank: int, low: float, between: list[float], high: float) -> float:
    """Return what has a rank counted from the first number above `low`."""
    if rank < 0:
        return low
    return between[rank] if rank < len(between) else high


def _every(parts: Sequence["array[float]"], step: int) -> list[float]:
    """Return each step-th number of all parts."""
    found: list[float] = []
    start = 0
    for part in parts:
        found += part[start::step]
        start = (start - len(part)) % step
    return found
