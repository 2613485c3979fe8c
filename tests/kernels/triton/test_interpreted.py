"""What the kernels compute, in Triton's interpreter, against float64.

Not seen here: races, the limits of a GPU, and how its units round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.kernels.triton.conftest import Findings, Run

pytestmark = pytest.mark.slow

HALF = ("float16", "bfloat16")
TYPES = (*HALF, "float32")


def shapes(
    rows: int, keys: int, width: int = 64, value_width: int = 0, heads: int = 2, key_heads: int = 0
) -> dict[str, Any]:
    key_heads = key_heads or heads
    return {
        "query": [1, heads, rows, width],
        "key": [1, key_heads, keys, width],
        "value": [1, key_heads, keys, value_width or width],
    }


LOWER = {"causal": True, "lower_right": True}
UPPER = {"causal": True}
ATTENTION: dict[str, dict[str, Any]] = {
    **{f"whole tiles, {dtype}": {**shapes(64, 64), "dtype": dtype} for dtype in TYPES},
    **{f"odd lengths, {dtype}": {**shapes(100, 77), "dtype": dtype} for dtype in TYPES},
    **{f"causal, {dtype}": {**shapes(100, 100), "dtype": dtype, **UPPER} for dtype in TYPES},
    **{f"lower right, {dtype}": {**shapes(50, 130), "dtype": dtype, **LOWER} for dtype in TYPES},
    "more rows than keys, from the upper left": {**shapes(130, 50), **UPPER},
    "more rows than keys, to the lower right": {**shapes(130, 50), **LOWER, "dead": True},
    "one row, many keys": {**shapes(1, 200), **LOWER},
    "one row, from the upper left": {**shapes(1, 40), **UPPER},
    "one key": shapes(33, 1),
    "no key": {**shapes(20, 0), "dead": True},
    "grouped heads": shapes(40, 40, heads=6, key_heads=2),
    "one head for all": {**shapes(40, 70, heads=4, key_heads=1), "dtype": "bfloat16"},
    "narrow": shapes(20, 20, width=1),
    "width no power of two": {**shapes(70, 70, width=40), **UPPER},
    "value narrower": shapes(40, 40, width=72, value_width=24),
    "value wider": {**shapes(40, 40, width=16, value_width=96), "dtype": "float32"},
    "width 128": {**shapes(40, 70, width=128, heads=1), **UPPER},
    "width 256": {**shapes(20, 70, width=256, heads=1), "dtype": "bfloat16"},
    "width 200, float32": {**shapes(20, 40, width=200, heads=1), "dtype": "float32"},
    "batch of one for all": {**shapes(30, 30), "query": [3, 2, 30, 64]},
    "sequence before heads": {**shapes(70, 90), "layout": "sequence first", **LOWER},
    "rows that lie apart": {**shapes(70, 90), "layout": "padded"},
    "what lies behind the last key is garbage": {**shapes(70, 96), "spoil": 90},
    "without logarithms": {**shapes(30, 30), "logsumexp": False},
    "scale 0": {**shapes(20, 20), "scale": 0.0},
    "negative scale": {**shapes(20, 20), "scale": -0.5},
    "other GPU, other tile": {**shapes(140, 140), **UPPER, "capability": [8, 0]},
}
for _dtype in (*TYPES, "bool"):
    _own = "float16" if _dtype == "bool" else _dtype
    for _name, _mask in {"every score": [1, 2, 70, 80], "a row": [1, 1, 1, 80]}.items():
        ATTENTION[f"mask of {_dtype} for {_name}"] = {
            **shapes(70, 80), "dtype": _own, "mask_dtype": _dtype, "mask": _mask,
        }  # fmt: skip
    ATTENTION[f"mask of {_dtype} that hides rows"] = {
        **shapes(70, 80), "dtype": _own, "mask_dtype": _dtype, "mask": [70, 80],
        "hide_rows": True, "dead": True,
    }  # fmt: skip
ATTENTION["mask of one column"] = {**shapes(40, 40), "mask_dtype": "float16", "mask": [1, 1, 40, 1]}
ATTENTION["mask of float32 for float16"] = {
    **shapes(40, 40), "mask_dtype": "float32", "mask": [1, 2, 40, 40],
}  # fmt: skip

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
    cases = {**ATTENTION, **PRODUCTS}
    findings: Findings = interpreted([{"dtype": "float16", **case} for case in cases.values()])
    return dict(zip(cases, findings, strict=True))


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_errs_no_more_than_twice_the_plain_formula(
    name: str, found: dict[str, dict[str, Any]]
) -> None:
    case, seen = ATTENTION[name], found[name]
    assert seen["error"] <= 2 * seen["plain"] + 2e-6
    assert seen["dead_output"] == 0
    if case.get("logsumexp", True):
        assert seen["sums"] < 3e-6
        assert seen["same_infinities"]
        assert bool(seen["dead_rows"]) == case.get("dead", False)
    else:
        assert seen["scores_untouched"]


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_errs_no_more_than_twice_the_plain_one(
    name: str, found: dict[str, dict[str, Any]]
) -> None:
    assert found[name]["error"] <= 2 * found[name]["plain"] + 1e-6
