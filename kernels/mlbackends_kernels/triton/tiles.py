"""How large a piece of a product one block of threads takes, by GPU: plain data, without Triton.

Chosen by compiling each for its GPU with Triton 3.9: shared memory suffices, and nothing spills. They
have not been timed on a GPU yet.
"""

from typing import NamedTuple


class Tile(NamedTuple):
    """rows x columns of a product. warps: of 32 threads. stages: loads in flight."""

    rows: int
    columns: int
    warps: int
    stages: int


#: Shared memory that one block may have, by compute capability. Source: CUDA C++ Programming Guide.
SHARED_BYTES = {(8, 0): 166912, (9, 0): 232448, (10, 0): 232448, (10, 3): 232448}

#: That of 8.6, 8.9 and 12.0: the least of all GPUs from 8.0 on.
SHARED_BYTES_ELSEWHERE = 101376


def shared_bytes(capability: tuple[int, int]) -> int:
    """Return the shared memory that one block may have."""
    return SHARED_BYTES.get(capability, SHARED_BYTES_ELSEWHERE)


def product_tile(capability: tuple[int, int], dtype: str, rows: int, columns: int) -> Tile:
    """Return the tile of batched_matmul for products of rows x columns."""
    half = Tile(128, 128, 8, 3 if capability in SHARED_BYTES else 2)
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
