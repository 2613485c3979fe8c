"""Windows, caps, sinks, packed sequences and pages: `math` beside the formula written out head by head."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends.base import registry
from mlbackends.base.errors import NoBackend
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends_kernels.attention_cpu import rows as of_rows

backend = registry.load("mlbackends_kernels", "math").Math()


class Call(NamedTuple):
    """A problem with its arrays of float64: query, key, value, mask, and sinks and page_table by name."""

    problem: AttentionProblem
    tensors: tuple[Any, ...]
    more: dict[str, Any]


def spec(array: Any, **more: Any) -> TensorSpec:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return TensorSpec(array.shape, str(array.dtype), strides, **more)


def call(
    *tensors: Any,
    sinks: Any = None,
    alibi_slopes: Any = None,
    page_table: Any = None,
    gradients: bool = False,
    **options: Any,
) -> Call:
    """Return a call of arrays. gradients: whether all of them, the table apart, require one."""
    query, key, value, *masks = tensors
    mask = masks[0] if masks else None
    more = {"sinks": sinks, "alibi_slopes": alibi_slopes, "page_table": page_table}
    named = {"query": query, "key": key, "value": value, "mask": mask, **more}
    specs: dict[str, Any] = {
        name: spec(array, requires_grad=gradients and array.dtype.kind == "f" and name != "alibi_slopes")
        for name, array in named.items()
        if array is not None
    }
    given = {name: array for name, array in more.items() if array is not None}
    return Call(AttentionProblem(**specs, **options), (query, key, value, mask), given)


def sees(problem: AttentionProblem, row: int, key: int, rows: int, keys: int) -> bool:
    """Tell whether the window of a row holds a key, of a sequence of so many rows and keys."""
    own = row + (keys - rows if problem.lower_right else 0)
    left, right = problem.window
    return (
        not (problem.is_causal and key > own)
        and (left < 0 or key >= own - left)
        and (right < 0 or key <= own + right)
    )


def one_head(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any, sink: Any, slope: Any
) -> tuple[Any, Any]:
    """Return the result (L, Ev) and the logarithms (L,) of one head of one sequence."""
    scale = query.shape[-1] ** -0.5 if problem.scale is None else problem.scale
    scores = query @ key.T * scale
    if problem.softcap:
        scores = problem.softcap * np.tanh(scores / problem.softcap)
    rows, keys = scores.shape
    own = np.arange(rows)[:, None] + (keys - rows if problem.lower_right else 0)
    scores = scores - slope * np.abs(own - np.arange(keys))
    seen = np.array(
        [[sees(problem, i, j, rows, keys) for j in range(keys)] for i in range(rows)], bool
    ).reshape(rows, keys)
    if mask is not None:
        seen = seen & mask if mask.dtype == bool else seen
        scores = scores if mask.dtype == bool else scores + mask
    exponentials = np.exp(scores) * seen
    total = exponentials.sum(-1) + (0 if sink is None else np.exp(sink))
    without = total == 0
    total = np.where(without, 1, total)
    return exponentials @ value / total[:, None], np.where(without, 0, np.log(total))


def by_hand(
    problem: AttentionProblem,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    sinks: Any = None,
    alibi_slopes: Any = None,
    page_table: Any = None,
) -> tuple[Any, Any]:
    """Return what `run_with_logsumexp` must, of tensors (B, H, L, E); complex numbers stay complex."""
    batch, heads, length, _ = query.shape
    given = [tensor for tensor in (query, key, value, mask, sinks) if tensor is not None]
    kind = np.result_type(*given)
    out = np.zeros((batch, heads, length, value.shape[-1]), kind)
    logs = np.zeros((batch, heads, length), kind)
    first_row = first_key = 0
    sequences = problem.sequences if problem.key_lengths else problem.sequences * batch
    for number, (rows, keys) in enumerate(sequences):
        for head in range(heads):
            serving = head * key.shape[1] // heads
            at = (number, head, slice(None))
            taken = (number, serving)
            if problem.query_lengths:
                at = (0, head, slice(first_row, first_row + rows))
            if page_table is not None:
                size = key.shape[2]
                places = [(page_table[number, j // size], j % size) for j in range(keys)]
                own_keys = np.array([key[page, serving, row] for page, row in places])
                own_values = np.array([value[page, serving, row] for page, row in places])
                own_keys = own_keys.reshape(keys, key.shape[-1])
                own_values = own_values.reshape(keys, value.shape[-1])
            elif problem.query_lengths:
                own_keys, own_values = (
                    tensor[0, serving, first_key : first_key + keys] for tensor in (key, value)
                )
            else:
                own_keys, own_values = key[taken], value[taken]
            masked = None if mask is None else np.broadcast_to(mask, (batch, heads, rows, keys))[at]
            sink = None if sinks is None else sinks[head]
            slope = 0 if alibi_slopes is None else alibi_slopes[head]
            out[at], logs[at] = one_head(problem, query[at], own_keys, own_values, masked, sink, slope)
        first_row, first_key = first_row + rows, first_key + keys
    return out, logs


@st.composite
def calls(draw: Any, gradients: bool = False) -> Call:
    random = np.random.default_rng(draw(st.integers(0, 999)))
    heads, group = draw(st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]))
    width, value_width = draw(st.sampled_from([(1, 1), (3, 2), (8, 8)]))
    kind = draw(st.sampled_from(("dense", "packed") if gradients else ("dense", "packed", "pages", "both")))
    count = draw(st.integers(1, 3))
    row_counts = tuple(draw(st.integers(0, 6)) for _ in range(count))
    key_counts = tuple(draw(st.integers(0, 7)) for _ in range(count))
    options: dict[str, Any] = {
        "window": draw(st.sampled_from([(-1, -1), (0, 0), (2, 1), (-1, 2), (3, -1), (1 << 40, 0)])),
        "softcap": draw(st.sampled_from([0.0, 0.7, 5.0])),
        "scale": draw(st.sampled_from([None, 0.5, -1.5])),
        "is_causal": draw(st.booleans()),
        "enable_gqa": heads != group or draw(st.booleans()),
    }
    if draw(st.booleans()):
        options["alibi_slopes"] = random.standard_normal(heads)
    limited = options["is_causal"] or options["window"] != (-1, -1) or "alibi_slopes" in options
    options["lower_right"] = bool(limited and draw(st.booleans()))
    batch, length, keys = count, row_counts[0], key_counts[0]
    if kind in ("packed", "both"):
        batch, length, options["query_lengths"] = 1, sum(row_counts), row_counts
    if kind == "packed":
        keys, options["key_lengths"] = sum(key_counts), key_counts
    front = (batch, group)
    if kind in ("pages", "both"):
        size, options["key_lengths"] = draw(st.integers(1, 4)), key_counts
        most = -(-max(key_counts) // size) + draw(st.integers(0, 1))
        pages = most * count + 2
        table = random.permutation(pages)[: most * count].reshape(count, most).astype("int32")
        front, keys, options["page_table"] = (pages, group), size, table
    tensors: list[Any] = [
        random.standard_normal((batch, heads, length, width)),
        random.standard_normal((*front, keys, width)),
        random.standard_normal((*front, keys, value_width)),
    ]
    if kind == "dense" and not options["is_causal"]:
        mask = random.standard_normal((heads, 1, keys))
        tensors.append(draw(st.sampled_from([None, mask, mask > -0.5])))
    if draw(st.booleans()):
        options["sinks"] = random.standard_normal(heads)
    return call(*tensors, gradients=gradients, **options)


@given(calls())
@settings(max_examples=200)
def test_every_field_is_what_its_formula_says(asked: Call) -> None:
    found, logs = backend.run_with_logsumexp(asked.problem, *asked.tensors, **asked.more)

    wanted, wanted_logs = by_hand(asked.problem, *asked.tensors, **asked.more)
    assert found.shape == asked.problem.output_shape
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    np.testing.assert_allclose(logs, wanted_logs, atol=1e-12)


def slope(asked: Call, grad_out: Any, name: str, direction: Any) -> float:
    """Return how fast sum(grad_out * out) grows as one tensor moves: by an imaginary step, so exactly."""
    step = 1e-30
    names = ("query", "key", "value", "mask")
    tensors = dict(zip(names, asked.tensors, strict=True)) | asked.more
    tensors[name] = tensors[name] + 1j * step * direction
    more = {array: tensors[array] for array in asked.more}
    out, _ = by_hand(asked.problem, *(tensors[field] for field in names), **more)
    return float((out * grad_out).sum().imag / step)


@given(calls(gradients=True), st.integers(0, 99))
@settings(max_examples=200)
def test_gradients_are_the_slopes_of_the_formula(asked: Call, seed: int) -> None:
    random = np.random.default_rng(seed)
    grad_out = random.standard_normal(asked.problem.output_shape)
    out, logs = backend.run_with_logsumexp(asked.problem, *asked.tensors, **asked.more)

    found = backend.run_backward(asked.problem, grad_out, *asked.tensors, out, logs, **asked.more)._asdict()

    for name, gradient in found.items():
        wanted = getattr(asked.problem, name)
        assert (gradient is not None) == bool(wanted and wanted.requires_grad), name
        if gradient is not None:
            assert gradient.shape == wanted.shape
            direction = random.standard_normal(wanted.shape)
            right = slope(asked, grad_out, name, direction)
            assert (gradient * direction).sum() == pytest.approx(right, rel=1e-9, abs=1e-11), name


def drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape) for shape in shapes]


def test_a_row_without_keys_is_zero_and_its_logarithm_its_sink() -> None:
    query, key, sinks = drawn((1, 2, 3, 4), (1, 2, 3, 4), (2,))
    mask = np.array([[True] * 3, [False] * 3, [True] * 3])

    asked = call(query, key, key, mask, sinks=sinks)
    out, logs = backend.run_with_logsumexp(asked.problem, *asked.tensors, **asked.more)
    assert not out[:, :, 1].any()
    assert np.array_equal(logs[0, :, 1], sinks)

    sinks[0] = -np.inf  # which is none
    asked = call(query, key, key, mask, sinks=sinks)
    out, logs = backend.run_with_logsumexp(asked.problem, *asked.tensors, **asked.more)
    assert logs[0, :, 1].tolist() == [0, sinks[1]]
    assert np.isfinite(out).all()


def test_a_sink_beyond_every_score_takes_all_the_weight() -> None:
    query, key = drawn((1, 1, 3, 4), (1, 1, 3, 4))
    asked = call(query, key, key, sinks=np.array([5000.0]))

    out, logs = backend.run_with_logsumexp(asked.problem, *asked.tensors, **asked.more)

    assert not out.any()
    assert logs.tolist() == [[[5000.0] * 3]]


def test_packed_sequences_drop_what_a_batch_of_them_drops() -> None:
    dense = drawn((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4))
    packed = [array.swapaxes(0, 1).reshape(1, 3, 10, 4) for array in dense]
    options: dict[str, Any] = {"dropout": 0.5, "seed": 3, "is_causal": True}
    lengths: dict[str, Any] = {"query_lengths": (5, 5), "key_lengths": (5, 5)}

    one, other = call(*dense, **options), call(*packed, **options, **lengths)
    whole = backend.run(one.problem, *one.tensors)
    found = backend.run(other.problem, *other.tensors)

    assert np.array_equal(found.reshape(3, 2, 5, 4).swapaxes(0, 1), whole)
    assert (whole == 0).any()


@pytest.mark.parametrize("mask", [None, (9, 9), (3, 1, 9), (2, 1, 9, 1)])
def test_rows_in_turn_give_what_all_rows_give(
    mask: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, key, value, sinks, grad_out, *masks = drawn(
        (2, 3, 9, 8), (2, 3, 9, 8), (2, 3, 9, 4), (3,), (2, 3, 9, 4), *([mask] if mask else [])
    )
    fields: dict[str, Any] = {"window": (3, 2), "softcap": 2.0, "sinks": sinks}
    asked = call(
        query,
        key,
        value,
        *masks,
        gradients=True,
        **({"dropout": 0.3, "seed": 5} if mask else fields),
    )

    def computed() -> list[Any]:
        results = backend.run_with_logsumexp(asked.problem, *asked.tensors, **asked.more)
        found = backend.run_backward(asked.problem, grad_out, *asked.tensors, *results, **asked.more)
        return [*results, *(array for array in found if array is not None)]

    whole = computed()
    monkeypatch.setattr(of_rows, "SCORES_AT_ONCE", 130)
    for tensor, other in zip(computed(), whole, strict=True):
        np.testing.assert_allclose(tensor, other, atol=1e-13)


def test_a_part_of_the_keys_adds_its_gradients_beside_a_sink() -> None:
    query, key, value, sinks, grad_out = drawn((1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 4), (2,), (1, 2, 4, 4))
    whole = call(query, key, value, sinks=sinks, gradients=True)
    results = backend.run_with_logsumexp(whole.problem, *whole.tensors, **whole.more)
    wanted = backend.run_backward(whole.problem, grad_out, *whole.tensors, *results, **whole.more)

    halves = [
        call(query, key[..., at, :], value[..., at, :], sinks=sinks, gradients=True)
        for at in (slice(3), slice(3, 6))
    ]
    found = [
        backend.run_backward(half.problem, grad_out, *half.tensors, *results, **half.more) for half in halves
    ]

    np.testing.assert_allclose(found[0].query + found[1].query, wanted.query, atol=1e-13)
    np.testing.assert_allclose(np.concatenate([array.key for array in found], 2), wanted.key, atol=1e-13)
    for array in found:
        np.testing.assert_allclose(array.sinks, wanted.sinks, atol=1e-13)


@pytest.mark.parametrize("page", [-1, 4])
def test_a_page_that_is_not_there_is_named(page: int) -> None:
    query, pages = drawn((1, 1, 2, 4), (4, 1, 2, 4))
    table = np.array([[1, page, 77]], "int32")

    asked = call(query, pages, pages, page_table=table, key_lengths=(3,))
    with pytest.raises(IndexError, match=rf"has page {page} for sequence 0; there are 4"):
        backend.run(asked.problem, *asked.tensors, **asked.more)

    asked = call(query, pages, pages, page_table=table, key_lengths=(2,))  # the rest is not read
    assert np.isfinite(backend.run(asked.problem, *asked.tensors, **asked.more)).all()


def test_pages_have_no_gradient() -> None:
    query, pages = drawn((1, 1, 2, 4), (4, 1, 2, 4))
    table = np.array([[1]], "int32")

    asked = call(query, pages, pages, page_table=table, key_lengths=(2,), gradients=True)
    with pytest.raises(NoBackend, match="gradients are not supported with paged keys"):
        backend.run(asked.problem, *asked.tensors, **asked.more)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_narrower_elements_give_results_of_their_own_type(dtype: str) -> None:
    query, key, value, sinks, grad_out = drawn((1, 4, 9, 8), (1, 2, 12, 8), (1, 2, 12, 4), (4,), (1, 4, 9, 4))
    options: dict[str, Any] = {
        "window": (2, 0), "softcap": 1.0, "enable_gqa": True, "lower_right": True,
        "query_lengths": (2, 7), "key_lengths": (5, 7), "gradients": True,
    }  # fmt: skip
    tensors = [tensor.astype(dtype) for tensor in (query, key, value)]

    def computed(kind: str, tensors: list[Any]) -> list[Any]:
        asked = call(*tensors, sinks=sinks.astype("float32").astype(kind), **options)
        results = backend.run_with_logsumexp(asked.problem, *asked.tensors, **asked.more)
        coming = grad_out.astype(tensors[0].dtype)
        found = backend.run_backward(asked.problem, coming, *asked.tensors, *results, **asked.more)
        return [*results, *(array for array in found if array is not None)]

    found = computed("float32", tensors)
    wanted = computed("float64", [tensor.astype("float64") for tensor in tensors])

    assert [str(array.dtype) for array in found] == [dtype, "float32", *[dtype] * 3, "float32"]
    for tensor, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(tensor, other, atol=0.01 if dtype == "float16" else 1e-5)
