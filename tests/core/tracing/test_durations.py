"""A time is a number that can be one."""

from __future__ import annotations

from math import inf, nan

import pytest

from mlbackends.tracing.numbers import is_time, nanoseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1.5", 1.5e6), ("1,5", 1.5e6), ("0", 0.0), ("1e+20", 1e26), ("-0", 0.0)],
)
def test_a_time_in_milliseconds(text: str, expected: float) -> None:
    assert nanoseconds(text, 1e6) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e22", "1e305", "1e400", "inf", "nan"])
def test_what_is_no_time(text: str) -> None:
    assert nanoseconds(text, 1e6) is None


def test_no_time_is_endless_or_negative() -> None:
    assert [is_time(each) for each in (0.0, 1e27, 1e28, inf, -inf, nan, -1e-9)] == [
        *(True, True, False, False, False, False, False),
    ]
