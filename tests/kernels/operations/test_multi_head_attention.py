"""Attention with its projections: the fast path, the general one, and that they agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlbackends
from mlbackends.switches import store
from mlbackends_kernels.operations.multi_head_attention import _softmax

HEADS, WIDTH, LENGTH, BATCH = 2, 8, 5, 3
FAST = "mha.fastpath_enabled"


def numbers(*shape: int, dtype: str = "f4", seed: int = 0) -> Any:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def weights(dtype: str = "f4", bias: bool = True) -> tuple[Any, ...]:
    into, out = numbers(3 * WIDTH, WIDTH, dtype=dtype), numbers(WIDTH, WIDTH, dtype=dtype)
    if not bias:
        return into, None, out, None
    return into, numbers(3 * WIDTH, dtype=dtype), out, numbers(WIDTH, dtype=dtype)


def by_the_formula(x: Any, y: Any, parameters: tuple[Any, ...], mask: Any = 0) -> tuple[Any, Any]:
    """One sequence after the other, one head after the other, in float64."""
    wide: list[Any] = [None if each is None else each.astype("f8") for each in parameters]
    into, in_bias, out, out_bias = wide
    size = WIDTH // HEADS
    outputs, all_weights = [], []
    for b in range(len(x)):
        sides = []
        for i, side in enumerate((x[b], y[b], y[b])):
            projected = side.astype("f8") @ into[i * WIDTH : (i + 1) * WIDTH].T
            sides.append(projected if in_bias is None else projected + in_bias[i * WIDTH :][:WIDTH])
        heads = []
        for h in range(HEADS):
            q, k, v = (side[:, h * size : (h + 1) * size] for side in sides)
            scores = q @ k.T / np.sqrt(size) + (mask[b, h] if np.ndim(mask) == 4 else mask)
            with np.errstate(invalid="ignore"):
                powers = np.exp(scores - scores.max(-1, keepdims=True))
            powers = np.nan_to_num(powers)
            total = powers.sum(-1, keepdims=True)
            share = powers / np.where(total == 0, 1, total)
            all_weights.append(share)
            heads.append(share @ v)
        output = np.concatenate(heads, -1) @ out.T
        outputs.append(output if out_bias is None else output + out_bias)
    shape = (len(x), HEADS, x.shape[1], y.shape[1])
    return np.stack(outputs), np.stack(all_weights).reshape(shape)


def both_paths(x: Any, *parameters: Any, **options: Any) -> list[Any]:
    found = []
    for enabled in (True, False):
        with store.applied({FAST: enabled}):
            output, none = mlbackends.multi_head_attention(
                x, x, x, HEADS, *parameters, need_weights=False, **options
            )
        assert none is None
        found.append(output)
    return found


@pytest.mark.parametrize("bias", [True, False])
def test_self_attention_is_the_formula_on_both_paths(bias: bool) -> None:
    x, parameters = numbers(BATCH, LENGTH, WIDTH), weights(bias=bias)
    expected, shares = by_the_formula(x, x, parameters)
    for output in both_paths(x, *parameters):
        assert np.allclose(output, expected, atol=1e-5)
    output, averaged = mlbackends.multi_head_attention(x, x, x, HEADS, *parameters)
    assert np.allclose(output, expected, atol=1e-5)
    assert np.allclose(averaged, shares.mean(1), atol=1e-6)


def test_attention_to_something_else_is_the_formula() -> None:
    x, y, parameters = numbers(BATCH, LENGTH, WIDTH), numbers(BATCH, 7, WIDTH, seed=1), weights()
    expected, shares = by_the_formula(x, y, parameters)
    output, each = mlbackends.multi_head_attention(
        x, y, y, HEADS, *parameters, average_attn_weights=False
    )
    assert np.allclose(output, expected, atol=1e-5)
    assert np.allclose(each, shares, atol=1e-6)


PADDING = np.array([[False] * LENGTH, [False, True, False, True, True], [True] * LENGTH])
HIDDEN = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
ADDED = np.where(HIDDEN, -np.inf, 0.5).astype("f4")
PER_HEAD = numbers(BATCH * HEADS, LENGTH, LENGTH, seed=5)


def added(hidden: Any) -> Any:
    return np.where(hidden, -np.inf, 0.0)


@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({"key_padding_mask": PADDING}, added(PADDING)[:, None, None]),
        ({"key_padding_mask": added(PADDING).astype("f4")}, added(PADDING)[:, None, None]),
        ({"attn_mask": HIDDEN}, added(HIDDEN)[None, None]),
        ({"attn_mask": ADDED}, ADDED[None, None]),
        ({"attn_mask": PER_HEAD}, PER_HEAD.reshape(BATCH, HEADS, LENGTH, LENGTH)),
        ({"attn_mask": HIDDEN, "key_padding_mask": PADDING}, added(HIDDEN | PADDING[:, None])[:, None]),
        ({"attn_mask": ADDED, "key_padding_mask": PADDING}, (ADDED + added(PADDING)[:, None])[:, None]),
        ({"is_causal": True}, added(HIDDEN)[None, None]),
        ({"is_causal": True, "attn_mask": HIDDEN}, added(HIDDEN)[None, None]),
        ({"is_causal": True, "key_padding_mask": PADDING}, added(HIDDEN | PADDING[:, None])[:, None]),
        ({"is_causal": True, "attn_mask": PER_HEAD},
         PER_HEAD.reshape(BATCH, HEADS, LENGTH, LENGTH) + added(HIDDEN)),
    ],
)  # fmt: skip
def test_masks_are_the_same_on_both_paths(options: dict[str, Any], mask: Any) -> None:
    x, parameters = numbers(BATCH, LENGTH, WIDTH), weights()
    full = np.broadcast_to(mask, (BATCH, HEADS, LENGTH, LENGTH))
    expected, shares = by_the_formula(x, x, parameters, full)
    for output in both_paths(x, *parameters, **options):
        assert np.allclose(output, expected, atol=1e-5)
    output, each = mlbackends.multi_head_attention(
        x, x, x, HEADS, *parameters, average_attn_weights=False, **options
    )
    assert np.allclose(output, expected, atol=1e-5)
    assert np.allclose(each, shares, atol=1e-6)


def test_what_sees_no_key_is_the_bias_alone_and_has_no_weights() -> None:
    x, parameters = numbers(1, LENGTH, WIDTH), weights()
    nothing = np.ones((1, LENGTH), bool)
    for output in both_paths(x, *parameters, key_padding_mask=nothing):
        assert np.allclose(output, parameters[3])
    _, share = mlbackends.multi_head_attention(
        x, x, x, HEADS, *parameters, key_padding_mask=nothing
    )
    assert not share.any()


def test_weights_whose_scores_all_overflow_are_nan_and_hidden_ones_0() -> None:
    scores = np.full((1, 1, 2, 3), -np.inf, "float32")
    hidden = np.array([[False] * 3, [True, False, False]])

    with np.errstate(invalid="ignore"):
        assert np.isnan(_softmax(scores, None)).all()
        for mask in (hidden, np.where(hidden, np.float32(0), -np.inf)):
            weights = _softmax(scores, mask)[0, 0]
            assert not weights[0].any() and np.isnan(weights[1]).all()


def test_one_sequence_needs_no_batch() -> None:
    x, parameters = numbers(LENGTH, WIDTH), weights()
    output, share = mlbackends.multi_head_attention(x, x, x, HEADS, *parameters)
    batched, shares = mlbackends.multi_head_attention(x[None], x[None], x[None], HEADS, *parameters)
    assert np.allclose(output, batched[0])
    assert np.allclose(share, shares[0])
    for each in both_paths(x, *parameters, key_padding_mask=PADDING[1]):
        assert each.shape == x.shape


@pytest.mark.parametrize(("enabled", "need", "other", "asked"), [
    (True, False, False, 1), (False, False, False, 0), (True, True, False, 0), (True, False, True, 0),
])  # fmt: skip
def test_the_fast_path_is_taken_where_it_may_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, enabled: bool, need: bool, other: bool, asked: int
) -> None:
    calls: list[dict[str, Any]] = []
    real = mlbackends.scaled_dot_product_attention

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(options)
        return real(*arguments, **options)

    operation = "mlbackends_kernels.operations.multi_head_attention"
    monkeypatch.setattr(f"{operation}.scaled_dot_product_attention", counted)
    x, parameters = numbers(BATCH, LENGTH, WIDTH), weights()
    key = x.copy() if other else x
    with store.applied({FAST: enabled}):
        mlbackends.multi_head_attention(x, key, key, HEADS, *parameters, need_weights=need)
    assert len(calls) == asked


@pytest.mark.parametrize(("dtype", "tolerance"), [("f2", 2e-2), ("f4", 1e-5), ("f8", 1e-12)])
def test_every_type_comes_back_as_it_went(dtype: str, tolerance: float) -> None:
    x, parameters = numbers(BATCH, LENGTH, WIDTH, dtype=dtype), weights(dtype)
    expected, _ = by_the_formula(x, x, parameters)
    output, share = mlbackends.multi_head_attention(x, x, x, HEADS, *parameters)
    assert output.dtype == share.dtype == x.dtype
    for each in (*both_paths(x, *parameters), output):
        assert each.dtype == x.dtype
        assert np.abs(each - expected).max() < tolerance * np.abs(expected).max()


def test_the_projections_obey_the_precision() -> None:
    x, parameters = numbers(BATCH, LENGTH, WIDTH), weights()
    exact = both_paths(x, *parameters)
    with store.applied({"mkldnn.matmul.fp32_precision": "bf16"}):
        rounded = both_paths(x, *parameters)
    for one, other in zip(exact, rounded, strict=True):
        worst = np.abs(one - other).max()
        assert 1e-4 < worst < 0.5


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"num_heads": 3}, "8 features of query cannot be shared among 3 heads"),
        ({"num_heads": 0}, "among 0 heads"),
        ({"query": numbers(LENGTH, WIDTH)}, "need 2 or 3 dimensions, all alike, not 2, 3, 3"),
        ({"key": numbers(BATCH, 4, WIDTH)}, "key and value need shape (3, S, 8)"),
        ({"query": numbers(2, LENGTH, WIDTH)}, "key and value need shape (2, S, 8)"),
        ({"in_proj_weight": numbers(WIDTH, WIDTH)}, "in_proj_weight needs shape (24, 8), not (8, 8)"),
        ({"in_proj_bias": numbers(WIDTH)}, "in_proj_bias needs shape (24,)"),
        ({"out_proj_weight": numbers(4, WIDTH)}, "out_proj_weight needs shape (8, 8)"),
        ({"out_proj_bias": numbers(4)}, "out_proj_bias needs shape (8,)"),
        ({"key_padding_mask": PADDING[:2]}, "key_padding_mask needs shape (3, 5), not (2, 5)"),
        ({"attn_mask": HIDDEN[:2]}, "attn_mask needs shape (5, 5) or (6, 5, 5), not (2, 5)"),
        ({"attn_mask": HIDDEN.astype("i8")}, "a mask holds booleans or floating-point numbers"),
        ({"in_proj_weight": numbers(24, 8, dtype="f8")}, "in_proj_weight is float64, and query is float32"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_named(change: dict[str, Any], fragment: str) -> None:
    x, (into, in_bias, out, out_bias) = numbers(BATCH, LENGTH, WIDTH), weights()
    given: dict[str, Any] = {
        "query": x, "key": x, "value": x, "num_heads": HEADS, "in_proj_weight": into,
        "in_proj_bias": in_bias, "out_proj_weight": out, "out_proj_bias": out_bias, **change,
    }  # fmt: skip
    with pytest.raises(RuntimeError) as caught:
        mlbackends.multi_head_attention(**given)
    assert fragment in str(caught.value)


def test_whole_numbers_are_refused() -> None:
    x = np.ones((1, 2, WIDTH), "i8")
    into, out = np.ones((24, 8), "i8"), np.ones((8, 8), "i8")
    with pytest.raises(RuntimeError, match="floating-point numbers, not int64"):
        mlbackends.multi_head_attention(x, x, x, HEADS, into, None, out, None)


def test_an_array_on_a_device_is_refused_by_name(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
x, w = on_device(np.ones((1, 2, 8), "f4")), np.ones((24, 8), "f4")
tell(error_of(lambda: mlbackends.multi_head_attention(x, x, x, 2, w, None, w[:8], None)))
"""
    )
    assert told.values == [
        [
            "RuntimeError",
            "query lies on a CUDA device; multi_head_attention() takes arrays in memory",
        ],
    ]
