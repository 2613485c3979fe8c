"""Gradients of our attention through torch's graph, beside those of torch's flash attention and formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

import numpy as np

import mlbackends
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.dispatch import backends

pytestmark = [
    pytest.mark.torch,
    # torch's own, while it traces.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
ours: Any = mlbackends.scaled_dot_product_attention
backward: Any = mlbackends.scaled_dot_product_attention_backward
attention: Any = torch.nn.functional.scaled_dot_product_attention
DTYPES = {
    torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2
}  # fmt: skip
SMALL = TensorSpec((1, 1, 2, 8), "float32")
ON_CPU = AttentionProblem(query=SMALL, key=SMALL, value=SMALL)
DIFFERENTIABLE = [
    backend.answers_to
    for backend in backends()
    if "gradient" in backend.takes and not (backend.missing_parts() or backend.unsupported_reasons(ON_CPU))
]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=DIFFERENTIABLE, ids=lambda kind: kind.name)
def kind(request: Any) -> Any:
    """Compute with one kind of our backends, each that has gradients in turn."""
    with mlbackends.sdpa_kernel(request.param):
        yield request.param


def drawn(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


LOWER = torch.ones(5, 7).tril().bool()
LOWER[2] = False
CASES: dict[str, Any] = {
    "plain": lambda f, q, k, v: f(q, k, v),
    "causal": lambda f, q, k, v: f(q, k, v, is_causal=True),
    "scale": lambda f, q, k, v: f(q, k, v, scale=-0.7),
    "boolean mask": lambda f, q, k, v: f(q, k, v, LOWER),
    "float mask": lambda f, q, k, v: f(
        q, k, v, torch.zeros(5, 7, dtype=q.dtype).masked_fill(~LOWER, -torch.inf) + 0.5
    ),
    "mask that broadcasts": lambda f, q, k, v: f(q, k, v, LOWER.expand(2, 1, 5, 7)),
    "heads behind": lambda f, q, k, v: f(
        *(tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v))
    ),
    "rows backwards": lambda f, q, k, v: f(q.flip(2), k[:, :, ::2], v[:, :, ::2]),
    "query as value": lambda f, q, k, v: f(q, q, q) + 0 * (k.sum() + v.sum()),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", ["FLASH_ATTENTION", "MATH"])
def test_gradients_are_torch_s(case: str, dtype: Any, kernel: str, kind: Any) -> None:
    tensors = [drawn(2, 4, length, 8, dtype=dtype) for length in (5, 7, 7)]
    grad_out = torch.randn(2, 4, 5, 8, dtype=dtype)
    call = CASES[case]

    found = torch.autograd.grad(call(ours, *tensors), tensors, grad_out)

    with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, kernel)):
        wanted = torch.autograd.grad(call(attention, *tensors), tensors, grad_out)
    near = DTYPES[dtype]
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine, theirs, rtol=near, atol=2 * near)


@pytest.mark.parametrize(
    "shape", [(3, 5), (1, 5), (3, 1), (4, 3, 5), (1, 4, 1, 5), (2, 1, 3, 1), (2, 4, 3, 5)]
)
def test_a_mask_of_numbers_has_a_gradient_whatever_it_broadcasts(shape: Any, kind: Any) -> None:
    inputs = (drawn(2, 4, 3, 4), drawn(2, 2, 5, 4), drawn(2, 2, 5, 6), drawn(*shape))

    assert torch.autograd.gradcheck(
        lambda q, k, v, mask: ours(q, k, v, mask, enable_gqa=True), inputs, fast_mode=True
    )


@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16])
def test_a_mask_s_gradient_is_of_the_mask_s_type(wide: Any, kind: Any) -> None:
    query = drawn(1, 2, 3, 4, dtype=torch.bfloat16)
    mask = drawn(3, 3, dtype=wide)

    ours(query, query, query, mask).sum().backward()

    assert (mask.grad.dtype, query.grad.dtype) == (wide, torch.bfloat16)


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4), (5, 4), (5, 2)),
        ((2, 3, 4), (2, 5, 4), (2, 5, 4)),
        ((2, 1, 3, 4), (1, 4, 5, 4), (2, 4, 5, 4)),
        ((4, 3, 4), (2, 4, 5, 4), (1, 5, 3)),
        ((2, 2, 2, 3, 4), (2, 1, 2, 5, 4), (5, 4)),
    ],
    ids=str,
)
def test_what_was_broadcast_gets_the_sum(shapes: Any, kind: Any) -> None:
    inputs = tuple(drawn(*shape) for shape in shapes)
    assert torch.autograd.gradcheck(ours, inputs, fast_mode=True)


def test_dropout_has_the_gradients_of_what_it_kept() -> None:
    inputs = tuple(drawn(2, 2, 5, 4) for _ in "qkv")

    assert torch.autograd.gradcheck(
        lambda q, k, v: ours(q, k, v, dropout_p=0.4, seed=7), inputs, fast_mode=True
    )
    out = ours(*inputs, dropout_p=0.4)
    once = torch.autograd.grad(out.sum(), inputs, retain_graph=True)
    torch.rand(3)
    again = torch.autograd.grad(out.sum(), inputs)
    torch.testing.assert_close(again, once, rtol=0, atol=0)


def test_a_checkpoint_drops_the_same_again() -> None:
    from torch.utils.checkpoint import checkpoint

    query = drawn(2, 2, 5, 4)

    def attended(query: Any) -> Any:
        return ours(query, query, query, dropout_p=0.4)

    torch.manual_seed(3)
    wanted = torch.autograd.grad(attended(query).sum(), query)
    torch.manual_seed(3)
    found = torch.autograd.grad(checkpoint(attended, query, use_reentrant=False).sum(), query)

    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("needed", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1)])
def test_only_what_requires_a_gradient_gets_one(needed: Any, kind: Any) -> None:
    tensors = [torch.randn(1, 2, 3, 4, requires_grad=bool(flag)) for flag in needed]

    ours(*tensors).sum().backward()

    assert [tensor.grad is not None for tensor in tensors] == [bool(flag) for flag in needed]


def test_a_call_like_earlier_ones_without_gradients_has_its_own() -> None:
    plain = torch.randn(1, 2, 3, 4)
    query = torch.randn(1, 2, 3, 4, requires_grad=True)
    for _ in range(4):
        ours(plain, plain, plain)
        with torch.no_grad():
            ours(query, query, query)

    for tensors in ((query, plain, plain), (plain, query, plain), (plain, plain, query)):
        (found,) = torch.autograd.grad(ours(*tensors).sum(), query)
        torch.testing.assert_close(found, torch.autograd.grad(attention(*tensors).sum(), query)[0])


def test_the_logsumexp_is_a_tensor_without_a_gradient(kind: Any) -> None:
    query = drawn(1, 2, 3, 4, dtype=torch.bfloat16)

    out, logsumexp = ours(query, query, query, return_logsumexp=True)

    scores = query.double() @ query.double().mT / 2
    assert out.requires_grad and not logsumexp.requires_grad
    torch.testing.assert_close(logsumexp, scores.logsumexp(-1).float().detach(), rtol=1e-3, atol=1e-3)
    ours(query, query, query)[0].sum().backward()
    assert query.grad is not None


@pytest.mark.parametrize("which", range(5))
def test_what_was_written_to_after_the_forward_pass_is_noticed(which: int, kind: Any) -> None:
    leaves = [drawn(1, 2, 3, 4) for _ in "qkv"] + [drawn(3, 3)]
    tensors = [leave * 1 for leave in leaves]
    tensors.append(ours(*tensors))
    total = (tensors[4] * 1).sum()

    with torch.no_grad():
        tensors[which].add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_a_graph_is_spent_unless_it_is_retained(kind: Any) -> None:
    query = drawn(1, 2, 3, 4)
    out = ours(query, query, query).sum()
    out.backward(retain_graph=True)
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("where", ["query", "key", "value", "grad_out", "mask"])
def test_numbers_that_are_none_go_where_those_of_torch_go(where: str, bad: float, kind: Any) -> None:
    named = {name: drawn(1, 1, 4, 3).detach() for name in ("query", "key", "value", "grad_out")}
    named["mask"] = torch.zeros(4, 4, dtype=torch.float64)
    named[where][..., 2, 1] = bad
    tensors = [named[name].requires_grad_() for name in ("query", "key", "value")]

    mine = torch.autograd.grad(ours(*tensors, named["mask"]), tensors, named["grad_out"])
    # In the formula's sum of weights times gradients infinities of both signs meet.
    plain = where == "grad_out" and kind.name == "MATH"
    peer = getattr(torch.nn.attention.SDPBackend, "MATH" if plain else "FLASH_ATTENTION")
    with torch.nn.attention.sdpa_kernel(peer):
        theirs = torch.autograd.grad(attention(*tensors, named["mask"]), tensors, named["grad_out"])

    for tensor, other in zip(mine, theirs, strict=True):
        assert torch.equal(tensor.isnan(), other.isnan())
        assert torch.equal(tensor.isinf(), other.isinf())


def test_a_row_that_sees_nothing_gives_nothing(kind: Any) -> None:
    tensors = [drawn(1, 1, 4, 3) for _ in "qkv"]
    mask = torch.ones(4, 4).bool()
    mask[1] = False

    found = torch.autograd.grad(ours(*tensors, mask).sum(), tensors)

    assert found[0].any(-1).flatten().tolist() == [True, False, True, True]
    assert all(tensor.isfinite().all() for tensor in found)


@pytest.mark.parametrize("shape", [(0, 2, 4, 8), (1, 2, 0, 8), (1, 0, 4, 8)])
def test_what_is_empty_is_zeros_in_the_graph(shape: Any) -> None:
    query, mask = drawn(*shape), drawn(shape[2], shape[2])
    out = ours(query, query, query, mask)
    assert out.grad_fn is not None and attention(query, query, query, mask).grad_fn is not None

    out.sum().backward()

    assert query.grad.shape == shape and not query.grad.any()


@pytest.mark.parametrize("length", [3, 0])
def test_tensors_of_other_kinds_stand_beside_torch_s(length: int, kind: Any) -> None:
    query = drawn(1, 2, 3, 4, dtype=torch.float32)
    key: Any = np.random.default_rng(0).standard_normal((1, 2, length, 4)).astype("float32")
    key.flags.writeable = False
    mask = np.tri(3, length, dtype=bool)

    ours(query, key, memoryview(key), mask).sum().backward()

    theirs = torch.tensor(key)
    wanted = attention(query, theirs, theirs, torch.tensor(mask)).sum()
    torch.testing.assert_close(query.grad, torch.autograd.grad(wanted, query)[0])
    with pytest.raises(RuntimeError, match="kind of query, ndarray, which cannot have gradients"):
        ours(key, query, query) if length else ours(key, query[:, :, :0], query[:, :, :0])
    with torch.no_grad():
        assert isinstance(ours(key, query, query), np.ndarray)


def test_on_the_meta_device_shapes_go_back() -> None:
    query = torch.empty(2, 4, 5, 8, device="meta", requires_grad=True)
    key, value = (
        torch.empty(2, 2, 7, 8, device="meta", requires_grad=True),
        drawn(2, 2, 7, 3).to("meta"),
    )
    mask = torch.empty(5, 7, device="meta", requires_grad=True)

    found = torch.autograd.grad(
        ours(query, key, value.float(), mask, enable_gqa=True).sum(), (query, key, mask)
    )

    assert [tuple(tensor.shape) for tensor in found] == [(2, 4, 5, 8), (2, 2, 7, 8), (5, 7)]


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's own, at a break
def test_who_compiles_a_function_finds_our_gradients_in_it(kind: Any) -> None:
    query = drawn(1, 2, 3, 4)

    def function(x: Any) -> Any:
        return ours(x * 2, x, x).square()

    wanted = torch.autograd.grad(function(query).sum(), query)
    torch._dynamo.reset()
    found = torch.autograd.grad(torch.compile(function, backend="eager")(query).sum(), query)

    torch.testing.assert_close(found, wanted)


# ---- the function itself ------------------------------------------------------------


def test_it_takes_and_gives_torch_s_tensors(kind: Any) -> None:
    tensors = [drawn(1, 2, 3, 4).detach() for _ in "qkv"]
    grad_out = drawn(1, 2, 3, 4).detach()
    results = ours(*tensors, return_logsumexp=True)

    found = backward(grad_out, *tensors, *results)

    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    wanted = torch.autograd.grad(attention(*leaves), leaves, grad_out)
    torch.testing.assert_close(tuple(found[:3]), wanted)
    assert found.mask is None


def test_torch_s_own_results_are_taken(kind: Any) -> None:
    tensors = [torch.randn(1, 2, 3, 4) for _ in "qkv"]
    grad_out = torch.randn(1, 2, 3, 4)
    out, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*tensors)

    found = backward(grad_out, *tensors, out, logsumexp)

    wanted = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, *tensors, out, logsumexp, 0.0, False
    )
    torch.testing.assert_close(tuple(found[:3]), tuple(wanted))


def test_torch_s_bias_is_a_mask_too(kind: Any) -> None:
    from torch.nn.attention.bias import causal_lower_right

    tensors = [torch.randn(1, 2, length, 4) for length in (3, 5, 5)]
    grad_out = torch.randn(1, 2, 3, 4)
    bias, mask = causal_lower_right(3, 5), torch.ones(3, 5).tril(2).bool()

    found = backward(grad_out, *tensors, *ours(*tensors, bias, return_logsumexp=True), attn_mask=bias)

    wanted = backward(grad_out, *tensors, *ours(*tensors, mask, return_logsumexp=True), attn_mask=mask)
    torch.testing.assert_close(tuple(found[:3]), tuple(wanted[:3]))


def test_tensors_on_another_device_are_refused() -> None:
    query = torch.randn(1, 2, 3, 4)
    out, logsumexp = ours(query, query, query, return_logsumexp=True)
    with pytest.raises(RuntimeError, match="out is on meta; query is on cpu"):
        backward(out, query, query, query, out.to("meta"), logsumexp)
