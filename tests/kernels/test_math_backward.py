"""The plain formula's gradients against differences of its results, and what they are sums of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

from mlbackends.base import registry
from mlbackends.base.errors import NoBackend
from mlbackends.model.problem import AttentionProblem, TensorSpec

if TYPE_CHECKING:
    from mlbackends.sdpa.backend import Gradients

backend = registry.load("mlbackends_kernels", "math").Math()


def asked(tensors: tuple[Any, ...], **more: Any) -> AttentionProblem:
    """Return the problem of query, key, value and mask, all of which require gradients."""
    specs: list[Any] = [
        None if tensor is None else TensorSpec(tensor.shape, tensor.dtype.name, requires_grad=True)
        for tensor in tensors
    ]
    if specs[3] is not None and specs[3].dtype == "bool":
        specs[3] = replace(specs[3], requires_grad=False)
    names = ("query", "key", "value", "mask")
    return AttentionProblem(**dict(zip(names, specs, strict=True)), **more)


def gradients(grad_out: Any, tensors: tuple[Any, ...], **more: Any) -> Gradients:
    problem = asked(tensors, **more)
    query, key, value, mask = tensors
    out, logsumexp = backend.run_with_logsumexp(problem, *tensors)
    found: Gradients = backend.run_backward(problem, grad_out, query, key, value, mask, out, logsumexp)
    return found


def drawn(*shapes: tuple[int, ...], dtype: str = "float64") -> tuple[Any, ...]:
    random = np.random.default_rng(1)
    return tuple(random.standard_normal(shape).astype(dtype) for shape in shapes)


def closed(grad_out: Any, tensors: tuple[Any, ...], scale: float, inner: str) -> tuple[Any, ...]:
    """Return the gradients in float64, of scores that are rounded once, where the mask is added."""
    query, key, value = (tensor.astype("f8") for tensor in tensors[:3])
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
    return tuple((np.round(tensor.clip(-2, 2) * 8) / 8).astype(element) for tensor in drawn(*shapes))


@pytest.mark.parametrize("fill", ["min", -1e9, -1e4, -np.inf])
@pytest.mark.parametrize(("dtype", "near"), [("float64", 1e-12), ("float32", 2e-6), ("bfloat16", 4e-3)])
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
        wide = (*(tensor.astype("f8") for tensor in tensors), None)
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


def test_scores_far_apart_neither_overflow_nor_vanish_together() -> None:
    query, key, value = (200 * tensor for tensor in drawn((2, 4), (6, 4), (6, 4), dtype="float32"))

    found = gradients(np.ones((2, 4), "float32"), (query, key, value, None), scale=3.0)

    assert all(np.isfinite(gradient).all() for gradient in found[:3])
    assert np.allclose(found.value.sum(0), 2)


def test_the_inputs_stay_as_they_are() -> None:
    tensors = (*drawn((2, 3, 4), (2, 5, 4), (2, 5, 4), (3, 5)), drawn((2, 3, 4))[0])
    before = [tensor.copy() for tensor in tensors]

    gradients(tensors[4], tensors[:4])

    assert all(np.array_equal(x, y) for x, y in zip(tensors, before, strict=True))


def test_what_it_cannot_do_it_refuses_backwards_too() -> None:
    spec = TensorSpec((2, 2), "int32", requires_grad=True)
    problem = AttentionProblem(query=spec, key=spec, value=spec)
    with pytest.raises(NoBackend, match="the dtype is int32"):
        backend.run_backward(problem, *[None] * 7)
