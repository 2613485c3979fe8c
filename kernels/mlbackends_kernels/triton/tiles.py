"""How large a piece of a problem one block of threads takes, by GPU: plain data, without Triton.

Chosen by compiling each for its GPU with Triton 3.9: shared memory suffices, and at most 40 bytes a
thread spill. They have not been timed on a GPU yet.
"""

from typing import NamedTuple


class Tile(NamedTuple):
    """rows x columns of scores or of a product. warps: of 32 threads. stages: loads in flight."""

    rows: int
    columns: int
    warps: int
    stages: int


SHARED_BYTES = {(8, 0): 166912, (9, 0): 232448, (10, 0): 232448, (10, 3): 232448}
"""Shared memory that one block may have, by compute capability. Source: CUDA C++ Programming Guide."""

SHARED_BYTES_ELSEWHERE = 101376
"""That of 8.6, 8.9 and 12.0: the least of all GPUs from 8.0 on."""

_AMPERE, _HOPPER, _BLACKWELL, _SMALL = "8.0", "9.0", "10", "less shared memory"

# By GPU and width of a row, in elements: the tile without a mask, and the one with it.
_HALF = {
    (_AMPERE, 64): (Tile(128, 64, 4, 3), Tile(128, 64, 8, 3)),
    (_AMPERE, 128): (Tile(128, 32, 8, 3), Tile(64, 64, 8, 2)),
    (_AMPERE, 256): (Tile(64, 64, 8, 2), Tile(64, 32, 8, 2)),
    (_HOPPER, 64): (Tile(128, 128, 8, 3), Tile(128, 64, 8, 3)),
    (_HOPPER, 128): (Tile(128, 64, 8, 3), Tile(64, 64, 8, 3)),
    (_HOPPER, 256): (Tile(128, 32, 8, 2), Tile(64, 32, 8, 2)),
    (_BLACKWELL, 64): (Tile(128, 64, 8, 3), Tile(128, 64, 8, 3)),
    (_BLACKWELL, 128): (Tile(128, 64, 8, 3), Tile(64, 64, 8, 3)),
    (_BLACKWELL, 256): (Tile(64, 64, 8, 2), Tile(64, 32, 8, 2)),
    (_SMALL, 64): (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
    (_SMALL, 128): (Tile(128, 32, 8, 2), Tile(64, 32, 8, 2)),
    (_SMALL, 256): (Tile(64, 32, 8, 2), Tile(32, 32, 8, 2)),
}
_SINGLE = {
    "ieee": {64: Tile(64, 32, 8, 2), 128: Tile(32, 32, 8, 2), 256: Tile(32, 16, 8, 2)},
    "tf32": {64: Tile(64, 32, 8, 2), 128: Tile(64, 32, 8, 2), 256: Tile(32, 16, 8, 2)},
}


def shared_bytes(capability: tuple[int, int]) -> int:
    """Return the shared memory that one block may have."""
    return SHARED_BYTES.get(capability, SHARED_BYTES_ELSEWHERE)


def attention_tile(
    capability: tuple[int, int],
    dtype: str,
    width: int,
    *,
    query_length: int,
    masked: bool,
    precision: str,
) -> Tile:
    """Return the tile of flash_forward; rows are those of the query, columns keys.

    width: of the wider of query and value, in elements. precision: "ieee" or "tf32".
    """
    block = 64 if width <= 64 else 128 if width <= 128 else 256
    half = _HALF[_class(capability), block][masked]
    tile = _SINGLE[precision][block] if dtype == "float32" else half
    if query_length >= tile.rows:
        return tile
    rows = block_of(query_length)
    return tile._replace(rows=rows, warps=4 if rows <= 32 else tile.warps)


def product_tile(capability: tuple[int, int], dtype: str, rows: int, columns: int) -> Tile:
    """Return the tile of batched_matmul for products of rows x columns."""
    half = Tile(128, 128, 8, 2 if _class(capability) == _SMALL else 3)
    tile = Tile(64, 64, 4, 3) if dtype == "float32" else half
    return tile._replace(
        rows=min(tile.rows, block_of(rows)), columns=min(tile.columns, block_of(columns))
    )


def product_depth(dtype: str) -> int:
    """Return how many elements of a row batched_matmul takes in one step."""
    return 32 if dtype == "float32" else 64


def block_of(size: int) -> int:
    """Return the power of two that holds a size; 16 is the least that the matrix units take."""
    return max(16, 1 << max(size - 1, 0).bit_length())


def _class(capability: tuple[int, int]) -> str:
    if capability == (8, 0):
        return _AMPERE
    if capability[0] == 9:
        return _HOPPER
    return _BLACKWELL if capability[0] == 10 else _SMALL
