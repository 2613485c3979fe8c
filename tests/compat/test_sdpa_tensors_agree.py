"""Tensors of torch that carry more than numbers, in calls of attention."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import mlbackends  # noqa: E402
from mlbackends_kernels.attention_cpu import library  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*deprecated.*:FutureWarning"),
]
attend: Any = mlbackends.scaled_dot_product_attention
torch.manual_seed(3)
Q, K, V = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)


def same(result: Any, expected: Any) -> None:
    for fact in ("dtype", "shape", "device", "requires_grad", "layout"):
        assert getattr(result, fact) == getattr(expected, fact), fact
    assert result.stride() == expected.stride()
    assert torch.equal(result, expected)


def gradients_of(*tensors: Any, **options: Any) -> list[Any]:
    """Return the result and the gradients of query, key and value, for a fixed gradient of the result."""
    tensors = tuple(tensor.detach().requires_grad_() for tensor in tensors)
    out = attend(*tensors, **options)
    weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype)
    (out * weights).sum().backward()
    return [out.detach(), *(tensor.grad for tensor in tensors)]


def test_the_backend_of_the_forward_pass_differentiates_whatever_is_switched_since() -> None:
    expected = gradients_of(Q, K, V)
    tensors = [tensor.clone().requires_grad_() for tensor in (Q, K, V)]
    out = attend(*tensors)
    weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
    with mlbackends.sdpa_kernel([]):
        (out * weights).sum().backward()
    for tensor, gradient in zip(tensors, expected[1:], strict=True):
        same(tensor.grad, gradient)


def test_a_backward_pass_uses_the_instruction_set_that_is_chosen_when_it_runs() -> None:
    def gradient(forward_level: str) -> Any:
        query = torch.linspace(-2, 2, 2 * 9 * 67).reshape(1, 2, 9, 67).requires_grad_()
        with library.lowered(forward_level):
            out = attend(query, query.detach(), query.detach())
        out.sum().backward()
        return query.grad

    levels = library.usable_levels()
    torch.testing.assert_close(gradient(levels[0]), gradient(levels[-1]))


def test_a_sign_that_is_not_applied_yet_counts() -> None:
    mask = torch.randn(4, 6)
    for place in range(4):
        tensors = [Q, K, V, mask]
        tensors[place] = torch._neg_view(tensors[place])
        assert tensors[place].is_neg()
        same(attend(*tensors), attend(*(tensor.resolve_neg() for tensor in tensors)))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("offset", [0, 2])
def test_a_tensor_whose_storage_was_freed_is_refused(offset: int, place: int) -> None:
    shapes = [*[(3, 1, 4, 4, 8)] * 3, (3, 1, 1, 4, 4)]
    tensors = [torch.rand(shape)[offset] for shape in shapes]
    tensors[place].untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="storage of a tensor has been freed"):
        attend(*tensors)


def test_a_tensor_of_zeros_without_memory_is_one_of_zeros() -> None:
    zeros = torch.zeros(Q.shape)
    same(attend(torch._efficientzerotensor(Q.shape), K, V), attend(zeros, K, V))


def test_a_tensor_that_is_made_functional_is_not_read_itself() -> None:
    result = attend(torch._to_functional_tensor(Q), K, V)
    same(torch._from_functional_tensor(result), attend(Q, K, V))


def test_inference_mode_and_a_default_device_change_nothing() -> None:
    expected = attend(Q, K, V)
    with torch.inference_mode():
        assert torch.equal(attend(Q.clone(), K.clone(), V.clone()), expected)
    with torch.device("meta"):
        same(attend(Q, K, V), expected)
