"""Device code: attention forward in one pass over the keys, with an online softmax in float32.

Importing this imports Triton. It has run in Triton's interpreter and been compiled for sm80 to sm120; it
has not run on a GPU yet.

Source: Dao 2023, FlashAttention-2, algorithm 1; Milakov and Gimelshein 2018 for the running maximum.
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202
# Triton compiles these functions from their text: an annotation would be read as a type of its own.

import triton
import triton.language as tl

NO_MASK = tl.constexpr(0)
BOOLEAN_MASK = tl.constexpr(1)
ADDED_MASK = tl.constexpr(2)

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _fold_keys(
    output,
    row_sum,
    row_max,
    query,
    key,
    value,
    mask,
    first,
    last,
    begin,
    query_length,
    key_length,
    shift,
    scale,
    key_row,
    value_row,
    mask_row,
    mask_column,
    head_dim: tl.constexpr,
    value_dim: tl.constexpr,
    head_block: tl.constexpr,
    value_block: tl.constexpr,
    row_block: tl.constexpr,
    key_block: tl.constexpr,
    at_edge: tl.constexpr,
    causal: tl.constexpr,
    mask_kind: tl.constexpr,
    precision: tl.constexpr,
):
    """Fold the keys from `first` to `last` into the running softmax of the rows from `begin` on.

    Shapes: query (row_block, head_block), output (row_block, value_block), row_sum and row_max
    (row_block,). mask points to the row `begin`. scale is that of base 2. at_edge: some keys are past
    the end, or hidden by the causal mask.
    """
    lines = tl.arange(0, row_block)
    columns = tl.arange(0, key_block)
    head_lanes = tl.arange(0, head_block)
    value_lanes = tl.arange(0, value_block)
    for start in tl.range(first, last, key_block):
        here = tl.cast(start, tl.int64)
        inside = start + columns < key_length
        key_tile = key + here * key_row + head_lanes[:, None] + columns[None, :] * key_row
        if at_edge:
            read = inside[None, :]
            if head_dim != head_block:
                read = read & (head_lanes[:, None] < head_dim)
            keys = tl.load(key_tile, mask=read, other=0.0)
        elif head_dim != head_block:
            keys = tl.load(key_tile, mask=head_lanes[:, None] < head_dim, other=0.0)
        else:
            keys = tl.load(key_tile)
        scores = tl.dot(query, keys, input_precision=precision) * scale
        if mask_kind != NO_MASK:
            mask_tile = mask + here * mask_column
            mask_tile += lines[:, None] * mask_row + columns[None, :] * mask_column
            shown = (begin + lines < query_length)[:, None] & inside[None, :]
            if mask_kind == BOOLEAN_MASK:
                allowed = tl.load(mask_tile, mask=shown, other=0)
                scores = tl.where(allowed != 0, scores, float("-inf"))
            else:
                scores += tl.load(mask_tile, mask=shown, other=0.0).to(tl.float32) * LOG2_E
        if at_edge:
            visible = inside[None, :]
            if causal:
                visible = visible & ((start + columns)[None, :] <= (begin + lines)[:, None] + shift)
            scores = tl.where(visible, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        # A row that has seen no key yet keeps -inf, and -inf - -inf is NaN: it counts from 0.
        origin = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp2(scores - origin[:, None])
        shrink = tl.exp2(row_max - origin)
        row_sum = row_sum * shrink + tl.sum(weights, 1)
        row_max = new_max
        value_tile = value + here * value_row + columns[:, None] * value_row + value_lanes[None, :]
        if at_edge:
            read = inside[:, None]
            if value_dim != value_block:
                read = read & (value_lanes[None, :] < value_dim)
            values = tl.load(value_tile, mask=read, other=0.0)
        elif value_dim != value_block:
            values = tl.load(value_tile, mask=value_lanes[None, :] < value_dim, other=0.0)
        else:
            values = tl.load(value_tile)
        output = tl.dot(
            weights.to(values.dtype), values, output * shrink[:, None], input_precision=precision
        )
    return output, row_sum, row_max


@triton.jit(do_not_specialize=["query_length", "key_length", "shift"])
def flash_forward(
    query,
    key,
    value,
    mask,
    output,
    logsumexp,
    scale,
    heads,
    query_group,
    key_group,
    value_group,
    query_length,
    key_length,
    shift,
    query_batch,
    query_head,
    query_row,
    key_batch,
    key_head,
    key_row,
    value_batch,
    value_head,
    value_row,
    mask_batch,
    mask_head,
    mask_row,
    mask_column,
    output_batch,
    output_head,
    output_row,
    head_dim: tl.constexpr,
    value_dim: tl.constexpr,
    head_block: tl.constexpr,
    value_block: tl.constexpr,
    row_block: tl.constexpr,
    key_block: tl.constexpr,
    causal: tl.constexpr,
    mask_kind: tl.constexpr,
    with_logsumexp: tl.constexpr,
    precision: tl.constexpr,
):
    """Attend with one block of rows of one head; the grid is blocks x heads x batch, blocks first.

    Shapes: query (B, H, L, E), key (B, H, S, E), value (B, H, S, Ev), output (B, H, L, Ev), mask
    (B, H, L, S), in steps of elements; the last dimension of all but the mask is contiguous.
    logsumexp (B, H, L) float32, contiguous, natural; -inf for a row that sees no key, whose output
    is 0. heads: H of the output; a group is how many of them share one head of an operand. shift:
    row i sees key j if j <= i + shift, where causal. mask, logsumexp: any pointer where not used.
    """
    blocks = tl.cdiv(query_length, row_block)
    block = tl.program_id(0) % blocks
    head_number = tl.program_id(0) // blocks
    batch = (head_number // heads).to(tl.int64)
    head = head_number % heads
    query += batch * query_batch + (head // query_group).to(tl.int64) * query_head
    key += batch * key_batch + (head // key_group).to(tl.int64) * key_head
    value += batch * value_batch + (head // value_group).to(tl.int64) * value_head
    output += batch * output_batch + head.to(tl.int64) * output_head

    begin = block * row_block
    mask += batch * mask_batch + head.to(tl.int64) * mask_head + begin.to(tl.int64) * mask_row
    lines = tl.arange(0, row_block)
    rows = begin + lines
    head_lanes = tl.arange(0, head_block)
    value_lanes = tl.arange(0, value_block)
    query_tile = query + begin.to(tl.int64) * query_row
    query_tile += lines[:, None] * query_row + head_lanes[None, :]
    queries = tl.load(
        query_tile,
        mask=(rows < query_length)[:, None] & (head_lanes < head_dim)[None, :],
        other=0.0,
    )

    # Keys before `whole` are seen by every row of the block; from `end` on none is.
    end = key_length
    whole = key_length // key_block * key_block
    if causal:
        end = tl.minimum(end, tl.maximum(begin + row_block + shift, 0))
        whole = tl.minimum(whole, tl.maximum(begin + shift + 1, 0) // key_block * key_block)
    result = tl.zeros([row_block, value_block], tl.float32)
    row_sum = tl.zeros([row_block], tl.float32)
    row_max = tl.full([row_block], float("-inf"), tl.float32)
    for part in tl.static_range(2):
        result, row_sum, row_max = _fold_keys(
            result,
            row_sum,
            row_max,
            queries,
            key,
            value,
            mask,
            whole * part,
            whole if part == 0 else end,
            begin,
            query_length,
            key_length,
            shift,
            scale * LOG2_E,
            key_row,
            value_row,
            mask_row,
            mask_column,
            head_dim,
            value_dim,
            head_block,
            value_block,
            row_block,
            key_block,
            part == 1,
            causal,
            mask_kind,
            precision,
        )

    if mask_kind == NO_MASK:
        # Such a row sees a key, and each of its products overflowed to -inf.
        sees = rows + (shift if causal else 0) >= 0
        overflowed = (row_sum == 0.0) & sees & (key_length > 0)
        row_sum = tl.where(overflowed, float("nan"), row_sum)
    result = result / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    output_tile = output + begin.to(tl.int64) * output_row
    output_tile += lines[:, None] * output_row + value_lanes[None, :]
    tl.store(
        output_tile,
        result.to(output.dtype.element_ty),
        mask=(rows < query_length)[:, None] & (value_lanes < value_dim)[None, :],
    )
    if with_logsumexp:
        # log2(0) is -inf on a GPU and a warning in the interpreter.
        logs = tl.where(row_sum == 0.0, 0.0, tl.log2(tl.where(row_sum == 0.0, 1.0, row_sum)))
        place = logsumexp + head_number.to(tl.int64) * query_length + rows
        tl.store(place, (row_max + logs) * LN_2, mask=rows < query_length)
