"""Lists of CPUs, as the kernel writes them and as garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.quantities import HIGHEST, format_cpu_list, parse_cpu_list, parse_cpu_mask


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        ("8,0-1", (0, 1, 8)),
        ("0 1 2", (0, 1, 2)),
        ("0-7:1/2", (0, 2, 4, 6)),
        ("0-8:2/4", (0, 1, 4, 5, 8)),
    ],
)
def test_a_list_is_read(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text",
    ["", "\0", "-", "3-1", "-3", "a", "0-99999999999", "99999999999", "1-", "0-3:0/2", "٣", "²"],
)
def test_garbage_is_no_cpu(text: str) -> None:
    assert parse_cpu_list(text) == ()


def test_a_good_item_beside_garbage_is_kept() -> None:
    assert parse_cpu_list("0-1,0-99999999999,x,4") == (0, 1, 4)


def test_a_list_that_names_everything_over_and_over_ends() -> None:
    assert parse_cpu_list("0-16383," * 20000) == tuple(range(HIGHEST))


@given(st.sets(st.integers(0, 4096)))
def test_what_is_written_is_read_back(cpus: set[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == tuple(sorted(cpus))


@given(st.text())
def test_no_text_raises(text: str) -> None:
    assert all(0 <= cpu < HIGHEST for cpu in parse_cpu_list(text))


@given(st.sets(st.integers(0, 4096)))
def test_a_mask_names_the_same_cpus_as_a_list(cpus: set[int]) -> None:
    digits = f"{sum(1 << cpu for cpu in cpus):x}"
    words = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
    assert parse_cpu_mask(",".join(reversed(words))) == tuple(sorted(cpus))


@pytest.mark.parametrize("text", ["", "0", "x", "1,", "-1", "123456789", "0,0x1", "1," * 9999])
def test_what_is_no_mask_names_no_cpu(text: str) -> None:
    assert parse_cpu_mask(text) == ()
