"""The exact median of numbers that lie in several arrays, without a second copy of them all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array

_FEW = 20_000
_SAMPLE = 1001


def median(parts: Sequence["array[float]"]) -> float | None:
    """Return the middle number, the mean of two where their count is even; None if there is none."""
    count = sum(len(part) for part in parts)
    if not count:
        return None
    upper = count // 2
    if count % 2:
        return _ranked(parts, count, upper, upper)[0]
    low, high = _ranked(parts, count, upper - 1, upper)
    return (low + high) / 2


def _ranked(
    parts: Sequence["array[float]"], count: int, first: int, last: int
) -> tuple[float, float]:
    """Return the numbers of two neighbouring ranks, counted from 0.

    A sample tells between which values they lie; only those are sorted. A bad guess is widened.
    """
    margin = 40 if count > _FEW else count
    sample = sorted(_every(parts, max(count // _SAMPLE, 1))) if count > _FEW else []
    while True:
        middle = round(first / count * len(sample)) if sample else 0
        low = sample[middle - margin] if middle - margin > 0 else float("-inf")
        high = sample[middle + margin] if middle + margin < len(sample) else float("inf")
        below = sum(1 for part in parts for each in part if each < low)
        between = sorted(each for part in parts for each in part if low < each < high)
        ends = [sum(part.count(end) for part in parts) for end in (low, high)]
        start = below + ends[0]
        if below <= first and last < start + len(between) + ends[1]:
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
