"""The problems that torch's fused attention supports on AMD's GPUs, with kernels of AOTriton or CK.

Source: PyTorch's sdp_utils.cpp for ROCm with AOTriton 0.12, which torch 2.13 builds with; the notes of
AOTriton's releases. None of this was tested on such a GPU.
"""

from mlbackends.base.element_types import REDUCED
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint, constraint
from mlbackends.sdpa.rules import shared
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.shared import where_dense

#: The GPUs that AOTriton 0.12 has kernels for, without experimental ones.
SUPPORTED = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")

#: The GPUs that it never had kernels for. Whether others are experimental is not recorded.
UNSUPPORTED = ("gfx900", "gfx906", "gfx908", "gfx1030")

RECORDED = frozenset({*SUPPORTED, *UNSUPPORTED})
#: The first release of torch whose rules for them are recorded; earlier ones have other AOTritons.
SINCE = (2, 13)

_LONGEST_ROW, _LONGEST_ROW_GFX11 = 512, 256


def flash(environment: Environment) -> tuple[Constraint, ...]:
    """Return the constraints of flash attention, in torch's order."""
    return (
        need.on_device("rocm"),
        need.rank_is(4),
        need.no_mask(),
        need.same_head_dim(),
        row_length(),
        shared.nested_head_dim(),
        *_target(environment),
        # HIP reports gfx1200 as 12.0, which torch treats as NVIDIA's capability 12.0.
        shared.training_limit(lambda problem: problem.device.capability.startswith("gfx12"), "gfx12"),
        where_dense(need.square_causal()),
        need.dtype_in(*REDUCED),
        shared.nested_heads(),
        where_dense(need.equal_batch()),
        where_dense(need.grouped_heads(one_for_all=environment.torch >= (2, 14))),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(singleton_exempt=True)),
    )


def efficient(environment: Environment) -> tuple[Constraint, ...]:
    """Return the constraints of memory-efficient attention, in torch's order."""
    supported = REDUCED if environment.composable_kernel else ("float16", "float32", "bfloat16")
    return (
        need.on_device("rocm"),
        *_target(environment),
        need.rank_is(4),
        shared.row_alignment(lambda problem: 8 if problem.dtype in REDUCED else 4),
        row_length(),
        shared.nested_heads(),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(mask_too=True)),
        where_dense(need.equal_batch()),
        where_dense(need.equal_heads()),
        mask_dtype(),
        need.dtype_in(*supported),
    )


def _target(environment: Environment) -> tuple[Constraint, ...]:
    """Require a GPU with AOTriton kernels; torch does not check CK's."""

    @constraint("wrong-capability", f"a GPU that AOTriton has kernels for: {', '.join(SUPPORTED)}")
    def supported(problem: AttentionProblem) -> str:
        target = problem.device.capability
        return "" if target in SUPPORTED else f"AOTriton has no kernels for {target}"

    return () if environment.composable_kernel else (supported(),)


@constraint("head-dim-too-large", f"head_dim at most {_LONGEST_ROW}, on gfx11 {_LONGEST_ROW_GFX11}")
def row_length(problem: AttentionProblem) -> str:
    """Limit head_dim, by the GPU."""
    gfx11 = problem.device.capability.startswith("gfx11")
    return need.head_dim_at_most(_LONGEST_ROW_GFX11 if gfx11 else _LONGEST_ROW).test(problem)


@constraint("wrong-dtype", "a boolean mask, or one of query's dtype")
def mask_dtype(problem: AttentionProblem) -> str:
    """Require a boolean mask, or one of the query's dtype."""
    mask = problem.mask
    if mask is None or mask.dtype in ("bool", problem.dtype):
        return ""
    return f"the mask has the dtype {mask.dtype}; supported: bool, {problem.dtype}"
