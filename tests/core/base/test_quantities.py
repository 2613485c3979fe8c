"""Numbers, sizes and words as the kernel writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.quantities import (
    dotted_numbers,
    hertz,
    leading_version,
    one_line,
    size_in_bytes,
    whole_number,
    word,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("48K", 48 << 10),
        ("32M", 32 << 20),
        ("24684096 kB", 24684096 << 10),
        ("4096", 4096),
        ("2048.00M", 2 << 30),
        ("1048576kB", 1 << 30),
        ("", None),
        ("-1", None),
        ("huge", None),
        ("9" * 19 + "T", None),
        ("9" * 5000, None),
    ],
)
def test_a_size_is_in_bytes_or_none(text: str, size: int | None) -> None:
    assert size_in_bytes(text) == size


def test_a_number_outside_its_range_is_none() -> None:
    assert whole_number("64", highest=64) == 64
    assert whole_number("65", highest=64) is None
    assert whole_number("-1") is None
    assert whole_number("0x41") == 65
    assert whole_number("9" * 30) is None
    assert whole_number("9" * 5000) is None


def test_a_word_is_a_name_and_nothing_else() -> None:
    assert word("intel_pstate\n") == "intel_pstate"
    assert word("amd-pstate-epp") == "amd-pstate-epp"
    assert [word(text) for text in ("", "none", "two words", "\ufffd", "é", "x" * 100)] == [""] * 6


@pytest.mark.parametrize(
    ("text", "numbers", "leading"),
    [
        ("12.5.0.14", (12, 5, 0, 14), "12.5.0.14"),
        ("13", (13,), "13"),
        ("12.2.0-14+deb12u1", (), "12.2.0"),
        ("3.14.0rc1", (), "3.14.0"),
        ("1..2", (), "1..2"),
        ("9999999", (), "9999999"),
        ("\u0663", (), ""),
        ("", (), ""),
    ],
)
def test_a_version_is_its_numbers(text: str, numbers: tuple[int, ...], leading: str) -> None:
    assert dotted_numbers(text) == numbers
    assert leading_version(text) == leading


@given(st.text())
def test_no_text_raises(text: str) -> None:
    assert one_line(text).isprintable()
    assert size_in_bytes(text) is None or size_in_bytes(text) >= 0  # type: ignore[operator]
    frequency = hertz(text, 1000)
    assert frequency is None or frequency > 0
    word(text)
