"""flash_cpu's gradients against the closed formula in float64, at every instruction set of this CPU."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cases import STEP, gathered, numbers, spec, stored

from mlbackends.base import registry
from mlbackends.model.problem import AttentionProblem
from mlbackends_kernels.attention_cpu import forward, gradients, library
from mlbackends_kernels.tensors import dropout

if TYPE_CHECKING:
    from collections.abc import Callable

backend = registry.load("mlbackends_kernels", "flash_cpu").FlashCpu()
DTYPES = ("float16", "bfloat16", "float32", "float64")

try:
    LEVELS = library.usable_levels()
except library.NotBuilt:
    LEVELS = ()
pytestmark = pytest.mark.skipif(not LEVELS, reason="the library of attention was not built")


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def told(arrays: Any, dtype: str, mask: Any = None, mask_dtype: str = "", **more: Any) -> Any:
    query, key, value = (spec(array, dtype, requires_grad=True) for array in arrays)
    given_mask = None
    if mask is not None:
        given_mask = spec(mask, mask_dtype or dtype, requires_grad=mask_dtype != "bool")
    return AttentionProblem(query=query, key=key, value=value, mask=given_mask, **more)


def attended(problem: AttentionProblem, arrays: Any, mask: Any) -> tuple[Any, Any]:
    query, key, value = arrays
    return forward.attend(problem, query, key, value, mask, logsumexp=True)


def differentiated(
    problem: AttentionProblem, grad_out: Any, arrays: Any, mask: Any, out: Any, sums: Any
) -> tuple[Any, Any, Any, Any]:
    query, key, value = arrays
    found = gradients.differentiate(problem, grad_out, query, key, value, mask, out, sums)
    return found[:4]


def weights_of(problem: AttentionProblem, query: Any, key: Any, mask: Any) -> tuple[Any, Any]:
    """Return softmax and log-sum-exp in float64, of arrays whose heads are repeated already."""
    scale = problem.head_dim**-0.5 if problem.scale is None else problem.scale
    scores = query @ key.swapaxes(-1, -2) * scale
    if problem.is_causal:
        rows, keys = scores.shape[-2:]
        offset = keys - rows if problem.lower_right else 0
        scores = np.where(np.tri(rows, keys, offset, dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    seen = np.isfinite(largest)
    largest = np.where(seen, largest, 0)
    powers = np.exp(scores - largest)
    total = np.where(seen, powers.sum(-1, keepdims=True), 1)
    return powers / total, (np.log(total) + largest)[..., 0]


def repeated(array: Any, leading: tuple[int, ...]) -> Any:
    if array.ndim > 2:
        array = array.repeat(leading[-1] // array.shape[-3], -3)
    return np.broadcast_to(array, (*leading, *array.shape[-2:]))


def wanted(problem: AttentionProblem, grad_out: Any, arrays: Any, mask: Any) -> Any:
    """Return result and log-sum-exp, gradients, and the sums of the sizes of what these add up."""
    leading = problem.leading_shape
    query, key, value = (repeated(array, leading) for array in arrays)
    scale = problem.head_dim**-0.5 if problem.scale is None else problem.scale
    weights, sums = weights_of(problem, query, key, mask)
    factor = 1.0
    if problem.dropout:
        assert problem.seed is not None
        rows = range(problem.query_length)
        kept = dropout.keep_mask(problem.seed, problem.dropout, leading, rows, problem.key_length)
        factor = kept / (1 - problem.dropout)
    used = weights * factor

    def products(sign: int, query: Any, key: Any, value: Any, grad_out: Any, scale: float) -> Any:
        along = (grad_out * (used @ value)).sum(-1, keepdims=True)
        for_scores = used * (grad_out @ value.swapaxes(-1, -2)) + sign * weights * along
        for_mask = None
        if mask is not None and mask.dtype != bool:
            for_mask = gathered(for_scores, mask.shape)
        return (
            gathered(for_scores @ key * scale, arrays[0].shape),
            gathered(for_scores.swapaxes(-1, -2) @ query * scale, arrays[1].shape),
            gathered(used.swapaxes(-1, -2) @ grad_out, arrays[2].shape),
            for_mask,
        )

    given = (query, key, value, grad_out, scale)
    return (
        (used @ value, sums),
        products(-1, *given),
        products(1, *map(abs, given)),  # what errors are in proportion to: nothing cancels
    )


def errors(arrays: Any, dtype: str, mask: Any = None, mask_dtype: str = "", **more: Any) -> list[float]:
    """Return each gradient's largest error, in steps of its element type at the size of its sums."""
    arrays = [stored(array, dtype) for array in arrays]
    if mask is not None and mask.dtype != bool:
        mask = stored(mask, mask_dtype or dtype)
    elif mask is not None:
        mask_dtype = "bool"
    problem = told(arrays, dtype, mask, mask_dtype, **more)
    assert backend.unsupported_reasons(problem) == ()
    wide = [numbers(array, dtype) for array in arrays]
    wide_mask = mask if mask is None or mask.dtype == bool else numbers(mask, mask_dtype or dtype)
    grad_out = stored(drawn(9, problem.output_shape)[0], dtype)
    (out, sums), want, sizes = wanted(problem, numbers(grad_out, dtype), wide, wide_mask)
    sums = sums.astype("float64" if dtype == "float64" else "float32")
    found = differentiated(problem, grad_out, arrays, mask, stored(out, dtype), sums)
    dtypes = (dtype, dtype, dtype, mask_dtype or dtype)
    assert (found[3] is None) == (want[3] is None)
    told_errors = []
    for array, other, sum_of, kind in zip(found, want, sizes, dtypes, strict=True):
        if other is None or not other.size:
            continue
        assert array.shape == other.shape
        size = max(0.01, float(sum_of.max()))
        told_errors.append(float(np.abs(numbers(array, kind) - other).max()) / size / STEP[kind])
    return told_errors


#: How many steps an error may have: the result that delta is made of is rounded too.
LIMIT = {"float16": 8, "bfloat16": 8, "float32": 64, "float64": 512}
SHAPES = {
    "several blocks": ((1, 2, 203, 33), (1, 2, 523, 33), (1, 2, 523, 40)),
    "wide": ((1, 1, 40, 300), (1, 1, 70, 300), (1, 1, 70, 130)),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_those_of_the_formula(name: str, dtype: str, level: str) -> None:
    with library.lowered(level):
        assert max(errors(drawn(1, *SHAPES[name]), dtype)) < LIMIT[dtype]


def test_a_row_whose_scores_all_overflow_gives_nan() -> None:
    x = np.full((1, 1, 20, 8), 1e20, "float32")
    arrays = (-x, x, x / x)
    problem = told(arrays, "float32")
    found = differentiated(problem, x / x, arrays, None, *attended(problem, arrays, None))
    assert all(np.isnan(gradient).all() for gradient in found[:3])


# ---- strides ------------------------------------------------------------------------


def test_a_gradient_that_is_one_number_for_all_is_read_as_one() -> None:
    """As that of torch's sum, whose strides are all 0."""
    arrays = [array.astype("float32") for array in drawn(1, *[(1, 2, 9, 8)] * 4)]
    problem, sums = told(arrays[:3], "float32"), np.zeros((1, 2, 9), "float32") + 3
    ones = np.broadcast_to(np.float32(1), (1, 2, 9, 8))
    found = differentiated(problem, ones, arrays[:3], None, arrays[3], sums)
    want = differentiated(problem, ones.copy(), arrays[:3], None, arrays[3], sums)
    assert all(map(np.array_equal, found[:3], want[:3]))


# ---- numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e4, -1e13, 1e30])
def test_large_scores_make_nothing_infinite(scale: float) -> None:
    query, key, value = (array.astype("float32") for array in drawn(1, *[(1, 1, 40, 8)] * 3))
    problem = told((query, key, value), "float32", scale=scale)
    out, sums = forward.attend(problem, query, key, value, logsumexp=True)
    found = gradients.differentiate(problem, out, query, key, value, None, out, sums)
    assert all(np.isfinite(array).all() for array in found[:3])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [4, 16, 203])
@pytest.mark.parametrize("scale", [10.0, -30.0])
@pytest.mark.parametrize("kind", ["plain", "causal", "float", "dropout"])
def test_large_scores_are_as_exact_as_in_the_plain_formula(
    dtype: str, rows: int, scale: float, kind: str, level: str
) -> None:
    """One number for each row tells its weights no better than its own last place, here too coarse."""
    shapes = [(1, 2, rows, 16), (1, 2, 203, 16), (1, 2, 203, 16), (1, 2, rows, 16)]
    *arrays, grad_out = (array.astype(dtype) for array in drawn(4, *shapes))
    more: dict[str, Any] = {"is_causal": kind == "causal"}
    mask = drawn(5, (rows, 203))[0].astype(dtype) if kind == "float" else None
    if kind == "dropout":
        more.update(dropout=0.3, seed=11)
    problem = told(arrays, dtype, mask, scale=scale, **more)
    with library.lowered(level):
        query, key, value = arrays
        out, sums = forward.attend(problem, query, key, value, mask, logsumexp=True)
        found = differentiated(problem, grad_out, arrays, mask, out, sums)
    wide = np.longdouble if dtype == "float64" else np.float64
    inputs = [[array.astype(kind) for array in (grad_out, *arrays)] for kind in (wide, dtype)]
    masks = [None if mask is None else mask.astype(kind) for kind in (wide, dtype)]
    want, plain = (
        wanted(problem, tensor[0], tensor[1:], mask)[1] for tensor, mask in zip(inputs, masks, strict=True)
    )
    for array, right, other in zip(found, want, plain, strict=True):
        if right is None:
            continue
        allowed = np.abs(other - right).max() + 4 * STEP[dtype] * np.abs(right).max()
        assert np.abs(array - right).max() <= 4 * allowed


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("fill", [-1e4, float(np.finfo("float32").min), 1e30])
def test_a_row_filled_with_one_large_number_is_a_mean(fill: float, dtype: str, level: str) -> None:
    """As masks have it for what is padded; at -1e9 float64 still sees scores that float32 does not."""
    mask = np.zeros((70, 70))
    mask[5], mask[9, :40] = fill, min(fill, -1e9)
    with library.lowered(level):
        arrays = drawn(6, *[(1, 2, 70, 16)] * 3)
        assert max(errors(arrays, dtype, mask, "float64" if dtype == "float64" else "float32")) < 600


@pytest.mark.parametrize("scale", [0.25, 30.0])
def test_gradients_of_parts_of_the_keys_add_up(scale: float) -> None:
    """As where each of several machines has a part of the keys, and all know result and log-sum-exp."""
    query, key, value, grad_out = (array.astype("float32") for array in drawn(1, *[(1, 2, 64, 16)] * 4))
    problem = told((query, key, value), "float32", scale=scale)
    out, sums = forward.attend(problem, query, key, value, logsumexp=True)
    whole = gradients.differentiate(problem, grad_out, query, key, value, None, out, sums)
    parts = []
    for keys in (slice(0, 24), slice(24, 64)):
        some = [array[:, :, keys].copy() for array in (key, value)]
        part = told((query, *some), "float32", scale=scale)
        parts.append(differentiated(part, grad_out, (query, *some), None, out, sums))
    together = (
        parts[0][0] + parts[1][0],
        *(np.concatenate([part[place] for part in parts], axis=-2) for place in (1, 2)),
    )
    allowed = 1e-3 if scale > 1 else 1e-5  # scores of some hundreds are no finer themselves
    for gradient, right in zip(together, whole, strict=False):
        assert np.abs(gradient - right).max() <= allowed * np.abs(right).max()


def test_a_row_of_nan_does_not_reach_other_rows_of_the_query() -> None:
    query, key, value = (array.astype("float32") for array in drawn(1, *[(1, 1, 40, 8)] * 3))
    query[0, 0, 3] = np.nan
    problem = told((query, key, value), "float32")
    out, sums = forward.attend(problem, query, key, value, logsumexp=True)
    found = gradients.differentiate(problem, np.ones_like(out), query, key, value, None, out, sums)
    assert np.isnan(found[0]).any(-1)[0, 0].nonzero()[0].tolist() == [3]
    assert np.isnan(found[1]).all() and np.isnan(found[2]).all()


# ---- threads and memory -------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("heads", [1, 3])
def test_the_result_does_not_depend_on_threads_or_interruptions(
    dtype: str, heads: int, any_threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one head and several threads there are two passes, else one."""
    shapes = ((1, 2 * heads, 300, 33), (1, heads, 700, 33), (1, heads, 700, 20))
    arrays = [stored(array, dtype) for array in drawn(1, *shapes)]
    mask = stored(drawn(2, (300, 700))[0], dtype)
    problem = told(arrays, dtype, mask, enable_gqa=True, dropout=0.2, seed=5)
    out, sums = attended(problem, arrays, mask)

    def computed(threads: int, milliseconds: int) -> Any:
        any_threads(threads)
        monkeypatch.setattr(forward, "_MILLISECONDS", milliseconds)
        return differentiated(problem, out, arrays, mask, out, sums)

    want = computed(1, 50)
    for threads, milliseconds in ((1, 1), (2, 50), (2, 1), (3, 50), (16, 1)):
        found = computed(threads, milliseconds)
        assert all(map(np.array_equal, found, want)), (threads, milliseconds)


def test_too_many_numbers_for_one_pass_give_the_same_in_two() -> None:
    """Sums of float32 beside bfloat16 have 256 KiB: as much as 2049 rows of 32 need a little more."""
    query, key, value = (stored(array, "bfloat16") for array in drawn(1, *[(1, 4, 2049, 32)] * 3))
    problem = told((query, key, value), "bfloat16")
    out, sums = forward.attend(problem, query, key, value, logsumexp=True)
    whole = gradients.differentiate(problem, out, query, key, value, None, out, sums)
    rows = slice(0, 2048)
    part = told((query[:, :, rows], key, value), "bfloat16")
    first = gradients.differentiate(
        part,
        out[:, :, rows],
        query[:, :, rows],
        key,
        value,
        None,
        out[:, :, rows],
        sums[:, :, rows],
    )
    assert np.array_equal(first[0], whole[0][:, :, rows])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_thread_needs_little_memory_at_any_length(dtype: str, level: str) -> None:
    with library.lowered(level):
        for width in (32, 64, 128, 256):
            for rows, keys in (
                (1 << 8, 1 << 10),
                (1 << 10, 1 << 10),
                (1 << 16, 1 << 10),
                (1 << 22, 1 << 22),
            ):
                abi, functions = library.abi(), library.library()
                problem = abi.structures["problem"](
                    batch=1,
                    heads=16,
                    query_length=rows,
                    key_length=keys,
                    head_dim=width,
                    value_dim=width,
                    key_group=1,
                    value_group=1,
                    element=abi.elements[dtype],
                    scale=1.0,
                    level=library.level(),
                    threads=1,
                )
                given = abi.structures["gradients"](forward=problem)
                needed = functions.mlbackends_attention_gradients_scratch(ctypes.byref(given))
                assert needed < 1 << 20, (width, rows, needed)


# ---- over problems ------------------------------------------------------------------
