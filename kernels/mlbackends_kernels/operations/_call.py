"""Operations that obey the switches: `mlbackends.matmul`, `einsum` and `multi_head_attention`.

They take what NumPy, torch, CuPy, JAX and others hold, through DLPack or the array interfaces, and
return the same kind where it is the host's; a result on a CUDA device is a DeviceArray, which those
libraries take in turn.
"""

from mlbackends.switches.dynamo import untraced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["einsum", "matmul", "multi_head_attention"]


@untraced
def matmul(a: "Any", b: "Any") -> "Any":
    """Return the product of two arrays of one type on one device.

    Shapes: a (..., m, k) or (k,), b (..., k, n) or (k,), batches broadcast; returns (..., m, n),
    without m or n where that operand is a vector.
    float32 in memory obeys `mkldnn.matmul.fp32_precision` while `mkldnn.enabled` holds; a device
    obeys `cuda.matmul`, `cuda.preferred_blas_library` and the workspace sizes.
    Raises RuntimeError where shapes, types or devices do not fit, or cuBLAS is not there.
    """
    return _run("matmul", a, b)


@untraced
def einsum(*args: "Any") -> "Any":
    """Return the sum of products that an equation such as "bij,bjk->bik" describes.

    args: the equation and the operands, or einsum(a, [0, 1], b, [1, 2], [0, 2]); "..." stands for
    the other dimensions. A dimension of size 1 repeats. Three and more operands are multiplied in the
    order that opt_einsum finds by `opt_einsum.strategy`, while `opt_einsum.enabled` holds and it is
    installed, else from left to right.
    All must be of one type on one device; products that add up obey the switches of `matmul`. Raises
    RuntimeError for an equation that does not fit its operands, ValueError where there is none.
    """
    return _run("einsum", *args)


@untraced
def multi_head_attention(
    query: "Any",
    key: "Any",
    value: "Any",
    num_heads: int,
    in_proj_weight: "Any",
    in_proj_bias: "Any",
    out_proj_weight: "Any",
    out_proj_bias: "Any",
    *,
    key_padding_mask: "Any" = None,
    attn_mask: "Any" = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> "tuple[Any, Any]":
    """Return attention over projected heads, and the weights of attention, None unless they are needed.

    Shapes: query (B, L, E), key and value (B, S, E), all without B if it is one sequence;
    in_proj_weight (3E, E) and in_proj_bias (3E,) for query, key and value in turn; out_proj_weight
    (E, E) and out_proj_bias (E,); either bias may be None. key_padding_mask (B, S): True is left
    out, or numbers are added. attn_mask (L, S) or (B * num_heads, L, S), likewise. is_causal: query i
    sees key j only if j <= i, beside what the masks say. Returns (B, L, E), and weights (B, L, S),
    or (B, num_heads, L, S) unless averaged. What sees no key gives the output's bias, and weights 0.
    While `mha.fastpath_enabled` holds, self-attention without weights takes one projection and
    `scaled_dot_product_attention`; everything else takes three projections and a plain softmax.
    Raises RuntimeError where shapes or types do not fit.
    """
    pair: tuple[Any, Any] = _run(
        "multi_head_attention",
        query,
        key,
        value,
        num_heads,
        in_proj_weight,
        in_proj_bias,
        out_proj_weight,
        out_proj_bias,
        key_padding_mask=key_padding_mask,
        attn_mask=attn_mask,
        need_weights=need_weights,
        average_attn_weights=average_attn_weights,
        is_causal=is_causal,
    )
    return pair


def _run(name: str, *arguments: object, **options: object) -> "Any":
    from mlbackends.base import registry

    return registry.load("mlbackends_kernels.operations", name).run(*arguments, **options)
