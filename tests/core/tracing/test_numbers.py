"""Numbers: whole ones, times, and those with a decimal comma."""

from __future__ import annotations

from math import inf, nan

import pytest

from mlbackends.tracing.numbers import is_stamp, is_time, nanoseconds, rejoined, whole_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5", 1.5),
        ("1,5", 1.5),
        ("7", 7.0),
        ("1e-05", 1e-05),
        ("1,23457e+06", 1234570.0),
        ("0", 0),
    ],
)
def test_a_number_in_any_locale(text: str, value: float) -> None:
    assert nanoseconds(text, 1.0) == value


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1,2,3", "0x10", "1.5ms"])
def test_what_is_no_number(text: str) -> None:
    assert nanoseconds(text, 1.0) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-1", -1),
        ("9" * 18, 10**18 - 1),
        ("9" * 400, None),
        ("5x12", None),
        ("٣", None),
    ],
)
def test_a_whole_number_fits_into_64_bits(text: str, number: int | None) -> None:
    assert whole_number(text) == number


def test_a_stamp_fits_into_63_bits() -> None:
    assert is_stamp(b"1795258901075670898")
    assert is_stamp(b"9199999999999999999")
    assert not is_stamp(b"9223372036854775808")
    assert not is_stamp(b"17952589010756708980")
    assert not is_stamp(b"")


def test_fields_that_are_right_stay() -> None:
    assert rejoined(["a", "1"], 2, lambda fields: True) == ["a", "1"]
    assert rejoined(["a", "1"], 2, lambda fields: False) is None


def test_of_several_ways_the_one_to_the_right_is_taken() -> None:
    assert rejoined(["a", "1", "2", "3"], 3, lambda fields: True) == ["a", "1", "2,3"]


def test_too_few_and_far_too_many_fields_are_none() -> None:
    assert rejoined(["a"], 2, lambda fields: True) is None
    assert rejoined(["1"] * 50, 2, lambda fields: True) is None


@pytest.mark.parametrize(
    ("text", "expected"), [("1.5", 1.5e6), ("1,5", 1.5e6), ("0", 0.0), ("1e+20", 1e26), ("-0", 0.0)]
)
def test_a_time_in_milliseconds(text: str, expected: float) -> None:
    assert nanoseconds(text, 1e6) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e22", "1e305", "1e400", "inf", "nan"])
def test_what_is_no_time(text: str) -> None:
    assert nanoseconds(text, 1e6) is None


def test_no_time_is_endless_or_negative() -> None:
    assert [is_time(number) for number in (0.0, 1e27, 1e28, inf, -inf, nan, -1e-9)] == [
        *(True, True, False, False, False, False, False)
    ]
