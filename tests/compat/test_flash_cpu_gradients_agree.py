"""flash_cpu's gradients are no further from float64 than twice those of torch's flash attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from mlbackends.base import registry
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends_kernels.attention_cpu import library

pytestmark = pytest.mark.torch
backend = registry.load("mlbackends_kernels", "flash_cpu").FlashCpu()
built = pytest.mark.skipif(bool(backend.missing_parts()), reason="the library was not built")
flash: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def exact(tensors: Any, grad_out: Any, causal: bool) -> Any:
    """Return the gradients that torch's formula has in float64."""
    wide = [tensor.double().requires_grad_() for tensor in tensors]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=causal)
    return torch.autograd.grad(out, wide, grad_out.double())


def error(found: Any, wanted: Any) -> float:
    """Return the root of the mean square of what they differ by."""
    return float((found.double() - wanted).square().mean().sqrt())


@built
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(2, 3, 130, 64), (1, 2, 77, 40)], ids=str)
def test_errors_are_at_most_twice_torch_s(shape: tuple[int, ...], dtype: str, causal: bool) -> None:
    torch.manual_seed(0)
    query, key, value, grad_out = (torch.randn(shape).to(getattr(torch, dtype)) for _ in range(4))
    out, sums = flash(query, key, value, 0.0, causal)
    theirs = flash_backward(grad_out, query, key, value, out, sums, 0.0, causal)
    spec = TensorSpec(shape, dtype, requires_grad=True)
    problem = AttentionProblem(query=spec, key=spec, value=spec, is_causal=causal)
    wanted = exact((query, key, value), grad_out, causal)
    for level in library.usable_levels():
        with library.lowered(level):
            ours = backend.run_backward(problem, grad_out, query, key, value, None, out, sums)
        for mine, other, want in zip(ours, theirs, wanted, strict=False):
            assert error(mine, want) <= 2 * error(other, want), level
