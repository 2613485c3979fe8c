"""Which problems torch's attention kernels for the CPU take.

Source: torch 2.13, observed. It also takes a key and a value of different lengths, and computes
nonsense: such a problem cannot be made here.
"""

from mlbackends.sdpa.constraints import (
    Constraint,
    dtype_in,
    equal_batch,
    grouped_heads,
    last_dim_contiguous,
    mask_fixed,
    mask_ranks,
    no_dropout,
    non_empty,
    not_nested,
    on_device,
    rank_is,
    same_head_dim,
)
from mlbackends.sdpa.rules.dense import where_dense
from mlbackends.sdpa.rules.environment import Environment


def flash(environment: Environment) -> tuple[Constraint, ...]:
    """Return what torch's flash attention on the CPU asks for, in its order."""
    del environment  # nothing of it matters here
    return (
        on_device("cpu"),
        not_nested(),
        no_dropout(),
        rank_is(4),
        equal_batch(),
        grouped_heads(),
        mask_fixed(),
        mask_ranks(2, 4),
        where_dense(same_head_dim()),
        where_dense(non_empty()),
        last_dim_contiguous(),
        dtype_in("float64", "float32", "bfloat16", "float16"),
    )
