from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends_kernels.triton import tiles

CAPABILITIES = [(8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("masked", [False, True])
def test_every_gpu_has_a_tile_for_every_width(
    capability: tuple[int, int], dtype: str, precision: str, masked: bool
) -> None:
    itemsize = 4 if dtype == "float32" else 2
    for width in (1, 64, 65, 128, 129, 256):
        for length in (1, 17, 10_000):
            tile = tiles.attention_tile(
                capability, dtype, width, query_length=length, masked=masked, precision=precision
            )
            assert min(tile.rows, tile.columns) >= 16
            assert tile.rows * tile.columns >= tile.warps * 32
            # The query and one stage of keys and values must fit at the very least.
            needed = (tile.rows + 2 * tile.columns) * tiles.block_of(width) * itemsize
            assert needed <= tiles.shared_bytes(capability)


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
