"""flash_cpu with what torch has no argument for, at every instruction set of this CPU, next to float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from cases import stored
from hypothesis import given, note, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mlbackends.base import registry
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends_kernels.attention_cpu import library
from mlbackends_kernels.attention_cpu.formula import attend as attend_plainly
from mlbackends_kernels.checking.exact import right

backend = registry.load("mlbackends_kernels", "flash_cpu").FlashCpu()
DTYPES = ("float16", "bfloat16", "float32", "float64")
try:
    LEVELS = library.usable_levels()
except library.NotBuilt:
    LEVELS = ()
pytestmark = pytest.mark.skipif(not LEVELS, reason="the library of attention was not built")


class Call(NamedTuple):
    """A problem with its arrays: query, key, value and mask, and the others by name."""

    problem: AttentionProblem
    tensors: tuple[Any, ...]
    more: dict[str, Any]


def call(dtype: str, *tensors: Any, mask_dtype: str = "", options: dict[str, Any], **more: Any) -> Call:
    """Return a call of arrays as `stored` gives them; slopes are float32, sinks of the query's type."""
    query, key, value, mask = tensors
    kinds = {"sinks": dtype, "alibi_slopes": "float32", "page_table": "int32"}
    specs: dict[str, Any] = {name: TensorSpec(array.shape, kinds[name]) for name, array in more.items()}
    if mask is not None:
        specs["mask"] = TensorSpec(mask.shape, mask_dtype)
    named = {"query": query, "key": key, "value": value}
    specs |= {name: TensorSpec(array.shape, dtype) for name, array in named.items()}
    return Call(AttentionProblem(**specs, **options, logsumexp=True), tensors, more)


@st.composite
def calls(draw: Any) -> Call:
    random = np.random.default_rng(draw(st.integers(0, 999)))
    dtype = draw(st.sampled_from(DTYPES))
    heads, group = draw(st.sampled_from([(1, 1), (4, 2), (3, 3), (8, 1)]))
    width, value_width = draw(st.sampled_from([(1, 3), (33, 40), (64, 64), (16, 8)]))
    length = draw(st.one_of(st.integers(1, 9), st.integers(1, 150)))
    keys = draw(st.one_of(st.integers(0, 9), st.integers(1, 400), st.just(1100)))
    batch, more = draw(st.integers(1, 2)), {}
    options: dict[str, Any] = {
        "window": draw(st.sampled_from([(-1, -1), (0, 0), (2, 1), (-1, 2), (70, -1), (1 << 40, 0)])),
        "softcap": draw(st.sampled_from([0.0, 0.7, 30.0])),
        "scale": draw(st.sampled_from([None, 0.5, -1.5, 0.0])),
        "dropout": draw(st.sampled_from([0.0, 0.0, 0.5])),
        "seed": 5,
        "is_causal": draw(st.booleans()),
        "enable_gqa": True,
    }
    if draw(st.booleans()):
        more["sinks"] = stored(random.standard_normal(heads), dtype)
    if draw(st.booleans()):
        more["alibi_slopes"] = random.random(heads).astype("f4")
    is_placed = options["is_causal"] or options["window"] != (-1, -1) or "alibi_slopes" in more
    options["lower_right"] = bool(is_placed and draw(st.booleans()))
    kind = draw(st.sampled_from(["dense", "packed", "pages", "packed rows and pages"]))
    mask, mask_dtype = None, draw(st.sampled_from(["", "bool", dtype]))
    if mask_dtype and kind == "dense" and not options["is_causal"]:
        shown, numbers = random.random((length, keys)) < 0.7, random.standard_normal((length, keys))
        mask = shown if mask_dtype == "bool" else stored(np.where(shown, numbers, -np.inf), dtype)
    front = batch, group
    if kind != "dense":
        options["key_lengths"] = (keys, *(draw(st.integers(0, keys)) for _ in range(draw(st.integers(0, 3)))))
        batch = len(options["key_lengths"])
    if "packed" in kind:
        options["query_lengths"] = (length, *(draw(st.integers(0, length)) for _ in range(batch - 1)))
        batch, length = 1, sum(options["query_lengths"])
        front, keys = (1, group), sum(options["key_lengths"])
    if "pages" in kind:
        size = draw(st.sampled_from([1, 3, 16, 100]))
        most = max(1, -(-keys // size))
        count = most * len(options["key_lengths"])
        table = random.permutation(count + 1)[:count].reshape(-1, most).astype("int32")
        more["page_table"], options["dropout"] = table, 0.0
        front, keys = (count + 1, group), size
    shapes = (batch, heads, length, width), (*front, keys, width), (*front, keys, value_width)
    arrays = [stored(random.standard_normal(shape), dtype) for shape in shapes]
    return call(dtype, *arrays, mask, mask_dtype=mask_dtype, options=options, **more)


def require_right(asked: Call) -> None:
    """Compare each instruction set with float64, within the limits of `sdpa check`."""
    problem, tensors, more = asked
    assert backend.unsupported_reasons(problem) == ()
    inputs = dict(zip(("query", "key", "value", "mask"), tensors, strict=True)) | more
    exact = right(problem, inputs)[""]
    _, sums = attend_plainly(replace(problem, inner_dtype="float64"), *tensors, **more)
    limit = 1e-12 if problem.dtype == "float64" else 1e-5
    for name in LEVELS:
        note(f"at {name}")
        with library.lowered(name):
            out, logsumexp = backend.run_with_logsumexp(problem, *tensors, **more)
            alone = backend.run(problem, *tensors, **more)
        assert np.array_equal(out, alone)
        judged = exact.judge(out, backend.tolerance[problem.dtype])
        assert not judged["misplaced"]
        assert judged["largest_absolute"] <= judged["largest_allowed"]
        assert (np.abs(logsumexp - sums) <= limit * np.maximum(1, np.abs(sums))).all()


@given(calls())
@settings(max_examples=150)
def test_every_field_is_what_the_formula_says(asked: Call) -> None:
    require_right(asked)


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("length", [2, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sink_of_any_size_has_its_weight(name: str, length: int, dtype: str) -> None:
    random = np.random.default_rng(0)
    query, key, value = (random.standard_normal((1, 4, rows, 8)).astype(dtype) for rows in (length, 50, 50))
    sinks = np.array([-np.inf, -1e4, 1e4, np.nan], dtype)
    asked = call(dtype, query, key, value, None, options={}, sinks=sinks)
    plain = call(dtype, query, key, value, None, options={})

    with library.lowered(name):
        out, sums = backend.run_with_logsumexp(asked.problem, *asked.tensors, **asked.more)
        whole, whole_sums = backend.run_with_logsumexp(plain.problem, *plain.tensors)

    assert np.array_equal(out[:, :2], whole[:, :2]) and np.array_equal(sums[:, :2], whole_sums[:, :2])
    assert not out[:, 2].any() and (sums[:, 2] == 1e4).all()
    assert np.isnan(out[:, 3]).all() and np.isnan(sums[:, 3]).all()


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("length", [1, 40])
def test_a_cap_holds_for_numbers_of_any_size(name: str, length: int) -> None:
    """Scores near 0, which a difference of exponentials would lose, and infinite ones."""
    query, key = np.ones((1, 1, length, 1), "f4"), np.array([1e-6, 3e-6, np.inf, -np.inf, 1e30], "f4")
    value = np.eye(5, dtype="f4")[None, None]
    asked = call(
        "float32", query, key.reshape(1, 1, 5, 1), value, None, options={"softcap": 2.0, "scale": 1.0}
    )

    with library.lowered(name):
        out, sums = backend.run_with_logsumexp(asked.problem, *asked.tensors)

    scores = 2 * np.tanh(key.astype("f8") / 2)
    assert np.allclose(sums, np.log(np.exp(scores).sum()), rtol=1e-6)
    assert np.allclose(out, np.exp(scores) / np.exp(scores).sum(), rtol=1e-6)


def test_gradients_are_left_to_the_formula() -> None:
    x = TensorSpec((1, 4, 16, 8), "float32", requires_grad=True)
    slopes = TensorSpec((4,), "float32")
    for more in ({"softcap": 1.0}, {"sinks": slopes}, {"alibi_slopes": slopes}):
        (reason,) = backend.unsupported_reasons(AttentionProblem(query=x, key=x, value=x, **more))
        assert reason.code == "gradient"
    packed: dict[str, Any] = {"query_lengths": (7, 9), "key_lengths": (9, 7)}
    (reason,) = backend.unsupported_reasons(AttentionProblem(query=x, key=x, value=x, **packed))
    assert reason.code == "gradient"


def test_dropout_in_pages_is_left_to_the_formula() -> None:
    x = TensorSpec((1, 4, 16, 8), "float32")
    table = TensorSpec((1, 1), "int32")
    asked = AttentionProblem(query=x, key=x, value=x, page_table=table, key_lengths=(9,), dropout=0.5)
    (reason,) = backend.unsupported_reasons(asked)
    assert reason.code == "dropout"
