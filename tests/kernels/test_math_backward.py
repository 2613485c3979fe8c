"""The plain formula's gradients against differences of its results, and what they are sums of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mlbackends.base import registry
from mlbackends.base.errors import NoBackend
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends_kernels.attention_cpu import formula, rows

if TYPE_CHECKING:
    from mlbackends.sdpa.backend import Gradients

backend = registry.load("mlbackends_kernels", "math").Math()
sizes = st.integers(1, 4)


def asked(tensors: tuple[Any, ...], **more: Any) -> AttentionProblem:
    """Return the problem of query, key, value and mask, all of which require gradients."""
    specs: list[Any] = [
        None if each is None else TensorSpec(each.shape, each.dtype.name, requires_grad=True)
        for each in tensors
    ]
    if specs[3] is not None and specs[3].dtype == "bool":
        specs[3] = replace(specs[3], requires_grad=False)
    names = ("query", "key", "value", "mask")
    return AttentionProblem(**dict(zip(names, specs, strict=True)), **more)


def gradients(grad_out: Any, tensors: tuple[Any, ...], **more: Any) -> Gradients:
    problem = asked(tensors, **more)
    query, key, value, mask = tensors
    out, logsumexp = backend.run_with_logsumexp(problem, *tensors)
    found: Gradients = backend.run_backward(
        problem, grad_out, query, key, value, mask, out, logsumexp
    )
    return found


@st.composite
def calls(draw: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    front = tuple(draw(st.lists(sizes, max_size=3)))
    grouped = bool(front) and draw(st.booleans())
    key_front, value_front = front, front
    if grouped:
        front = (*front[:-1], front[-1] * draw(st.integers(1, 3)))
    else:
        key_front, value_front = (
            tuple(draw(st.sampled_from((1, size))) for size in front)[draw(st.integers(0, 1)) :]
            for _ in range(2)
        )
    length, keys, width, value_width = (draw(sizes) for _ in range(4))
    shapes = ((*front, length, width), (*key_front, keys, width), (*value_front, keys, value_width))
    tensors: list[Any] = [random.standard_normal(shape) for shape in shapes]
    more: dict[str, Any] = {
        "enable_gqa": grouped,
        "scale": draw(st.sampled_from((None, 0.0, 2.0, -1.0))),
        "dropout": draw(st.sampled_from((0.0, 0.0, 0.4, 1.0))),
        "seed": draw(st.integers(0, 2**64 - 1)),
    }
    mask: Any = None
    kind = draw(st.sampled_from(("none", "causal", "lower right", "bool", "float")))
    if kind in ("causal", "lower right"):
        more |= {"is_causal": True, "lower_right": kind == "lower right"}
    elif kind != "none":
        shape = [draw(st.sampled_from((1, size))) for size in (*front, length, keys)]
        mask = random.standard_normal(shape[draw(st.integers(0, len(front))) :])
        mask = mask > 0 if kind == "bool" else mask
    return (*tensors, mask), more


@given(calls())
@settings(max_examples=150, deadline=None)
def test_they_are_the_slopes_of_the_results(call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    tensors, more = call
    random = np.random.default_rng(5)
    grad_out = random.standard_normal(asked(tensors, **more).output_shape)

    found = gradients(grad_out, tensors, **more)

    for place, gradient in enumerate(found[:4]):
        if tensors[place] is None or tensors[place].dtype == bool:
            assert gradient is None
            continue
        assert (gradient.shape, gradient.dtype) == (tensors[place].shape, np.float64)
        along = random.standard_normal(gradient.shape) * 1e-5
        there, back = (
            backend.run(
                asked(tensors, **more),
                *(each if n != place else each + sign * along for n, each in enumerate(tensors)),
            )
            for sign in (1, -1)
        )
        slope = (grad_out * (there - back)).sum() / 2
        assert (gradient * along).sum() == pytest.approx(slope, rel=1e-5, abs=1e-9)


def drawn(*shapes: tuple[int, ...], dtype: str = "float64") -> tuple[Any, ...]:
    random = np.random.default_rng(1)
    return tuple(random.standard_normal(shape).astype(dtype) for shape in shapes)


@pytest.mark.parametrize(
    ("dtype", "mask_dtype", "near"),
    [
        *(("float32", mask, 1e-5) for mask in ("float32", "bool", "")),
        *(("float16", mask, 4e-3) for mask in ("float16", "float32", "bool", "")),
    ],
)
def test_narrower_elements_give_gradients_of_their_own_type(
    dtype: str, mask_dtype: str, near: float
) -> None:
    tensors = drawn((2, 3, 5, 8), (2, 3, 6, 8), (2, 3, 6, 4), dtype=dtype)
    mask = drawn((3, 1, 6))[0].astype(mask_dtype) if mask_dtype else None
    grad_out = drawn((2, 3, 5, 4), dtype=dtype)[0]

    found = gradients(grad_out, (*tensors, mask))

    wide = [
        each if each is None or each.dtype == bool else each.astype("f8")
        for each in (*tensors, mask)
    ]
    wanted = gradients(grad_out.astype("f8"), tuple(wide))
    for mine, right, tensor in zip(found[:4], wanted[:4], (*tensors, mask), strict=True):
        assert (mine is None) == (right is None)
        if mine is not None:
            assert mine.dtype == tensor.dtype
            assert np.allclose(mine, right, rtol=near, atol=near * np.abs(right).max())


def test_bfloat16_gives_bfloat16() -> None:
    element = pytest.importorskip("ml_dtypes").bfloat16
    tensors = tuple(each.astype(element) for each in drawn((2, 5, 8), (2, 6, 8), (2, 6, 8)))
    grad_out = drawn((2, 5, 8))[0].astype(element)

    found = gradients(grad_out, (*tensors, None))

    wide = tuple(each.astype("f8") for each in tensors)
    wanted = gradients(grad_out.astype("f8"), (*wide, None))
    for mine, right in zip(found[:3], wanted[:3], strict=True):
        assert mine.dtype == element
        assert np.allclose(mine.astype("f8"), right, atol=0.03 * np.abs(right).max())


def test_rows_in_turn_give_what_all_rows_give(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = drawn((2, 3, 9, 8), (2, 3, 9, 8), (2, 3, 9, 8))
    grad_out = drawn((2, 3, 9, 8))[0]
    calls = [
        (mask, more)
        for mask in (None, *drawn((9, 9), (3, 1, 9), (2, 1, 9, 1)))
        for more in ({}, {"dropout": 0.3, "seed": 5})
    ]
    wanted = [gradients(grad_out, (*tensors, mask), **more) for mask, more in calls]

    monkeypatch.setattr(rows, "SCORES_AT_ONCE", 130)

    for (mask, more), each in zip(calls, wanted, strict=True):
        found = gradients(grad_out, (*tensors, mask), **more)
        for mine, right in zip(found[:4], each[:4], strict=True):
            assert (mine is None and right is None) or np.allclose(mine, right, atol=1e-13)


def test_what_is_shared_gets_the_sum_of_what_each_would_get() -> None:
    query, key, value = drawn((2, 6, 3, 4), (1, 2, 5, 4), (2, 3, 5, 4))
    grad_out = drawn((2, 6, 3, 4))[0]

    found = gradients(grad_out, (query, key, value, None), enable_gqa=True)

    keys, values = np.repeat(np.repeat(key, 2, 0), 3, 1), np.repeat(value, 2, 1)
    apart = gradients(grad_out, (query, keys, values, None))
    assert np.allclose(found.query, apart.query)
    assert np.allclose(found.key, apart.key.reshape(2, 2, 3, 5, 4).sum((0, 2))[None])
    assert np.allclose(found.value, apart.value.reshape(2, 3, 2, 5, 4).sum(2))


def test_a_row_that_sees_nothing_gives_nothing() -> None:
    tensors = drawn((3, 4), (5, 4), (5, 4))
    seen = np.ones((3, 5), bool)
    seen[1] = False
    grad_out = drawn((3, 4))[0]
    others = gradients(grad_out[::2], (tensors[0][::2], *tensors[1:], None))

    for mask in (seen, np.where(seen, 0, -np.inf)):
        found = gradients(grad_out, (*tensors, mask))
        assert not found.query[1].any()
        assert np.allclose(found.query[::2], others.query)
        assert np.allclose(found.key, others.key) and np.allclose(found.value, others.value)
        assert found.mask is None or not found.mask[1].any()
    nobody = gradients(grad_out, (*tensors, np.zeros((3, 5), bool)))
    assert not any(each.any() for each in nobody[:3])


def test_parts_of_the_keys_add_up_given_the_whole_s_result() -> None:
    query, key, value = drawn((2, 3, 4), (2, 7, 4), (2, 7, 5))
    grad_out = drawn((2, 3, 5))[0]
    whole = asked((query, key, value, None))
    out, logsumexp = backend.run_with_logsumexp(whole, query, key, value)
    wanted = backend.run_backward(whole, grad_out, query, key, value, None, out, logsumexp)

    parts = []
    for few in (slice(0, 3), slice(3, 7)):
        some = (query, key[:, few], value[:, few])
        parts.append(
            backend.run_backward(asked((*some, None)), grad_out, *some, None, out, logsumexp)
        )

    assert np.allclose(parts[0].query + parts[1].query, wanted.query)
    for mine, right in ((1, wanted.key), (2, wanted.value)):
        assert np.allclose(np.concatenate([part[mine] for part in parts], 1), right)


def closed(grad_out: Any, tensors: tuple[Any, ...], scale: float, inner: str) -> tuple[Any, ...]:
    """Return the gradients in float64, of scores that are rounded once, where the mask is added."""
    query, key, value = (each.astype("f8") for each in tensors[:3])
    mask = 0 if tensors[3] is None else tensors[3].astype(inner)
    scores = ((query @ key.swapaxes(-1, -2) * scale).astype(inner) + mask).astype("f8")
    highest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(highest == -np.inf, 0, highest))
    weights = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    for_weights = grad_out.astype("f8") @ value.swapaxes(-1, -2)
    along = (weights * for_weights).sum(-1, keepdims=True)
    for_scores = weights * (for_weights - along)
    return (
        for_scores @ key * scale,
        for_scores.swapaxes(-1, -2) @ query * scale,
        weights.swapaxes(-1, -2) @ grad_out.astype("f8"),
        None if tensors[3] is None else for_scores.sum(0),
    )


def eighths(element: Any) -> tuple[Any, ...]:
    """Return query, key, value and a gradient whose products every type holds as they are."""
    shapes = ((2, 40, 16), (2, 40, 16), (2, 40, 8), (2, 40, 8))
    return tuple((np.round(each.clip(-2, 2) * 8) / 8).astype(element) for each in drawn(*shapes))


@pytest.mark.parametrize("fill", ["min", -1e9, -1e4, -np.inf])
@pytest.mark.parametrize(
    ("dtype", "near"), [("float64", 1e-12), ("float32", 2e-6), ("bfloat16", 4e-3)]
)
def test_rows_filled_with_a_large_number_count_once(dtype: str, near: float, fill: Any) -> None:
    element = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    inner = "float64" if dtype == "float64" else "float32"
    *tensors, grad_out = eighths(element)
    mask = np.zeros((40, 40))
    lowest = -3.3895313892515355e38 if dtype == "bfloat16" else np.finfo(inner).min
    mask[:, 30:] = mask[3] = lowest if fill == "min" else fill
    whole = (*tensors, mask.astype(element))

    found = gradients(grad_out, whole, scale=0.25)

    for mine, right in zip(found[:4], closed(grad_out, whole, 0.25, inner), strict=True):
        assert np.allclose(mine.astype("f8"), right, rtol=near, atol=near * np.abs(right).max())


@pytest.mark.parametrize(
    ("dtype", "near", "dropout"),
    [("float64", 1e-12, 0.0), ("float32", 2e-6, 0.0), ("float32", 2e-6, 0.3)],
)
def test_a_large_scale_costs_no_more_than_the_rounding_of_scores(
    dtype: str, near: float, dropout: float
) -> None:
    *tensors, grad_out = eighths(dtype)
    tensors[0][..., 0] = 0  # so that keys that differ in their first number alone share a weight
    tensors[1][:, ::2, 1:] = tensors[1][:, 1::2, 1:]
    scale = 2025.0

    found = gradients(grad_out, (*tensors, None), scale=scale, dropout=dropout, seed=3)

    if dropout:
        wide = (*(each.astype("f8") for each in tensors), None)
        wanted: Any = gradients(grad_out.astype("f8"), wide, scale=scale, dropout=dropout, seed=3)
    else:
        wanted = closed(grad_out, (*tensors, None), scale, dtype)
    for mine, right in zip(found[:3], wanted[:3], strict=True):
        assert np.abs(right).max() > 1
        assert np.allclose(mine, right, rtol=near, atol=near * np.abs(right).max())


def test_parts_add_up_where_a_part_sees_masked_keys_only() -> None:
    query, key, value = drawn((2, 3, 4), (2, 7, 4), (2, 7, 5), dtype="float32")
    grad_out = drawn((2, 3, 5), dtype="float32")[0]
    mask = np.zeros((3, 7), "float32")
    mask[0, :3], mask[1, 3:], mask[2, :3] = np.finfo("f4").min, -1e9, -np.inf
    mask[2, 3:] = -2e4
    whole = asked((query, key, value, mask))
    out, logsumexp = backend.run_with_logsumexp(whole, query, key, value, mask)
    wanted = backend.run_backward(whole, grad_out, query, key, value, mask, out, logsumexp)

    parts = []
    for few in (slice(0, 3), slice(3, 7)):
        some = (query, key[:, few], value[:, few], mask[:, few])
        parts.append(backend.run_backward(asked(some), grad_out, *some, out, logsumexp))

    assert np.allclose(parts[0].query + parts[1].query, wanted.query, atol=1e-6)
    for place, axis in ((1, 1), (2, 1), (3, 1)):
        joined = np.concatenate([part[place] for part in parts], axis)
        assert np.allclose(joined, wanted[place], atol=1e-6)


@pytest.mark.parametrize("mask", [None, np.array([[True, False, True, True]] * 3)])
def test_the_logsumexp_is_that_of_the_scores(mask: Any) -> None:
    query, key, value = drawn((2, 3, 4), (2, 4, 4), (2, 4, 5), dtype="float32")
    problem = asked((query, key, value, mask), scale=0.7)

    logsumexp = backend.run_with_logsumexp(problem, query, key, value, mask)[1]

    scores = np.exp(query.astype("f8") @ key.swapaxes(1, 2) * 0.7) * (1 if mask is None else mask)
    assert logsumexp.dtype == np.float32
    assert np.allclose(logsumexp, np.log(scores.sum(-1)), atol=1e-6)


def test_scores_far_apart_neither_overflow_nor_vanish_together() -> None:
    query, key, value = (200 * each for each in drawn((2, 4), (6, 4), (6, 4), dtype="float32"))

    found = gradients(np.ones((2, 4), "float32"), (query, key, value, None), scale=3.0)

    assert all(np.isfinite(each).all() for each in found[:3])
    assert np.allclose(found.value.sum(0), 2)


def test_float64_inside_needs_nothing_that_was_rounded() -> None:
    tensors = drawn((2, 5, 8), (2, 6, 8), (2, 6, 8), dtype="float16")
    grad_out = drawn((2, 5, 8), dtype="float16")[0]
    problem = asked((*tensors, None), inner_dtype="float64", dropout=0.3, seed=4)

    query, key, value = tensors
    exact = formula.gradients(problem, grad_out, query, key, value, None, None, None)

    wide = tuple(each.astype("f8") for each in tensors)
    wanted = gradients(grad_out.astype("f8"), (*wide, None), dropout=0.3, seed=4)
    for mine, right in zip(exact[:3], wanted[:3], strict=True):
        assert mine.dtype == np.float64
        assert np.allclose(mine, right, atol=1e-13)


def test_rounding_between_the_steps_is_allowed_and_seen() -> None:
    tensors = drawn((2, 5, 8), (2, 6, 8), (2, 6, 8), dtype="float16")
    grad_out = drawn((2, 5, 8), dtype="float16")[0]

    plain = gradients(grad_out, (*tensors, None))
    rounded = gradients(grad_out, (*tensors, None), inner_dtype="float16")

    for mine, right in zip(rounded[:3], plain[:3], strict=True):
        assert np.allclose(mine, right, atol=0.02)
    assert not np.array_equal(rounded.query, plain.query)


def test_the_inputs_stay_as_they_are() -> None:
    tensors = (*drawn((2, 3, 4), (2, 5, 4), (2, 5, 4), (3, 5)), drawn((2, 3, 4))[0])
    before = [each.copy() for each in tensors]

    gradients(tensors[4], tensors[:4])

    assert all(np.array_equal(x, y) for x, y in zip(tensors, before, strict=True))


def test_what_it_cannot_do_it_refuses_backwards_too() -> None:
    spec = TensorSpec((2, 2), "int32", requires_grad=True)
    problem = AttentionProblem(query=spec, key=spec, value=spec)
    with pytest.raises(NoBackend, match="the dtype is int32"):
        backend.run_backward(problem, *[None] * 7)


def test_a_smaller_dimension_gets_the_sum_of_its_repeats() -> None:
    array = np.arange(12.0).reshape(1, 4, 3)
    assert formula.summed(array, (2, 1)).tolist() == [[15.0], [51.0]]
