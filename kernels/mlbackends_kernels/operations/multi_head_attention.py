"""Attention over several heads, with its projections.

Switch: `mha.fastpath_enabled`. The fast path projects query, key and value at once and leaves the
rest to `scaled_dot_product_attention`; the general one shows the weights. Both give the same output.

Source: Vaswani et al. 2017, section 3.2.2; the masks are those of torch.nn.MultiheadAttention.
"""

from typing import TYPE_CHECKING, Any

from mlbackends.sdpa import scaled_dot_product_attention
from mlbackends.switches import store
from mlbackends_kernels.operations._arrays import common_dtype, operand, quiet, returned
from mlbackends_kernels.operations._precision import Product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_NAME = "multi_head_attention"


@quiet
def run(
    query: Any,
    key: Any,
    value: Any,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    out_proj_weight: Any,
    out_proj_bias: Any,
    *,
    key_padding_mask: Any = None,
    attn_mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """Return output and weights; see `mlbackends_kernels.operations._call.multi_head_attention`."""
    is_self_attention = query is key and key is value
    arguments = {
        "query": query,
        "key": key,
        "value": value,
        "in_proj_weight": in_proj_weight,
        "in_proj_bias": in_proj_bias,
        "out_proj_weight": out_proj_weight,
        "out_proj_bias": out_proj_bias,
    }
    operands = {
        name: operand(_NAME, name, each) for name, each in arguments.items() if each is not None
    }
    dtype = common_dtype({name: each.dtype for name, each in operands.items()})
    arrays = {name: each.array for name, each in operands.items()}
    q, k, v = (_batched(arrays[name]) for name in ("query", "key", "value"))
    _check(arrays, q, k, v, num_heads)
    padding = (
        None if key_padding_mask is None else operand(_NAME, "key_padding_mask", key_padding_mask)
    )
    attention = None if attn_mask is None else operand(_NAME, "attn_mask", attn_mask)
    mask = _mask(padding and padding.array, attention and attention.array, q, k, num_heads)
    product = Product(dtype)
    projection = arrays["in_proj_weight"], arrays.get("in_proj_bias")
    weights = None
    if is_self_attention and not need_weights and store.read("mha.fastpath_enabled"):
        packed = _projected(product, q, *projection)
        heads = _attended(packed, num_heads, mask, is_causal)
    else:
        sides = _projected_apart(product, (q, k, v), *projection)
        heads, weights = _attended_openly(product, sides, num_heads, mask, is_causal)
    merged = heads.swapaxes(1, 2).reshape(q.shape)
    biased = arrays["out_proj_weight"], arrays.get("out_proj_bias")
    output = _projected(product, merged, *biased)
    is_batched = arrays["query"].ndim == 3
    output = returned(query, output if is_batched else output[0], dtype)
    if not need_weights or weights is None:
        return output, None
    if average_attn_weights:
        weights = weights.mean(1)
    return output, returned(query, weights if is_batched else weights[0], dtype)


def _batched(array: "Array") -> "Array":
    return array[None] if array.ndim == 2 else array


def _check(arrays: "dict[str, Any]", q: "Array", k: "Array", v: "Array", num_heads: int) -> None:
    """Raise RuntimeError where shapes or types do not fit, naming the first argument that does not."""
    if {arrays[name].ndim for name in ("query", "key", "value")} not in ({2}, {3}):
        ranks = ", ".join(str(arrays[name].ndim) for name in ("query", "key", "value"))
        raise RuntimeError(f"query, key and value need 2 or 3 dimensions, all alike, not {ranks}")
    batch, _, width = q.shape
    if num_heads < 1 or width % num_heads:
        raise RuntimeError(f"{width} features of query cannot be shared among {num_heads} heads")
    expected = {
        "in_proj_weight": (3 * width, width),
        "in_proj_bias": (3 * width,),
        "out_proj_weight": (width, width),
        "out_proj_bias": (width,),
    }
    for name, shape in expected.items():
        if name in arrays and arrays[name].shape != shape:
            raise RuntimeError(f"{name} needs shape {shape}, not {arrays[name].shape}")
    if k.shape != v.shape or (k.shape[0], k.shape[2]) != (batch, width):
        message = f"key and value need shape ({batch}, S, {width}), not {k.shape} and {v.shape}"
        raise RuntimeError(message)
    if q.dtype.kind != "f":
        raise RuntimeError(f"attention takes floating-point numbers, not {q.dtype}")


# ---- masks ------------------------------------------------------------------


def _mask(padding: Any, attention: Any, q: "Array", k: "Array", num_heads: int) -> Any:
    """Return what is added to the scores, or True where a key is seen, or None.

    Shape: broadcasts to (B, num_heads, L, S).
    """
    (batch, length, _), keys = q.shape, k.shape[1]
    parts = []
    if padding is not None:
        padding = padding[None] if padding.ndim == 1 else padding
        if padding.shape != (batch, keys):
            message = f"key_padding_mask needs shape ({batch}, {keys}), not {padding.shape}"
            raise RuntimeError(message)
        parts.append(padding[:, None, None, :])
    if attention is not None:
        shapes = (length, keys), (batch * num_heads, length, keys)
        if attention.shape not in shapes:
            message = f"attn_mask needs shape {shapes[0]} or {shapes[1]}, not {attention.shape}"
            raise RuntimeError(message)
        if attention.ndim == 3:
            attention = attention.reshape(batch, num_heads, length, keys)
        parts.append(attention)
    for part in parts:
        if part.dtype.kind not in "bf":
            raise RuntimeError(f"a mask holds booleans or floating-point numbers, not {part.dtype}")
    if all(part.dtype.kind == "b" for part in parts):
        hidden = parts[0] if parts else None
        for part in parts[1:]:
            hidden = hidden | part
        return None if hidden is None else ~hidden
    return sum(_added(part, q) for part in parts)


def _added(mask: "Array", q: "Array") -> "Array":
    """Return a mask as numbers to add: minus infinity where a key is left out."""
    import numpy as np

    if mask.dtype.kind == "b":
        return np.where(mask, -np.inf, 0).astype(q.dtype)
    return mask.astype(q.dtype)


# ---- projections ------------------------------------------------------------


def _projected(product: Product, array: "Array", weight: "Array", bias: Any) -> "Array":
    """Return `array @ weight.T + bias`, for all rows of all batches in one product."""
    rows = product(array.reshape(-1, array.shape[-1]), weight.T)
    if bias is not None:
        rows = rows + bias
    return rows.reshape(*array.shape[:-1], weight.shape[0])


def _projected_apart(
    product: Product, inputs: "tuple[Array, Array, Array]", weight: "Array", bias: Any
) -> "tuple[Array, Array, Array]":
    width = weight.shape[1]
    q, k, v = (
        _projected(
            product,
            array,
            weight[i * width : (i + 1) * width],
            None if bias is None else bias[i * width : (i + 1) * width],
        )
        for i, array in enumerate(inputs)
    )
    return q, k, v


def _by_heads(array: "Array", num_heads: int) -> "Array":
    """Return (B, num_heads, L, E / num_heads) of (B, L, E)."""
    batch, length, width = array.shape
    return array.reshape(batch, length, num_heads, width // num_heads).swapaxes(1, 2)


# ---- attention --------------------------------------------------------------


def _attended(packed: "Array", num_heads: int, mask: Any, is_causal: bool) -> "Array":
    """Attend through the dispatcher. packed: query, key and value, (B, L, 3E)."""
    import numpy as np

    q, k, v = (_by_heads(part, num_heads) for part in np.split(packed, 3, axis=-1))
    if mask is not None:
        if is_causal:
            mask, is_causal = _with_causal(mask, q.shape[2], k.shape[2]), False
        full = (q.shape[0], mask.shape[1] if mask.ndim == 4 else 1, q.shape[2], k.shape[2])
        mask = np.ascontiguousarray(np.broadcast_to(mask, full))
    attended = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
    return np.asarray(attended)


def _attended_openly(
    product: Product,
    sides: "tuple[Array, Array, Array]",
    num_heads: int,
    mask: Any,
    is_causal: bool,
) -> "tuple[Array, Array]":
    """Attend by the formula. Returns (B, num_heads, L, E / num_heads) and the weights."""
    import numpy as np

    q, k, v = (_by_heads(side, num_heads) for side in sides)
    scale = q.dtype.type(q.shape[-1] ** -0.5) if q.shape[-1] else q.dtype.type(1)
    scores = product(q * scale, k.swapaxes(-1, -2))
    if is_causal:
        mask = _with_causal(mask, q.shape[2], k.shape[2])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype.kind == "b" else scores + mask
    weights = _softmax(scores, mask)
    return product(weights, v), weights


def _with_causal(mask: Any, length: int, keys: int) -> Any:
    """Return a mask that also hides from each query the keys behind it."""
    import numpy as np

    visible = np.tri(length, keys, dtype=bool)
    if mask is None:
        return visible
    return mask & visible if mask.dtype.kind == "b" else np.where(visible, mask, -np.inf)


def _softmax(scores: "Array", mask: Any) -> "Array":
    """Return weights that add up to 1 along the last axis; 0 where no key is seen, NaN where all overflow."""
    import numpy as np

    if not scores.shape[-1]:
        return scores
    highest = scores.max(-1, keepdims=True)
    highest = np.where(np.isneginf(highest), 0, highest)
    weights = np.exp(scores - highest)
    total = weights.sum(-1, keepdims=True)
    blind = np.array(False)
    if mask is not None:
        blind = ~(mask if mask.dtype.kind == "b" else mask > -np.inf).any(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        result: Array = weights / np.where(blind & (total == 0), 1, total)
    return result
