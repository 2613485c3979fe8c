"""Statistics of several arrays are those of one list."""

from __future__ import annotations

import statistics as reference
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.statistics import statistics

TIMES = st.floats(0, 1e12)


@given(st.lists(st.lists(TIMES, max_size=30), max_size=5))
def test_small_ones(parts: list[list[float]]) -> None:
    flat = [each for part in parts for each in part]
    found = statistics([array("d", part) for part in parts])
    assert found.count == len(flat)
    assert found.total == pytest.approx(sum(flat))
    if flat:
        assert (found.minimum, found.maximum) == (min(flat), max(flat))
        assert found.median == pytest.approx(reference.median(flat))
    else:
        assert found.median is None


@pytest.mark.parametrize("count", [4001, 4002, 30_001])
@pytest.mark.parametrize(
    "made",
    [
        lambda n: [float(i * 7919 % n) for i in range(n)],
        lambda n: [1.0] * n,
        lambda n: [float(i) for i in range(n)],
        lambda n: [0.0] * (n // 2) + [1.0] * (n - n // 2),
        lambda n: [1.0 if i % 30 else 1e9 for i in range(n)],
        lambda n: [float(i % 3) for i in range(n)],
    ],
    ids=["mixed", "equal", "rising", "two", "few far", "three"],
)
def test_the_median_of_many_is_exact(made: object, count: int) -> None:
    numbers = made(count)  # type: ignore[operator]
    parts = [array("d", numbers[: count // 3]), array("d"), array("d", numbers[count // 3 :])]
    assert statistics(parts).median == reference.median(numbers)
