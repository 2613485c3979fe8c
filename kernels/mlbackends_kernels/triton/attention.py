"""Attention of tensors that lie on a CUDA device, by the Triton kernel."""

from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends_kernels.triton import launching
from mlbackends_kernels.triton.operands import operand


def attend(
    problem: AttentionProblem,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    with_logsumexp: bool = False,
) -> tuple[Any, Any]:
    """Return the output, and the logarithm of each row's sum of exponentials or None.

    Shapes: query (B, H, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev), mask broadcastable to
    (B, H, L, S); returns (B, H, L, Ev) of the query's type and (B, H, L) float32. A row that sees no
    key is 0, and -inf. The tensors are torch's, or have DLPack or `__cuda_array_interface__`.
    """
    first = operand(query)
    output = launching.output_like(query, problem.output_shape, problem.dtype, first.device)
    sums = None
    if with_logsumexp:
        shape = problem.output_shape[:-1]
        sums = launching.output_like(query, shape, "float32", first.device)
    if 0 in problem.output_shape[:-1] or not (problem.value_dim or with_logsumexp):
        return output, sums
    what = launching.attention(
        first,
        operand(key),
        operand(value),
        None if mask is None else operand(mask),
        operand(output),
        None if sums is None else operand(sums),
        scale=(problem.head_dim or 1) ** -0.5 if problem.scale is None else problem.scale,
        causal=problem.is_causal,
        lower_right=problem.lower_right,
        precision=launching.fp32_precision(),
        capability=launching.capability_of(first),
    )
    from mlbackends_kernels.triton.flash_forward import flash_forward

    launching.launch(flash_forward, what)
    return output, sums
