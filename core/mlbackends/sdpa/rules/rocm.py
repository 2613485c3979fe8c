"""Which problems torch's fused attention takes on AMD's GPUs: its kernels there are AOTriton's, or CK's.

Source: PyTorch's sdp_utils.cpp for ROCm with AOTriton 0.12, which torch 2.13 builds with; the notes of
AOTriton's releases. None of it was run on such a GPU.
"""

from mlbackends.base.element_types import REDUCED
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint, constraint
from mlbackends.sdpa.rules import shared
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.shared import where_dense

#: What AOTriton 0.12 has kernels for, and calls no experiment.
SUPPORTED = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")

#: What it never had kernels for. Of others it is not written down here whether they are experiments.
UNSUPPORTED = ("gfx900", "gfx906", "gfx908", "gfx1030")

RECORDED = frozenset({*SUPPORTED, *UNSUPPORTED})

_LONGEST_ROW, _LONGEST_ROW_GFX11 = 512, 256


def flash(environment: Environment) -> tuple[Constraint, ...]:
    """Return what flash attention asks for, in torch's order."""
    return (
        need.on_device("rocm"),
        need.rank_is(4),
        need.no_mask(),
        need.same_head_dim(),
        _row_length(),
        shared.nested_head_dim(),
        *_target(environment),
        # HIP calls gfx1200 a 12.0, which torch takes for NVIDIA's GPUs of that number.
        shared.training_limit(
            lambda problem: problem.device.capability.startswith("gfx12"), "gfx12"
        ),
        where_dense(need.square_causal()),
        need.dtype_in(*REDUCED),
        shared.nested_heads(),
        where_dense(need.equal_batch()),
        where_dense(need.grouped_heads(one_for_all=environment.torch >= (2, 14))),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(singleton_exempt=True)),
    )


def efficient(environment: Environment) -> tuple[Constraint, ...]:
    """Return what memory-efficient attention asks for, in torch's order."""
    supported = REDUCED if environment.composable_kernel else ("float16", "float32", "bfloat16")
    return (
        need.on_device("rocm"),
        *_target(environment),
        need.rank_is(4),
        shared.row_alignment(lambda problem: 8 if problem.dtype in REDUCED else 4),
        _row_length(),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(mask_too=True)),
        where_dense(need.equal_batch()),
        where_dense(need.equal_heads()),
        _mask_type(),
        need.dtype_in(*supported),
    )


def _target(environment: Environment) -> tuple[Constraint, ...]:
    """Ask for a GPU that AOTriton has kernels for; of CK's torch asks for none."""

    @constraint("wrong-capability", f"a GPU that AOTriton has kernels for: {', '.join(SUPPORTED)}")
    def supported(problem: AttentionProblem) -> str:
        target = problem.device.capability
        return "" if target in SUPPORTED else f"AOTriton has no kernels for {target}"

    return () if environment.composable_kernel else (supported(),)


@constraint("head-dim-too-large", f"head_dim at most {_LONGEST_ROW}, on gfx11 {_LONGEST_ROW_GFX11}")
def _row_length(problem: AttentionProblem) -> str:
    gfx11 = problem.device.capability.startswith("gfx11")
    return need.head_dim_at_most(_LONGEST_ROW_GFX11 if gfx11 else _LONGEST_ROW).test(problem)


@constraint("wrong-dtype", "a mask of bool, or of the type of the query")
def _mask_type(problem: AttentionProblem) -> str:
    mask = problem.mask
    if mask is None or mask.dtype in ("bool", problem.dtype):
        return ""
    return f"the mask is of {mask.dtype}; it takes bool and {problem.dtype}"
