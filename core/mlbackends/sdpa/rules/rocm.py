"""The problems that torch's fused attention supports on AMD's GPUs, with kernels of AOTriton or CK.

Source: PyTorch's sdp_utils.cpp for ROCm, read as of late 2024, 2025 and 2026, with the pull requests that
are named below where it changed in between; sdp_utils_cpp.h in the wheels of torch 2.5.1 to 2.15.0; rocm.toml
for AOTriton. None of this was tested on such a GPU.
"""

from functools import cache

import msgspec
from msgspec import Struct

from mlbackends.base.element_types import REDUCED
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.tables import table
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint, constraint
from mlbackends.sdpa.rules import shared
from mlbackends.sdpa.rules.environment import EXPERIMENTAL, Environment
from mlbackends.sdpa.rules.shared import where_dense


class AotritonRelease(Struct, frozen=True, forbid_unknown_fields=True):
    """A row of rocm.toml, which explains the fields. unclear: GPUs for which builds of a torch differ."""

    since: str
    until: str
    aotriton: str
    targets: tuple[str, ...]
    experimental: tuple[str, ...]
    longest_row: int
    longest_row_gfx11: int
    sources: tuple[str, ...]
    unclear: tuple[str, ...] = ()


@cache
def releases() -> tuple[AotritonRelease, ...]:
    """Return the rows of rocm.toml, by releases of torch."""
    return msgspec.convert(table("sdpa/rules/rocm.toml")["release"], tuple[AotritonRelease, ...])


def aotriton(environment: Environment) -> AotritonRelease:
    """Return the AOTriton that a torch is built with."""
    since = [row for row in releases() if dotted_numbers(row.since) <= environment.torch]
    return since[-1]


def unrecorded(problem: AttentionProblem, environment: Environment) -> str:
    """Return the part of a problem for which torch's rules on AMD's GPUs are not recorded, "" for none."""
    row, target, release = aotriton(environment), problem.device.capability, environment.torch
    width = max(problem.head_dim, problem.value_dim)
    if not target or target in row.unclear:
        return target or "this GPU"
    if not row.longest_row_gfx11 and target.startswith("gfx11") and 256 < width <= row.longest_row:
        return f"a head_dim above 256 on {target}"
    # Which patch releases have pytorch#143242, #163745 and #148986 is not known.
    if release == (2, 6) and mask_dtype().test(problem):
        return "a mask of another dtype"
    if release == (2, 9) and _aligned.test(problem):
        return "a head_dim that is no multiple of 16 bytes"
    return "CK" if release == (2, 7) and environment.composable_kernel else ""


def flash(environment: Environment) -> tuple[Constraint, ...]:
    """Return the constraints of flash attention, in torch's order."""
    grouped = need.grouped_heads(one_for_all=environment.torch >= (2, 14))
    return (
        need.on_device("rocm"),
        need.rank_is(4),
        need.no_mask(),
        need.same_head_dim(),
        row_length(environment),
        nested_row_length(),
        shared.nested_head_dim(),
        *_target(environment),
        # HIP reports gfx1200 and gfx1201 as 12.0, which torch treats as NVIDIA's capability 12.0.
        shared.training_limit(lambda problem: problem.device.capability.startswith("gfx120"), "gfx120x"),
        where_dense(need.square_causal()),
        need.dtype_in(*REDUCED),
        shared.nested_heads(),
        where_dense(need.equal_batch()),
        where_dense(grouped if environment.torch >= (2, 6) else need.equal_heads()),  # pytorch#140172
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(singleton_exempt=True)),
    )


def efficient(environment: Environment) -> tuple[Constraint, ...]:
    """Return the constraints of memory-efficient attention, in torch's order."""
    release = environment.torch
    nested: tuple[Constraint, ...] = ()
    if release < (2, 13):
        nested = (nested_row_length(), shared.nested_head_dim())
    if release < (2, 6):  # pytorch#140172
        nested = (need.not_nested(),)
    supported = REDUCED if _has_ck(environment) else ("float16", "float32", "bfloat16")
    return (
        need.on_device("rocm"),
        *_target(environment),
        need.rank_is(4),
        *((_aligned,) if release >= (2, 10) else ()),  # pytorch#163745
        *((need.same_head_dim(),) if release < (2, 13) else ()),  # pytorch#184288
        row_length(environment),
        *nested,
        shared.nested_heads(),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(mask_too=True)),
        where_dense(need.equal_batch()),
        where_dense(need.equal_heads()),
        *((mask_dtype(),) if release >= (2, 7) else ()),  # pytorch#143242
        need.dtype_in(*supported),
    )


def _has_ck(environment: Environment) -> bool:
    """Return whether CK's kernels are preferred, by a torch that knows them. Source: pytorch#138947."""
    return environment.composable_kernel and environment.torch >= (2, 7)


def _target(environment: Environment) -> tuple[Constraint, ...]:
    """Require a GPU with AOTriton kernels; torch does not check CK's."""
    row = aotriton(environment)
    allowed = (*row.targets, *row.experimental) if environment.experimental else row.targets
    sentence = f"a GPU that AOTriton {row.aotriton} has kernels for: {', '.join(allowed)}"

    def supported(problem: AttentionProblem) -> str:
        target = problem.device.capability
        has_kernels = target in row.targets or target in row.experimental
        return "" if has_kernels else f"AOTriton {row.aotriton} has no kernels for {target}"

    def enabled(problem: AttentionProblem) -> str:
        target = problem.device.capability
        is_off = target in row.experimental and not environment.experimental
        return f"AOTriton {row.aotriton} has experimental kernels for {target}, and they are off" * is_off

    if _has_ck(environment):
        return ()
    variable = f"{EXPERIMENTAL}=1"
    return (
        Constraint("wrong-capability", sentence, supported),
        Constraint("wrong-capability", f"for experimental GPUs, {variable}", enabled, f"set {variable}"),
    )


_aligned = shared.row_alignment(lambda problem: 8 if problem.dtype in REDUCED else 4)


def row_length(environment: Environment) -> Constraint:
    """Limit head_dim, by the GPU and the AOTriton."""
    row = aotriton(environment)
    gfx11 = row.longest_row_gfx11 or 256

    def test(problem: AttentionProblem) -> str:
        is_gfx11 = problem.device.capability.startswith("gfx11")
        return need.head_dim_at_most(gfx11 if is_gfx11 else row.longest_row).test(problem)

    return Constraint("head-dim-too-large", f"head_dim at most {row.longest_row}, on gfx11 {gfx11}", test)


@constraint("head-dim-too-large", "for nested tensors, head_dim at most 256")
def nested_row_length(problem: AttentionProblem) -> str:
    """Limit head_dim of nested tensors."""
    return need.head_dim_at_most(256).test(problem) if problem.is_nested else ""


@constraint("wrong-dtype", "a boolean mask, or one of query's dtype")
def mask_dtype(problem: AttentionProblem) -> str:
    """Require a boolean mask, or one of the query's dtype."""
    mask = problem.mask
    if mask is None or mask.dtype in ("bool", problem.dtype):
        return ""
    return f"the mask has the dtype {mask.dtype}; supported: bool, {problem.dtype}"
