"""What the kernels compute, in Triton's interpreter, against float64.

Not seen here: races, the limits of a GPU, and how its units round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.kernels.triton.conftest import Findings, Run

pytestmark = pytest.mark.slow

TYPES = ("float16", "bfloat16", "float32")


SIZES: dict[str, dict[str, Any]] = {
    "odd sizes": {"left": [2, 70, 33], "right": [2, 33, 50]},
    "several tiles": {"left": [1, 140, 100], "right": [1, 100, 300]},
    "transposed": {"left": [3, 40, 20], "right": [3, 50, 40], "transposed": True},
}
PRODUCTS: dict[str, dict[str, Any]] = {
    **{f"{dtype}, {each}": {"dtype": dtype, **SIZES[each]} for dtype in TYPES for each in SIZES},
    "one row": {"dtype": "float32", "left": [2, 1, 65], "right": [2, 65, 1]},
    "many rows in groups": {"dtype": "float32", "left": [1, 700, 3], "right": [1, 3, 130]},
}


@pytest.fixture(scope="module")
def found(interpreted: Run) -> dict[str, dict[str, Any]]:
    """Run every case in one process."""
    findings: Findings = interpreted(list(PRODUCTS.values()))
    return dict(zip(PRODUCTS, findings, strict=True))


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_errs_no_more_than_twice_the_plain_one(
    name: str, found: dict[str, dict[str, Any]]
) -> None:
    assert found[name]["error"] <= 2 * found[name]["plain"] + 1e-6
