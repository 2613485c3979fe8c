"""A causal mask that is not written out says what it would be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlbackends
from mlbackends.sdpa.bias import CausalBias, CausalVariant, as_bias

lengths = st.integers(0, 6)


@given(lengths, lengths)
def test_upper_left_sees_as_many_keys_as_rows_so_far(length: int, keys: int) -> None:
    rows = mlbackends.causal_upper_left(length, keys).rows()

    assert [sum(row) for row in rows] == [min(row + 1, keys) for row in range(length)]
    assert all(row == sorted(row, reverse=True) for row in rows)


@given(lengths, lengths)
def test_lower_right_sees_all_keys_in_its_last_row(length: int, keys: int) -> None:
    rows = mlbackends.causal_lower_right(length, keys).rows()

    assert [sum(row) for row in rows] == [max(0, keys - length + row + 1) for row in range(length)]


def test_a_bias_says_what_it_is() -> None:
    bias = mlbackends.causal_lower_right(3, 5)

    assert (bias.variant, bias.shape, bias.diagonal) == (CausalVariant.LOWER_RIGHT, (3, 5), 2)
    assert bias == CausalBias(CausalVariant.LOWER_RIGHT, 3, 5)
    assert bias != mlbackends.causal_upper_left(3, 5)
    assert len({bias, mlbackends.causal_lower_right(3, 5)}) == 1
    assert "3, 5" in repr(bias)
    assert as_bias(bias) is bias
    assert as_bias([[True]]) is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((1, 3, 5), AssertionError),
        ((CausalVariant.UPPER_LEFT, -1, 5), RuntimeError),
        ((CausalVariant.UPPER_LEFT, 1.5, 5), TypeError),
        ((CausalVariant.UPPER_LEFT, True, 5), TypeError),
        ((CausalVariant.UPPER_LEFT, 5, "3"), TypeError),
    ],
)
def test_a_senseless_bias_is_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        CausalBias(*arguments)


@pytest.mark.parametrize("sizes", [(), (1,), (1, 2, 3)])
def test_a_bias_has_two_sizes(sizes: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        mlbackends.causal_upper_left(*sizes)
