from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends_kernels.triton import tiles

CAPABILITIES = [(8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]


@given(st.integers(0, 1 << 20))
def test_a_block_is_the_least_power_of_two_that_holds_a_size(size: int) -> None:
    block = tiles.block_of(size)
    assert block >= 16
    assert block & (block - 1) == 0
    assert block >= size > block // 2 or block == 16


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_product_takes_no_larger_tile_than_it_has_rows(capability: tuple[int, int]) -> None:
    assert tiles.product_tile(capability, "float16", 20, 1000)[:2] == (32, 128)
    assert tiles.product_tile(capability, "float32", 1000, 3)[:2] == (64, 16)
