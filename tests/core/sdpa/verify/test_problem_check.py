"""What is made of the times of some rounds."""

from __future__ import annotations

import pytest

from mlbackends.sdpa.verify.problem_check import quarters


@pytest.mark.parametrize("values", [[2.0], [1.0, 3.0], [1.0, 1.5, 9.0], [4.0, 4.0, 4.0, 8.0]])
def test_quarters_of_few_rounds_are_within_what_was_measured(values: list[float]) -> None:
    lower, upper = quarters(values)

    assert min(values) <= lower <= upper <= max(values)


def test_quarters_of_two_rounds_are_between_them() -> None:
    assert quarters([3.0, 1.0]) == (1.5, 2.5)
