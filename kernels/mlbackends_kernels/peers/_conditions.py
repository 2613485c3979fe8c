"""What several peers on CUDA devices take."""

from mlbackends.sdpa import constraints as need

#: Tensors of one length, in any layout.
DENSE = (
    need.on_device("cuda"),
    need.rank_is(),
    need.equal_batch(),
    need.grouped_heads(),
    need.non_empty(),
    need.last_dim_contiguous(),
    need.no_dropout(),
    need.no_float64_inside(),
    need.not_nested(),
)
#: What FlashAttention and FlashInfer have in common.
LIKE_FLASH = (
    *DENSE,
    need.dtype_in("float16", "bfloat16"),
    need.no_mask(),
    need.lower_right_causal(),
)
