"""Times added up: as Python's statistics say, in one go or in many."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.groups import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

DURATIONS = st.lists(st.floats(min_value=0, max_value=1e15), min_size=1, max_size=200)


@given(DURATIONS)
def test_sums_are_those_of_the_statistics_module(durations: list[float]) -> None:
    tally = Tally()
    for duration in durations:
        tally.add_many(1, [duration])
    assert tally.count == len(tally.times) == len(durations)
    assert tally.mean == pytest.approx(statistics.fmean(durations))
    assert tally.median == pytest.approx(statistics.median(durations))
    assert (tally.least, tally.most) == (min(durations), max(durations))


@given(DURATIONS, st.integers(0, 200))
def test_adding_many_at_once_is_adding_each(durations: list[float], cut: int) -> None:
    one, many = Tally(), Tally()
    for duration in durations:
        one.add_many(1, [duration])
    for part in (durations[:cut], durations[cut:]):
        many.add_many(len(part), part)
    assert many.count == one.count
    assert many.total == pytest.approx(one.total)
    assert many.median == one.median
    assert (many.deviation or 0) == pytest.approx(one.deviation or 0, abs=1e-6)


def test_the_deviation_is_that_over_the_mean() -> None:
    tally = Tally()
    tally.add_many(3, (1e9, 1e9 + 3, 1e9 + 6))
    assert tally.deviation == pytest.approx(3 / (1e9 + 3))


def test_a_call_without_a_time_counts_and_adds_nothing() -> None:
    tally = Tally()
    tally.add_many(1, ())
    assert (tally.count, len(tally.times), tally.total) == (1, 0, 0.0)
    assert tally.mean is tally.median is tally.deviation is tally.least is tally.most is None


@pytest.mark.parametrize("count", [4000, 4001, 4002, 30_001])
@pytest.mark.parametrize(
    "made",
    [
        lambda n: [float(i * 7919 % n) for i in range(n)],
        lambda n: [1.0] * n,
        lambda n: [float(i) for i in range(n)],
        lambda n: [0.0] * (n // 2) + [1.0] * (n - n // 2),
        lambda n: [1.0 if i % 30 else 1e9 for i in range(n)],
        lambda n: [float(i % 3) for i in range(n)],
        lambda n: [float(i // 60) if i % 30 else 1e9 for i in range(n)],
    ],
    ids=["mixed", "equal", "rising", "two", "few far", "three", "periodic"],
)
def test_the_median_of_many_is_exact(made: Callable[[int], list[float]], count: int) -> None:
    tally = Tally()
    tally.add_many(count, made(count))
    assert tally.median == statistics.median(made(count))


def test_a_median_of_zeros_is_zero() -> None:
    tally = Tally()
    tally.add_many(20_000, [0.0] * 20_000)
    assert tally.median == 0
