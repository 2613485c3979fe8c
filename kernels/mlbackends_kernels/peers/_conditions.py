"""Constraints that several peers on CUDA share."""

from mlbackends.sdpa import constraints as need

#: Tensors without packing, in any layout.
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
