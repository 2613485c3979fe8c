"""Device code: a batch of matrix products, accumulated in float32.

Importing this imports Triton. It has run in Triton's interpreter and been compiled for sm80 to sm120; it
has not run on a GPU yet.
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Triton compiles these functions from their text: an annotation would be read as a type of its own.

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "columns"])
def batched_matmul(
    left,
    right,
    product,
    rows,
    columns,
    depth,
    left_batch,
    left_row,
    left_column,
    right_batch,
    right_row,
    right_column,
    row_block: tl.constexpr,
    column_block: tl.constexpr,
    depth_block: tl.constexpr,
    group: tl.constexpr,
    precision: tl.constexpr,
):
    """Compute one tile of one product; the grid is tiles x batch, tiles first.

    Shapes: left (B, rows, depth), right (B, depth, columns), in steps of elements; product
    (B, rows, columns), contiguous. group: so many blocks of rows go through the columns together,
    which keeps what they share in the cache.
    """
    row_blocks = tl.cdiv(rows, row_block)
    column_blocks = tl.cdiv(columns, column_block)
    tile = tl.program_id(0) % (row_blocks * column_blocks)
    batch = (tl.program_id(0) // (row_blocks * column_blocks)).to(tl.int64)
    in_group = group * column_blocks
    first_block = tile // in_group * group
    tall = tl.minimum(row_blocks - first_block, group)
    row_begin = (first_block + tile % in_group % tall) * row_block
    column_begin = tile % in_group // tall * column_block

    lines = tl.arange(0, row_block)
    lanes = tl.arange(0, column_block)
    steps = tl.arange(0, depth_block)
    left += batch * left_batch + row_begin.to(tl.int64) * left_row
    right += batch * right_batch + column_begin.to(tl.int64) * right_column
    left_tile = left + lines[:, None] * left_row + steps[None, :] * left_column
    right_tile = right + steps[:, None] * right_row + lanes[None, :] * right_column
    row_inside = (row_begin + lines < rows)[:, None]
    column_inside = (column_begin + lanes < columns)[None, :]

    total = tl.zeros([row_block, column_block], tl.float32)
    for start in tl.range(0, depth, depth_block):
        step_inside = start + steps < depth
        of_left = tl.load(left_tile, mask=row_inside & step_inside[None, :], other=0.0)
        of_right = tl.load(right_tile, mask=step_inside[:, None] & column_inside, other=0.0)
        total = tl.dot(of_left, of_right, total, input_precision=precision)
        left_tile += depth_block * left_column
        right_tile += depth_block * right_row

    product += batch * rows * columns + row_begin.to(tl.int64) * columns + column_begin
    product_tile = product + lines[:, None] * columns + lanes[None, :]
    tl.store(product_tile, total.to(product.dtype.element_ty), mask=row_inside & column_inside)
