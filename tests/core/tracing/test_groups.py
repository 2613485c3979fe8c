"""Times added up: as Python's statistics say, in one go or in many."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.groups import Tally

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
