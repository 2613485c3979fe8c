"""Gradients of calls like an earlier one: the same to the bit as those of a call that is looked at."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlbackends
from mlbackends.base.errors import NoBackend
from mlbackends.sdpa import call_cache, dispatch
from mlbackends.switches import store
from mlbackends_kernels.attention_cpu import library, prepared_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import FirstArguments

    from mlbackends.model.problem import AttentionProblem

attend: Any = mlbackends.scaled_dot_product_attention
differentiate: Any = mlbackends.scaled_dot_product_attention_backward
RANDOM = np.random.default_rng(8)


def is_built() -> bool:
    try:
        return prepared_calls.native_module() is not None
    except library.NotBuilt:
        return False


pytestmark = pytest.mark.skipif(not is_built(), reason="the module of prepared calls was not built")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    gradients(*call())  # backends and switches are there
    call_cache._kept.clear()
    yield
    call_cache._kept.clear()


@pytest.fixture
def looked_at(first_arguments: FirstArguments) -> list[AttentionProblem]:
    """Return the problems whose gradients were decided anew, in a list that grows."""
    return first_arguments(dispatch, "chosen_backend", lambda problem: problem.wants_gradient)


def call(length: int = 4, keys: int = 6, dtype: str = "float32", width: int = 8) -> list[Any]:
    """Return a query, a key and a value."""
    shapes = (length, 8), (keys, 8), (keys, width)
    return [RANDOM.standard_normal((1, 2, *shape)).astype(dtype) for shape in shapes]


def given_gradient(out: Any) -> Any:
    return np.random.default_rng(3).standard_normal(out.shape).astype(out.dtype)


def gradients(*tensors: Any, grad_out: Any = None, **options: Any) -> Any:
    mask = options.pop("attn_mask", None)
    out, logsumexp = attend(*tensors, mask, return_logsumexp=True, **options)
    given = given_gradient(out) if grad_out is None else grad_out
    return differentiate(given, *tensors, out, logsumexp, attn_mask=mask, **options)


def anew(*tensors: Any, **options: Any) -> Any:
    """Compute them as if nothing like it had ever been asked."""
    store.changed()
    return gradients(*tensors, **options)


def same(seen: Any, wanted: Any) -> None:
    assert type(seen) is type(wanted)
    for one, other in zip(seen[:3], wanted[:3], strict=True):
        assert (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)
        assert one.tobytes() == other.tobytes()
    assert seen[3] is wanted[3] is None


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("mask", ["none", "causal", "corner", "bool", "number", "dropout"])
def test_from_the_third_call_of_a_kind_on_nothing_is_decided(
    dtype: str, mask: str, looked_at: list[AttentionProblem]
) -> None:
    def options(length: int, keys: int) -> dict[str, Any]:
        scores = np.random.default_rng(length).standard_normal((length, keys))
        known: dict[str, dict[str, Any]] = {
            "none": {},
            "causal": {"is_causal": True},
            "corner": {"attn_mask": mlbackends.causal_lower_right(length, keys)},
            "bool": {"attn_mask": scores > 0},
            "number": {"attn_mask": scores.astype(dtype)},
            "dropout": {"dropout_p": 0.4, "seed": length},
        }
        return known[mask]

    sizes = [(4, 6), (5, 9), (4, 6), (1, 3), (40, 70), (300, 200)]
    calls = [(call(*size, dtype), options(*size)) for size in sizes]
    found = [gradients(*tensors, **chosen) for tensors, chosen in calls]
    assert len(looked_at) == 2
    for (tensors, chosen), seen in zip(calls, found, strict=True):
        same(seen, anew(*tensors, **chosen))


def test_scores_so_large_that_logarithms_are_coarse_are_refined_too(
    looked_at: list[AttentionProblem],
) -> None:
    query, key, value = call()
    for factor in (1, 1, 30, 1000, 1):
        gradients(query * np.float32(factor), key, value)
    assert len(looked_at) == 2
    large = query * np.float32(1000), key, value
    same(gradients(*large), anew(*large))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_of_any_two_calls_the_second_is_the_same_as_if_it_were_alone(data: st.DataObject) -> None:
    """Layouts, groups, ranks and what is broadcast are the second one's own."""
    grouped = data.draw(st.booleans())
    inner = data.draw(st.sampled_from([8, 8, 3, 0]))

    def laid_out(shape: tuple[int, ...]) -> Any:
        array = RANDOM.standard_normal(shape).astype("float32")
        way = data.draw(st.sampled_from(["whole", "whole", "swapped", "gaps", "shared"]))
        if way == "swapped" and len(shape) > 2:
            return np.ascontiguousarray(array.swapaxes(-2, -3)).swapaxes(-2, -3)
        if way == "gaps":
            return array.repeat(2, axis=-2)[..., ::2, :]
        if way == "shared" and len(shape) > 2:
            return np.broadcast_to(array[..., :1, :, :], shape)
        return array

    def tensors() -> list[Any]:
        rank = data.draw(st.integers(2, 5))
        length, keys, batch, heads = (data.draw(st.integers(1, 4)) for _ in range(4))
        before = (2, batch, heads)[: rank - 2] if rank > 4 else (batch, heads)[4 - rank :]
        alone = data.draw(st.sampled_from([None, None, 0, len(before) - 1]))
        fewer = tuple(1 if place == alone else size for place, size in enumerate(before))
        width = data.draw(st.sampled_from([8, 5]))
        found = [(*before, length, inner), (*fewer, keys, inner), (*fewer, keys, width)]
        return [laid_out(shape) for shape in found]

    def outcome(compute: Any, *given: Any) -> Any:
        try:
            found = compute(*given, enable_gqa=grouped)
        except (RuntimeError, IndexError) as error:
            return type(error), str(error)
        return [(each.strides, each.tobytes()) for each in found[:3]]

    first, second = tensors(), tensors()
    for _ in range(3):
        outcome(gradients, *first)
    assert outcome(gradients, *second) == outcome(anew, *second)


def test_a_gradient_that_is_given_may_lie_anyhow(looked_at: list[AttentionProblem]) -> None:
    tensors = call()
    for _ in range(2):
        gradients(*tensors)
    one = np.broadcast_to(np.float32(1), (1, 2, 4, 8))
    across = np.ascontiguousarray(given_gradient(one).swapaxes(-1, -2)).swapaxes(-1, -2)
    found = [gradients(*tensors, grad_out=each) for each in (one, across)]

    assert len(looked_at) == 2
    for each, seen in zip((one, across), found, strict=True):
        same(seen, anew(*tensors, grad_out=each))


def test_what_is_switched_off_gives_no_gradients_prepared_either() -> None:
    query, key, value = call()
    out, logsumexp = attend(query, key, value, return_logsumexp=True)
    wanted = [differentiate(out, query, key, value, out, logsumexp) for _ in range(3)][-1]
    with mlbackends.sdpa_kernel([]), pytest.raises(NoBackend):
        differentiate(out, query, key, value, out, logsumexp)
    same(differentiate(out, query, key, value, out, logsumexp), wanted)


@pytest.mark.parametrize(
    ("place", "changed"),
    [
        (0, lambda each: each[:, :, :3]),
        (0, lambda each: each.astype("float64")),
        (4, lambda each: each[:, :1]),
        (4, lambda each: each[0]),
        (5, lambda each: each.astype("float64")),
        (5, lambda each: each[..., None]),
        (5, lambda each: each.tolist()),
        (2, lambda each: each[:, :, :5]),
    ],
)
def test_what_does_not_fit_is_refused_as_before(place: int, changed: Any) -> None:
    query, key, value = call()
    out, logsumexp = attend(query, key, value, return_logsumexp=True)
    right = [out, query, key, value, out, logsumexp]
    wrong = [changed(each) if n == place else each for n, each in enumerate(right)]

    def refusal() -> tuple[type, str]:
        with pytest.raises((RuntimeError, TypeError)) as caught:
            differentiate(*wrong)
        return caught.type, str(caught.value)

    wanted = refusal()
    for _ in range(3):
        differentiate(*right)
    assert refusal() == wanted


def test_dropout_without_a_seed_is_refused_as_before() -> None:
    query, key, value = call()
    options = {"dropout_p": 0.5}
    out, logsumexp = attend(query, key, value, return_logsumexp=True, seed=1, **options)
    for _ in range(3):
        differentiate(out, query, key, value, out, logsumexp, seed=1, **options)
    with pytest.raises(ValueError, match="seed"):
        differentiate(out, query, key, value, out, logsumexp, **options)


def test_the_gradient_of_a_mask_is_looked_for_each_time(
    looked_at: list[AttentionProblem],
) -> None:
    query, key, value = call()
    mask = RANDOM.standard_normal((4, 6)).astype("float32")
    out, logsumexp = attend(query, key, value, mask, return_logsumexp=True)
    tensors = out, query, key, value, out, logsumexp
    for _ in range(3):
        differentiate(*tensors, attn_mask=mask)
    found = [differentiate(*tensors, attn_mask=mask, attn_mask_gradient=True) for _ in range(3)]
    assert len(looked_at) == 5
    assert found[-1].mask.shape == mask.shape


def test_many_threads_use_one_prepared_call_at_once() -> None:
    inputs = [call(length, 7) for length in range(1, 7)]
    wanted = [anew(*each) for each in inputs]
    start = threading.Barrier(6)

    def work(number: int) -> bool:
        start.wait()
        for _ in range(30):
            same(gradients(*inputs[number]), wanted[number])
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))
