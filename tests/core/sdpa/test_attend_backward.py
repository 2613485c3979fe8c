"""scaled_dot_product_attention_backward as it is called, and the logsumexp that it wants."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import mlbackends
from mlbackends.base.errors import NoBackend
from mlbackends.sdpa import Gradients
from mlbackends.sdpa.switches import SDPBackend

attend: Any = mlbackends.scaled_dot_product_attention
backward: Any = mlbackends.scaled_dot_product_attention_backward
RANDOM = np.random.default_rng(0)
Q, GRAD = (RANDOM.standard_normal((2, 4, 5, 8)).astype("float32") for _ in range(2))
K, V = (RANDOM.standard_normal((2, 4, 7, 8)).astype("float32") for _ in range(2))
OUT, SUMS = attend(Q, K, V, return_logsumexp=True)


def slopes(function: Any, tensor: Any, grad_out: Any) -> Any:
    """Return the gradient of a tensor of float64 by differences, one element after the other."""
    found = np.zeros_like(tensor)
    for place in np.ndindex(tensor.shape):
        there, back = tensor.copy(), tensor.copy()
        there[place] += 1e-6
        back[place] -= 1e-6
        found[place] = (grad_out * (function(there) - function(back))).sum() / 2e-6
    return found


# ---- the logsumexp ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "wide"), [("float64", "float64"), ("float32", "float32"), ("float16", "float32")]
)
@pytest.mark.parametrize("kinds", [[SDPBackend.MATH], list(SDPBackend.__members__.values())[1:]])
def test_the_logsumexp_is_of_each_row_s_scores(dtype: str, wide: str, kinds: Any) -> None:
    query, key = Q.astype(dtype), K.astype(dtype)

    with mlbackends.sdpa_kernel(kinds):
        out, seen = attend(query, key, key, return_logsumexp=True)
        assert np.array_equal(out, attend(query, key, key))

    scores = query.astype("f8") @ key.astype("f8").swapaxes(-1, -2) / 8**0.5
    near = {"float64": 1e-13, "float32": 1e-5, "float16": 1e-4}[dtype]
    assert (type(seen), seen.dtype.name, seen.shape) == (np.ndarray, wide, (2, 4, 5))
    assert np.allclose(seen, np.log(np.exp(scores).sum(-1)), atol=near)


def test_a_row_that_sees_no_key_has_a_logsumexp_of_0() -> None:
    bias = mlbackends.causal_lower_right(5, 3)
    mask = np.array(bias.rows())

    for given in (bias, mask, np.where(mask, 0, -np.inf).astype("f4")):
        _, seen = attend(Q, K[:, :, :3], V[:, :, :3], given, return_logsumexp=True)
        assert not seen[..., :2].any() and seen[..., 2:].all()


def test_a_buffer_s_logsumexp_is_a_buffer() -> None:
    flat: Any = np.ascontiguousarray(Q[0, 0])
    seen = attend(memoryview(flat), memoryview(flat), memoryview(flat), return_logsumexp=True)[1]
    assert (type(seen), seen.format, seen.shape) == (memoryview, "f", (5,))


def test_what_is_empty_has_a_logsumexp_of_0() -> None:
    with mlbackends.sdpa_kernel([]):
        out, seen = attend(Q, K[:, :, :0], V[:, :, :0], return_logsumexp=True)
        assert (seen.shape, seen.dtype, seen.any()) == ((2, 4, 5), np.float32, False)
        assert out.shape == (2, 4, 5, 8)
        wide = Q[:, :, :0].astype("f8")
        assert attend(wide, wide, wide, return_logsumexp=True)[1].dtype == np.float64


def test_it_is_refused_by_a_backend_that_tells_none() -> None:
    from mlbackends.sdpa.dispatch import backends

    telling = {backend.name for backend in backends() if "logsumexp" in backend.takes}
    assert {"math", "flash_cpu"} <= telling
    assert all("logsumexp" in backend.takes for backend in backends() if "gradient" in backend.takes)


# ---- seeds --------------------------------------------------------------------------


def test_a_seed_says_what_is_dropped() -> None:
    def dropped(seed: Any) -> Any:
        return attend(Q, K, V, dropout_p=0.5, seed=seed)

    assert np.array_equal(dropped(3), dropped(np.int64(3)))
    assert np.array_equal(dropped(3), dropped(3 + (1 << 64)))
    assert np.array_equal(dropped(-1), dropped((1 << 64) - 1))
    assert not np.array_equal(dropped(3), dropped(4))
    assert not np.array_equal(dropped(0), dropped(3))
    before = np.random.get_state(legacy=False)["state"]["pos"]  # noqa: NPY002
    dropped(0)
    assert np.random.get_state(legacy=False)["state"]["pos"] == before  # noqa: NPY002


@pytest.mark.parametrize("seed", [1.0, "1", True, np.ones(2, int), b"1"])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(TypeError, match="argument 'seed' must be int"):
        attend(Q, K, V, seed=seed)


# ---- gradients ----------------------------------------------------------------------


def test_the_order_is_that_of_torch_s_own_operation() -> None:
    assert str(inspect.signature(backward)) == (
        "(grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any,"
        " dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,"
        " scale: float | None = None, enable_gqa: bool = False, seed: int | None = None,"
        " attn_mask_gradient: bool = False, window: tuple[int, int] | None = None,"
        " lower_right: bool = False, softcap: float = 0.0, sinks: Any = None,"
        " alibi_slopes: Any = None, query_lengths: Any = None, key_lengths: Any = None,"
        " page_table: Any = None)"
        " -> mlbackends.sdpa.backend.Gradients"
    )


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "bias": {"attn_mask": mlbackends.causal_lower_right(3, 4)},
    "boolean mask": {"attn_mask": np.array([[True, False, True, True]])},
    "mask": {"attn_mask": np.linspace(-1, 1, 12).reshape(3, 4)},
    "scale": {"scale": -0.4},
    "grouped": {"enable_gqa": True},
    "dropout": {"dropout_p": 0.4, "seed": 8},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kinds", [[SDPBackend.MATH], list(SDPBackend.__members__.values())[1:]])
def test_a_call_gives_the_slopes_of_its_result(name: str, kinds: Any) -> None:
    options = OPTIONS[name]
    heads = 2 if name == "grouped" else 4
    query, grad_out = (RANDOM.standard_normal((1, 4, 3, 2)) for _ in range(2))
    key, value = (RANDOM.standard_normal((1, heads, 4, 2)) for _ in range(2))

    with mlbackends.sdpa_kernel(kinds):
        out, sums = attend(query, key, value, **options, return_logsumexp=True)
        found = backward(grad_out, query, key, value, out, sums, **options, attn_mask_gradient=True)

    with mlbackends.sdpa_kernel(SDPBackend.MATH):
        ways = (
            lambda x: attend(x, key, value, **options),
            lambda x: attend(query, x, value, **options),
            lambda x: attend(query, key, x, **options),
        )
        for way, tensor, gradient in zip(ways, (query, key, value), found[:3], strict=True):
            assert np.allclose(gradient, slopes(way, tensor, grad_out), atol=1e-7)
        if name != "mask":
            assert found.mask is None
            return
        wanted = slopes(lambda x: attend(query, key, value, x), options["attn_mask"], grad_out)
        assert np.allclose(found.mask, wanted, atol=1e-7)


def test_a_mask_s_gradient_is_given_where_it_is_asked_for() -> None:
    mask = np.zeros((5, 7), "float32")
    assert backward(GRAD, Q, K, V, OUT, SUMS, attn_mask=mask).mask is None
    found = backward(GRAD, Q, K, V, OUT, SUMS, attn_mask=mask, attn_mask_gradient=True)
    assert isinstance(found, Gradients)
    assert (found.mask.shape, found.mask.dtype) == ((5, 7), np.float32)
    seen = backward(GRAD, Q, K, V, OUT, SUMS, attn_mask=mask == 0, attn_mask_gradient=True)
    assert seen.mask is None


def test_gradients_are_of_the_kind_of_their_tensors() -> None:
    flat: list[Any] = [np.ascontiguousarray(tensor[0, 0]) for tensor in (GRAD, Q, K, V, OUT, SUMS)]
    wanted = backward(*flat)

    buffers = [memoryview(array) for array in flat]
    found = backward(*buffers)

    for mine, right in zip(found[:3], wanted[:3], strict=True):
        assert type(mine) is memoryview
        assert np.array_equal(np.asarray(mine), right)


def test_what_lies_otherwise_in_memory_gives_the_same() -> None:
    wanted = backward(GRAD, Q, K, V, OUT, SUMS)
    lying = [np.asfortranarray(tensor) for tensor in (GRAD, OUT, SUMS)]
    repeated = np.broadcast_to(np.float32(1), GRAD.shape)

    found = backward(lying[0], Q, K, V, lying[1], lying[2])

    assert all(np.allclose(*pair, atol=1e-6) for pair in zip(found[:3], wanted[:3], strict=True))
    ones = backward(np.ones_like(GRAD), Q, K, V, OUT, SUMS)
    assert np.allclose(backward(repeated, Q, K, V, OUT, SUMS).query, ones.query, atol=1e-6)


def test_what_is_empty_gives_zeros_with_everything_off() -> None:
    mask = np.zeros((5, 0), "float32")
    key, value = K[:, :, :0], V[:, :, :0]
    with mlbackends.sdpa_kernel([]):
        out, sums = attend(Q, key, value, mask, return_logsumexp=True)
        options = {"attn_mask": mask, "attn_mask_gradient": True}
        found = backward(np.ones_like(out), Q, key, value, out, sums, **options)
    for gradient, tensor in zip(found[:4], (Q, key, value, mask), strict=True):
        assert (gradient.shape, gradient.dtype) == (tensor.shape, tensor.dtype)
        assert not gradient.any()
    assert backward(out, Q, key, value, out, sums, attn_mask=mask == 0, attn_mask_gradient=True).mask is None


def test_what_is_empty_makes_no_room_for_a_gradient_that_is_not_wanted() -> None:
    key, value = K[:, :, :0], V[:, :, :0]
    out, sums = attend(Q, key, value, return_logsumexp=True)
    endless = np.broadcast_to(np.float32(0), (1 << 30, 1 << 30))
    assert backward(out, Q, key, value, out, sums, attn_mask=endless).mask is None


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"grad_out": 1}, TypeError, r"'grad_out' \(position 1\) must be Tensor, not int"),
        ({"query": [1.0]}, TypeError, r"'query' \(position 2\)"),
        ({"out": None}, TypeError, r"'out' \(position 5\)"),
        ({"logsumexp": None}, TypeError, r"'logsumexp' \(position 6\)"),
        ({"is_causal": 1}, TypeError, r"'is_causal' \(position 8\)"),
        ({"attn_mask": 1}, TypeError, "'attn_mask' must be Tensor"),
        ({"attn_mask_gradient": 1}, TypeError, "'attn_mask_gradient' must be bool"),
        ({"seed": 0.5}, TypeError, "'seed' must be int"),
        ({"key": K.astype("f8")}, RuntimeError, "key.dtype: float64"),
        ({"attn_mask": np.ones((5, 6), bool)}, RuntimeError, "does not extend"),
        ({"attn_mask": np.ones((5, 7), bool), "is_causal": True}, RuntimeError, "Explicit"),
        (
            {"attn_mask": mlbackends.causal_upper_left(5, 7), "is_causal": True},
            ValueError, "CausalBias",
        ),
        ({"dropout_p": 1.5}, RuntimeError, "between 0 and 1"),
        ({"dropout_p": 0.5}, ValueError, "needs the seed of the forward call"),
        ({"grad_out": GRAD[:1]}, RuntimeError, r"grad_out has the shape \[1, 4, 5, 8\]; it must be"),
        ({"out": OUT[..., :7]}, RuntimeError, r"out has the shape .+ must be \[2, 4, 5, 8\]"),
        ({"logsumexp": SUMS[..., None]}, RuntimeError, r"it must be \[2, 4, 5\]"),
        ({"grad_out": GRAD.astype("f8")}, RuntimeError, "grad_out has the dtype float64; it must be float32"),
        ({"out": OUT.astype("f2")}, RuntimeError, "out has the dtype float16"),
        ({"logsumexp": SUMS.astype("f8")}, RuntimeError, "logsumexp has the dtype float64"),
        ({"query": Q.astype("c8"), "key": K.astype("c8"), "value": V.astype("c8")},
         NotImplementedError, "complex64"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_refused(changed: dict[str, Any], error: type[Exception], said: str) -> None:
    given = {"grad_out": GRAD, "query": Q, "key": K, "value": V, "out": OUT, "logsumexp": SUMS}
    with pytest.raises(error, match=said):
        backward(**{**given, **changed})


def test_switches_and_reasons_count_backwards_too() -> None:
    with mlbackends.sdpa_kernel([]), pytest.raises(NoBackend, match="No viable backend"):
        backward(GRAD, Q, K, V, OUT, SUMS)
    with (
        mlbackends.sdpa_kernel(SDPBackend.OVERRIDEABLE),
        pytest.raises(NoBackend, match="switched off"),
    ):
        backward(GRAD, Q, K, V, OUT, SUMS)


def test_a_dropout_of_all_or_nothing_needs_no_seed() -> None:
    nothing = backward(GRAD, Q, K, V, np.zeros_like(OUT), SUMS, 1.0)
    assert not any(gradient.any() for gradient in nothing[:3])
    whole = backward(GRAD, Q, K, V, OUT, SUMS)
    assert np.array_equal(whole.key, backward(GRAD, Q, K, V, OUT, SUMS, 0.0).key)
