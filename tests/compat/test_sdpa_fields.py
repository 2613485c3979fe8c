"""Windows, caps, sinks, packed sequences and pages, beside compositions of torch's own operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

import mlbackends

pytestmark = [
    pytest.mark.torch,
    # torch's own, while it traces.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
ours: Any = mlbackends.scaled_dot_product_attention
DTYPES = {
    torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2
}  # fmt: skip


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def drawn(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def composed(
    query: Any,
    key: Any,
    value: Any,
    *,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Any = None,
    is_causal: bool = False,
    lower_right: bool = False,
) -> tuple[Any, Any]:
    """Return attention and its logarithms, of one length, with sinks as one more column of scores."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows, keys = scores.shape[-2:]
    own = torch.arange(rows)[:, None] + (keys - rows if lower_right else 0)
    apart = torch.arange(keys) - own
    left, right = window
    hidden = (apart > 0) & is_causal
    hidden |= (apart < -left) & (left >= 0)
    hidden |= (apart > right) & (right >= 0)
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        column = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, column], -1)
    weights = torch.softmax(scores, -1)[..., :keys]
    return weights @ value, torch.logsumexp(scores, -1)


CASES: dict[str, dict[str, Any]] = {
    "window": {"window": (2, 1)},
    "window to the lower right": {"window": (1, 2), "lower_right": True},
    "causal window": {"window": (2, -1), "is_causal": True},
    "softcap": {"softcap": 1.5},
    "all": {"window": (3, 0), "softcap": 0.7, "lower_right": True},
}


@pytest.mark.parametrize("sunk", [False, True], ids=["", "sinks"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_and_gradients_are_torch_s(case: str, dtype: Any, sunk: bool) -> None:
    tensors = [drawn(2, 4, length, 8, dtype=dtype) for length in (5, 7, 7)]
    options = dict(CASES[case])
    if sunk:
        options["sinks"] = drawn(4, dtype=dtype)
        tensors.append(options["sinks"])
    grad_out = torch.randn(2, 4, 5, 8, dtype=dtype)

    found, sums = ours(*tensors[:3], **options, return_logsumexp=True)
    gradients = torch.autograd.grad(found, tensors, grad_out)

    wide = [tensor.detach().double().requires_grad_() for tensor in tensors]
    if sunk:
        options["sinks"] = wide[3]
    wanted, logarithms = composed(*wide[:3], **options)
    near = DTYPES[dtype]
    torch.testing.assert_close(found.double(), wanted, rtol=near, atol=near)
    torch.testing.assert_close(sums.double(), logarithms, rtol=near, atol=near)
    rights = torch.autograd.grad(wanted, wide, grad_out.double())
    for mine, right, tensor in zip(gradients, rights, tensors, strict=True):
        assert mine.dtype == tensor.dtype
        torch.testing.assert_close(mine.double(), right, rtol=near, atol=4 * near)


def test_packed_sequences_and_their_gradients_are_those_of_each_alone() -> None:
    rows, keys = (3, 0, 4), (2, 5, 4)
    # In memory one row of all heads follows another, as packed tensors lie.
    tensors = [drawn(length, 4, 8) for length in (7, 11, 11)]
    sinks = drawn(4)
    options: dict[str, Any] = {"softcap": 1.0, "lower_right": True, "window": (2, 0)}
    grad_out = torch.randn(1, 4, 7, 8, dtype=torch.float64)
    packed = [tensor.transpose(0, 1)[None] for tensor in tensors]

    found = ours(*packed, **options, sinks=sinks, query_lengths=torch.tensor(rows), key_lengths=keys)
    gradients = torch.autograd.grad(found, [*tensors, sinks], grad_out)

    sizes = rows, keys, keys
    parts = zip(*(tensor.split(size, 2) for tensor, size in zip(packed, sizes, strict=True)), strict=True)
    wanted = torch.cat([composed(*part, **options, sinks=sinks)[0] for part in parts], 2)
    torch.testing.assert_close(found, wanted)
    for mine, right in zip(gradients, torch.autograd.grad(wanted, [*tensors, sinks], grad_out), strict=True):
        torch.testing.assert_close(mine, right)


def test_keys_in_pages_are_those_that_the_table_names() -> None:
    pages = torch.randn(6, 2, 4, 8)
    table = torch.tensor([[5, 0], [2, 1], [3, 3]], dtype=torch.int32)
    query = torch.randn(3, 4, 1, 8)

    found = ours(query, pages, pages, page_table=table, key_lengths=(8, 3, 5), enable_gqa=True)

    for number, keys in enumerate((8, 3, 5)):
        own = pages[table[number]].transpose(0, 1).reshape(1, 2, 8, 8)[:, :, :keys]
        own = own.repeat_interleave(2, 1)
        wanted, _ = composed(query[number][None], own, own)
        torch.testing.assert_close(found[number][None], wanted)


def test_a_table_of_pages_has_no_gradient_and_needs_none() -> None:
    pages = torch.randn(6, 4, 4, 8)
    query = torch.randn(1, 4, 2, 8, requires_grad=True)
    more: dict[str, Any] = {
        "page_table": torch.zeros(1, 2, dtype=torch.int32), "key_lengths": (6,)
    }  # fmt: skip

    with pytest.raises(RuntimeError, match="gradients are not supported with paged keys"):
        ours(query, pages, pages, **more)
    with torch.no_grad():
        assert ours(query, pages, pages, **more).shape == (1, 4, 2, 8)


def test_sinks_alone_may_require_the_gradient() -> None:
    query, key, value = (torch.randn(1, 2, 3, 4, dtype=torch.float64) for _ in range(3))
    sinks = drawn(2)

    assert torch.autograd.gradcheck(lambda each: ours(query, key, value, sinks=each), (sinks,))
