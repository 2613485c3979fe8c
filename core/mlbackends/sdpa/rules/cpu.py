"""The problems that torch's attention kernels for the CPU support.

Source: torch 2.5 to 2.15, observed; sdp_utils_cpp.h of each. torch also accepts a key and a value of
different lengths, for which its results are wrong; AttentionProblem refuses them.
"""

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.shared import where_dense


def flash(environment: Environment) -> tuple[Constraint, ...]:
    """Return the constraints of torch's flash attention on the CPU, in its order."""
    release = environment.torch
    one_for_all = release >= (2, 14)
    return (
        need.on_device("cpu"),
        need.not_nested(),
        need.no_dropout(),
        need.rank_is(4),
        need.equal_batch(),
        # pytorch#157893
        need.grouped_heads(one_for_all=one_for_all) if release >= (2, 9) else need.equal_heads(),
        need.mask_fixed(),
        need.mask_ranks(2, 4),
        where_dense(need.same_head_dim()),
        where_dense(need.non_empty()),
        need.last_dim_contiguous(mask_too=release < (2, 8)),
        need.dtype_in("float64", "float32", "bfloat16", "float16"),
    )
