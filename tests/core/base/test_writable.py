"""What a text becomes in a table for programs."""

from __future__ import annotations

import pytest

from mlbackends.base.writable import csv_cell


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "=cmd|' /C calc'!A0", "-x"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert str(csv_cell(text)).startswith("'")


@pytest.mark.parametrize("value", ["-1", "+2.5e3", "-inf", "1+1", "a=b", "", -3, 2.5, None, "brgemm:avx2"])
def test_other_cells_stay(value: object) -> None:
    assert csv_cell(value) == value
