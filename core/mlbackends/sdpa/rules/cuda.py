"""The problems that torch's flash and memory-efficient attention support on CUDA.

Source: the wheels for CUDA of torch 2.5.0 to 2.15.0, one or two of each release: their own answers to
thousands of problems, with a CUDA runtime that only describes devices. A pull request is named where a rule
changed.
"""

from collections.abc import Callable

from mlbackends.base.element_types import ITEM_BYTES, REDUCED
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint, constraint
from mlbackends.sdpa.rules import shared
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.shared import where_dense

_PREFERRED = ((9, 0), (10, 0), (10, 3))
_SMALL = ((8, 6), (8, 7), (8, 8), (8, 9), (12, 0), (12, 1))


def flash(environment: Environment) -> tuple[Constraint, ...]:
    """Return the constraints of flash attention, in torch's order; FA3 and FA4 are not covered."""
    crowd = (where_dense(shared.crowd()),) if environment.torch >= (2, 15) else ()
    return (
        need.on_device("cuda"),
        need.rank_is(4),
        need.no_mask(),
        need.same_head_dim(),
        need.head_dim_at_most(256),
        shared.nested_head_dim(),
        need.capability_between((8, 0), newest_capability(environment)),
        shared.training_limit(lambda problem: problem.capability in _SMALL, "sm86 to sm89 and sm120"),
        where_dense(need.square_causal()),
        _HALF,
        shared.nested_heads(),
        where_dense(need.equal_batch()),
        where_dense(need.grouped_heads(one_for_all=environment.torch >= (2, 14))),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(singleton_exempt=True)),
        *crowd,
    )


def efficient(environment: Environment) -> tuple[Constraint, ...]:
    """Return the constraints of memory-efficient attention, in torch's order; grouped heads since 2.14."""
    is_grouped = environment.torch >= (2, 14)
    return (
        need.on_device("cuda"),
        need.capability_between((5, 0), newest_capability(environment)),
        need.rank_is(4),
        shared.row_alignment(alignment),
        *((aligned_storage(),) if environment.torch >= (2, 13) else ()),  # pytorch#184258
        nested_inference(),
        shared.nested_heads(),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(mask_too=True)),
        where_dense(need.equal_batch()),
        where_dense(need.grouped_heads(one_for_all=True) if is_grouped else need.equal_heads()),
        _SINGLE_OR_HALF,
    )


def newest_capability(environment: Environment) -> tuple[int, int]:
    """Return the newest GPU that torch has attention kernels for. Source: pytorch#145602, #152314."""
    releases = {(2, 8): (12, 1), (2, 7): (12, 0)}
    return next((newest for since, newest in releases.items() if environment.torch >= since), (9, 0))


def prefers_cudnn(problem: AttentionProblem, environment: Environment) -> bool:
    """Return whether torch asks cuDNN first, unless an order was set.

    Source: pytorch#125343 in 2.5.0, undone by #138522 in 2.5.1; #171627 and #170800 since 2.10. Since 2.13,
    of all GPUs of capability 9 and 10, as observed in wheels for CUDA 13.
    """
    capability = problem.capability or (0, 0)
    if environment.torch < (2, 10):
        return environment.torch_version.startswith("2.5.0") and capability == (9, 0)
    is_preferred = capability in _PREFERRED if environment.torch < (2, 13) else capability[0] in (9, 10)
    return is_preferred and environment.cudnn_version > 91500


def alignment(problem: AttentionProblem) -> int:
    """Return the number of elements that head_dim must be a multiple of, by element type and GPU."""
    capability = problem.capability or (8, 0)
    if problem.dtype in REDUCED:
        return 8 if capability >= (7, 0) else 1
    return 4 if capability >= (8, 0) and problem.dtype == "float32" else 1


@constraint("storage-unaligned", "tensors with an aligned start")
def aligned_storage(problem: AttentionProblem) -> str:
    """Require tensors that start at whole vectors."""
    step = alignment(problem) if (problem.capability or (8, 0)) >= (8, 0) else 1
    for name in ("query", "key", "value"):
        spec = getattr(problem, name)
        if spec.elements and spec.storage_offset % step:
            size = step * ITEM_BYTES[problem.dtype]
            return (
                f"{name} starts {spec.storage_offset} elements into its storage; it must start at a"
                f" multiple of {step} elements ({size} bytes)"
            )
    return ""


@constraint("gradient", "no gradients of nested tensors")
def nested_inference(problem: AttentionProblem) -> str:
    """Refuse gradients of nested tensors."""
    specs = (problem.query, problem.key, problem.value)
    if not problem.is_nested or not any(spec.requires_grad for spec in specs):
        return ""
    return "gradients of nested tensors are not supported"


def _one_of(*dtypes: str) -> Callable[[AttentionProblem], str]:
    """Return a test for these element types; the last one, bfloat16, is supported from sm80."""

    def test(problem: AttentionProblem) -> str:
        has_bfloat16 = (problem.capability or (8, 0)) >= (8, 0)
        return need.dtype_in(*(dtypes if has_bfloat16 else dtypes[:-1])).test(problem)

    return test


_HALF = Constraint("wrong-dtype", "dtype float16 or bfloat16", _one_of("float16", "bfloat16"))
_SINGLE_OR_HALF = Constraint(
    "wrong-dtype",
    "dtype float16, float32, or bfloat16 from sm80",
    _one_of("float16", "float32", "bfloat16"),
)
