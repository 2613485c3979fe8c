"""Every backend that there is, on any problem: its word is kept, and what it computes is right.

Where it names no reason, results and gradients are those of a plain computation in float64, as near as
its tolerance says; where it names reasons, it refuses with them. There is nothing else. Backends of the CPU
are tried at each instruction set that this one has.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from cases import STEP, gathered, numbers, spec, stored
from hypothesis import event, given, note, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mlbackends.base.errors import NoBackend
from mlbackends.model.problem import AttentionProblem
from mlbackends.model.records import Device
from mlbackends.sdpa.constraints import BEYOND_TORCH
from mlbackends.sdpa.dispatch import backends
from mlbackends.sdpa.problem_text import parse
from mlbackends_kernels.attention_cpu import library
from mlbackends_kernels.tensors import dropout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlbackends.sdpa.backend import AttentionBackend

NARROW = ("float16", "bfloat16")
DEVICES = (
    *[Device("cpu", 0)] * 12,
    Device("npu", 0),
    Device("cuda", 0, capability="7.5"),
    Device("cuda", 0, capability="9.0"),
)


class Tensors(NamedTuple):
    """query, key, value and mask, as arrays; bfloat16 as patterns."""

    query: Any
    key: Any
    value: Any
    mask: Any = None


class Answers(NamedTuple):
    """What a problem comes to. The gradients are those of query, key, value and mask.

    norm: of each number of the output, the root of the sum of the squares that it is the sum of.
    """

    out: Any
    logsumexp: Any
    gradients: tuple[Any, ...]
    norm: Any


# ---- any problem ----------------------------------------------------------------------


def laid_out(made: Any, layout: str) -> Any:
    """Return the array's elements, lying in memory in another way."""
    if layout == "heads after rows" and made.ndim > 2:
        return np.ascontiguousarray(made.swapaxes(-2, -3)).swapaxes(-2, -3)
    if layout == "columns first":
        return np.ascontiguousarray(made.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "rows apart":
        wider = np.zeros((*made.shape[:-2], 2 * made.shape[-2], made.shape[-1] + 3), made.dtype)
        wider[..., ::2, 1:-2] = made
        return wider[..., ::2, 1:-2]
    if layout == "rows backwards":
        return np.ascontiguousarray(made[..., ::-1, :])[..., ::-1, :]
    return np.ascontiguousarray(made)


LAYOUTS = ("contiguous", "heads after rows", "rows apart", "rows backwards", "columns first")
lengths = st.one_of(st.integers(1, 9), st.integers(1, 150), st.integers(0, 9))
widths = st.sampled_from((1, 3, 8, 16, 33, 40, 64, 0))
layouts = st.sampled_from((*LAYOUTS[:1] * 5, *LAYOUTS[:4] * 2, *LAYOUTS))


@st.composite
def leading(draw: Any) -> tuple[list[tuple[int, ...]], bool]:
    """Return what stands before the rows of query, key and value, and whether heads are grouped."""
    front = draw(st.lists(st.integers(1, 3), max_size=3))
    if draw(st.integers(0, 30)) == 7 and front:
        front[draw(st.integers(0, len(front) - 1))] = 0
    if front and front[-1] and draw(st.booleans()):
        heads, group = front[-1], draw(st.sampled_from((1, 2, 4, 6)))
        shapes = [
            (*front[:-1], heads * group),
            (*front[:-1], heads),
            (*front[:-1], draw(st.sampled_from((1, heads)))),
        ]
        least = 1
    else:
        shapes, least = [tuple(front)] * 3, 0
    grouped = least == 1
    if draw(st.booleans()):  # some sizes are broadcast, some dimensions are left out
        shapes = [
            (
                *(draw(st.sampled_from((1, size))) for size in shape[: len(shape) - least]),
                *shape[len(shape) - least :],
            )[draw(st.integers(0, len(shape) - least)) :]
            for shape in shapes
        ]
    return shapes, grouped


@st.composite
def masks(draw: Any, scores: tuple[int, ...], dtype: str, random: Any) -> tuple[Any, str]:
    """Return a mask that extends to the scores, and its element type."""
    shape = [draw(st.sampled_from((1, size))) for size in scores]
    shape = shape[draw(st.integers(0, len(shape) - 2)) :]
    if draw(st.booleans()):
        kind, made = "bool", random.random(shape) < draw(st.sampled_from((0.1, 0.9)))
    else:
        kind = draw(st.sampled_from((dtype, "float32")))
        values = random.standard_normal(shape)
        values[random.random(shape) < draw(st.sampled_from((0.0, 0.3)))] = -np.inf
        made = stored(values, kind)
    return laid_out(made, draw(layouts)), kind


@st.composite
def problems(draw: Any) -> tuple[AttentionProblem, Tensors]:
    """Return a problem that has a meaning, and its tensors."""
    dtype = draw(st.sampled_from(tuple(STEP)))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    fronts, grouped = draw(leading())
    length, width, value_width = draw(lengths), draw(widths), draw(widths)
    keys = draw(st.one_of(lengths, st.integers(1, 400), st.just(1100)))
    ends = ((length, width), (keys, width), (keys, value_width))
    arrays = [
        laid_out(stored(random.standard_normal((*front, *end)), dtype), draw(layouts))
        for front, end in zip(fronts, ends, strict=True)
    ]
    trained = draw(st.sampled_from((*[()] * 5, (0, 1, 2), (0, 1, 2), (2,))))
    query, key, value = (
        spec(array, dtype, requires_grad=place in trained) for place, array in enumerate(arrays)
    )
    asked = AttentionProblem(
        query=query,
        key=key,
        value=value,
        enable_gqa=grouped,
        scale=draw(st.sampled_from((None, None, 0.0, 1.5, -0.5))),
        dropout=draw(st.sampled_from((0.0, 0.0, 0.0, 0.0, 0.5, 1.0))),
        seed=draw(st.integers(-(2**63), 2**64 - 1)),
        inner_dtype=draw(st.sampled_from(("", "", "", "", "float32", "float64"))),
        logsumexp=draw(st.booleans()),
        device=draw(st.sampled_from(DEVICES)),
    )
    tensors = Tensors(*arrays)
    kind = draw(st.sampled_from(("none", "causal", "lower right", "window", "mask", "mask")))
    if kind in ("causal", "lower right"):
        asked = replace(asked, is_causal=True, lower_right=kind == "lower right")
    elif kind == "window":
        window = draw(st.sampled_from((-1, 0, 3, 40))), draw(st.sampled_from((-1, 0, 50)))
        asked = replace(asked, window=window, lower_right=max(window) >= 0 and draw(st.booleans()))
    elif kind == "mask":
        scores = (*asked.leading_shape, length, keys)
        mask, mask_dtype = draw(masks(scores, dtype, random))
        wanted = mask_dtype != "bool" and draw(st.sampled_from((False, False, True)))
        asked = replace(asked, mask=spec(mask, mask_dtype, requires_grad=wanted))
        tensors = tensors._replace(mask=mask)
    odd = draw(st.integers(0, 30))
    if odd == 7:
        asked = replace(asked, query=replace(query, nested=True))
    elif odd == 8 and asked.mask is None and not asked.inner_dtype:
        other = draw(st.sampled_from(("int32", "complex64", "bool", "float8_e4m3fn")))
        specs = {name: replace(getattr(asked, name), dtype=other) for name in Tensors._fields[:3]}
        asked = replace(asked, **specs)
    return asked, tensors


# ---- what is right ----------------------------------------------------------------------


def expanded(problem: AttentionProblem, array: Any) -> Any:
    """Return query, key or value with a head for each head, and every batch."""
    if problem.enable_gqa and array.shape[-3] != problem.heads:
        array = array.repeat(problem.heads // array.shape[-3], -3)
    return np.broadcast_to(array, (*problem.leading_shape, *array.shape[-2:]))


def answers(problem: AttentionProblem, tensors: Tensors, grad_out: Any, dtype: str, wide: str) -> Answers:
    """Compute it all with full matrices in the type `wide`; what is between the passes rounded to `dtype`."""
    scale = (problem.head_dim or 1) ** -0.5 if problem.scale is None else problem.scale
    query, key, value = (expanded(problem, numbers(tensor, problem.dtype, wide)) for tensor in tensors[:3])
    length, keys = problem.query_length, problem.key_length
    scale = np.asarray(scale, wide)
    scores = query @ key.swapaxes(-1, -2) * scale
    if problem.band != (-1, -1):
        offset = keys - length if problem.lower_right else 0
        left, right = (length + keys if side < 0 else side for side in problem.band)
        is_before = np.tri(length, keys, offset - left - 1, dtype=bool)
        is_seen = np.tri(length, keys, offset + right, dtype=bool) & ~is_before
        scores = np.where(is_seen, scores, -np.inf)
    elif problem.mask is not None and problem.mask.dtype == "bool":
        scores = np.where(tensors.mask, scores, -np.inf)
    elif problem.mask is not None:
        scores = scores + numbers(tensors.mask, problem.mask.dtype, wide)
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    largest[largest == -np.inf] = 0
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    weights /= np.where(total == 0, 1, total)
    factor = np.asarray(1.0, wide)
    if problem.dropout == 1:
        factor = np.zeros_like(weights)
    elif problem.dropout:
        seed, shape = problem.seed or 0, problem.leading_shape
        kept = dropout.keep_mask(seed, problem.dropout, shape, range(length), keys)
        factor = (kept / (1 - problem.dropout)).astype(wide)
    out = (weights * factor) @ value
    logsumexp = np.where(total == 0, 0, largest + np.log(np.where(total == 0, 1, total)))[..., 0]
    rounded = numbers(stored(out, dtype), dtype, wide)
    coming = numbers(grad_out, problem.dtype, wide)
    for_weights = coming @ value.swapaxes(-1, -2) * factor
    for_scores = weights * (for_weights - (coming * rounded).sum(-1, keepdims=True))
    found: tuple[Any, ...] = (
        gathered(for_scores @ key * scale, problem.query.shape),
        gathered(for_scores.swapaxes(-1, -2) @ query * scale, problem.key.shape),
        gathered((weights * factor).swapaxes(-1, -2) @ coming, problem.value.shape),
    )
    if problem.mask is not None and problem.mask.requires_grad:
        found += (gathered(for_scores, problem.mask.shape),)
    return Answers(out, logsumexp, found, np.sqrt((weights * factor) ** 2 @ value**2))


class Case:
    """A problem with what is right, and how far from it a backend may be."""

    def __init__(self, problem: AttentionProblem, tensors: Tensors) -> None:
        dtype = problem.dtype
        grad_out = np.random.default_rng(5).standard_normal(problem.output_shape)
        self.problem, self.tensors, self.grad_out = problem, tensors, stored(grad_out, dtype)
        given = problem, tensors, self.grad_out
        self.right = answers(*given, "float64", "float64")
        narrow = problem.inner_dtype or ("float64" if dtype == "float64" else "float32")
        rough = answers(*given, narrow if narrow == "float64" else dtype, narrow)
        self.rough_out = self.error(stored(rough.out, dtype), self.right.out)
        self.rough_gradients = [
            self.error(stored(gradient, kind), wanted, kind)
            for gradient, wanted, kind in zip(
                rough.gradients, self.right.gradients, self.kinds(), strict=True
            )
        ]
        self.set_floors(STEP[narrow])

    def kinds(self) -> list[str]:
        """Return the element types of the gradients."""
        mask = self.problem.mask
        return [self.problem.dtype] * 3 + ([mask.dtype] if mask and mask.requires_grad else [])

    def error(self, found: Any, right: Any, dtype: str = "") -> float:
        return float(np.abs(numbers(found, dtype or self.problem.dtype) - right).max(initial=0))

    def set_floors(self, inner: float) -> None:
        """Find what a score's last bit makes of the results, and the result's own last bit."""
        problem, dtype = self.problem, self.problem.dtype
        scale = (problem.head_dim or 1) ** -0.5 if problem.scale is None else abs(problem.scale)
        query, key, value, coming = (
            np.linalg.norm(numbers(tensor, dtype), axis=-1).max(initial=0)
            for tensor in (*self.tensors[:3], self.grad_out)
        )
        enlarged = 1 / (1 - problem.dropout) if problem.dropout < 1 else 1
        # Numbers that a mask adds are at most about 4.
        inner *= 2 if dtype == "float64" else 1  # what is right has an error of its own
        score = inner * (8 + scale * query * key)
        self.score_floor = score + 4 * inner
        self.out_floor = score * value * enlarged + self.last_bit(self.right.out, dtype)
        # Each weight is off by up to half a last bit, in either direction.
        self.rounded_weights_floor = 1.5 * STEP[dtype] * float(self.right.norm.max(initial=0))
        # A row's sum of grad_out * out is of a result that was rounded.
        row = 2 * coming * value * enlarged * (score + (STEP[dtype] if dtype in NARROW else inner))
        rows = max(1, *problem.leading_shape, problem.query_length) ** 0.5
        floors = (row * scale * key, row * scale * query * rows, row * rows, row * rows)
        self.gradient_floors = [
            floor + self.last_bit(right, kind)
            for floor, right, kind in zip(floors, self.right.gradients, self.kinds(), strict=False)
        ]

    def last_bit(self, right: Any, dtype: str) -> float:
        """Return half the last bit of the largest number, and of the least ones of a narrow type."""
        return 0.5 * STEP[dtype] * float(np.abs(right).max(initial=0)) + 2.0**-25 if dtype in NARROW else 0.0


# ---- every backend ------------------------------------------------------------------------


def levels(backend: AttentionBackend) -> Iterator[tuple[str, Any]]:
    """Yield the name of, and a scope for, each instruction set that a backend can be made to use here."""
    if backend.name != "flash_cpu":
        yield "", contextlib.nullcontext()
        return
    for name in library.usable_levels():
        note(f"at {name}")
        yield name, library.lowered(name)


def require_right(backend: AttentionBackend, case: Case, level: str) -> None:
    """Compare what a backend computes with what is right."""
    problem, tensors = case.problem, case.tensors
    tolerance = backend.tolerance[problem.dtype]

    out = backend.run(problem, *tensors)

    assert out.shape == problem.output_shape
    assert out.dtype == tensors.query.dtype
    floor = case.out_floor
    if problem.dtype == "bfloat16" and level in library.BFLOAT16_PAIRS:
        floor += case.rounded_weights_floor
    assert case.error(out, case.right.out) <= tolerance * case.rough_out + floor
    if "logsumexp" not in backend.takes:
        return
    same, logsumexp = backend.run_with_logsumexp(problem, *tensors)
    assert np.array_equal(same, out)
    assert logsumexp.shape == problem.output_shape[:-1]
    assert logsumexp.dtype == ("float64" if problem.dtype == "float64" else "float32")
    if problem.value_dim:
        floor = case.score_floor + np.spacing(np.abs(logsumexp).max(initial=1))
        assert np.abs(logsumexp - case.right.logsumexp).max(initial=0) <= tolerance * floor
    if problem.wants_gradient:
        require_right_gradients(backend, case, out, logsumexp)


def require_right_gradients(backend: AttentionBackend, case: Case, out: Any, logsumexp: Any) -> None:
    event("gradients are computed")
    problem, tensors = case.problem, case.tensors
    found = backend.run_backward(problem, case.grad_out, *tensors, out, logsumexp)
    assert (found.mask is None) == (len(case.right.gradients) == 3)
    tolerance = backend.tolerance[problem.dtype]
    for place, (right, kind) in enumerate(zip(case.right.gradients, case.kinds(), strict=True)):
        seen, tensor = found[place], tensors[place]
        assert seen.shape == tensor.shape
        assert seen.dtype == tensor.dtype
        allowed = tolerance * case.rough_gradients[place] + case.gradient_floors[place]
        assert case.error(seen, right, kind) <= allowed, Tensors._fields[place]


WITH_FIELDS = {
    "alibi": "--alibi",
    "pages": "--page-size 16",
    "sinks": "--sinks",
    "softcap": "--softcap 30",
    "variable_lengths": "--query-lengths 3,5",
    "window": "--window 4,0",
}


@pytest.mark.parametrize("name", WITH_FIELDS)
@pytest.mark.parametrize("backend", backends(), ids=lambda each: each.name)
def test_each_refuses_by_name_what_torch_has_no_argument_for_or_takes_it(
    backend: AttentionBackend, name: str
) -> None:
    (wording,) = parse(f"--shape 1,4,8,64 --dtype float16 {WITH_FIELDS[name]}")
    refused = any(
        reason.code == BEYOND_TORCH[name].code
        for device in DEVICES
        for reason in backend.unsupported_reasons(wording.problem(device))
    )

    assert refused == (name not in backend.takes)


@given(problems())
@settings(max_examples=400)
def test_each_gives_what_is_right_or_its_reasons(asked: tuple[AttentionProblem, Tensors]) -> None:
    problem, tensors = asked
    case: Case | None = None
    for backend in backends():
        note(backend.name)
        reasons = backend.unsupported_reasons(problem)
        missing = reasons or backend.missing_parts()
        if missing:
            with pytest.raises(NoBackend) as caught:
                backend.run(problem, *tensors)
            assert caught.value.reasons == missing
            if "logsumexp" in backend.takes:
                with pytest.raises(NoBackend):
                    backend.run_with_logsumexp(problem, *tensors)
        elif problem.platform == "cpu":
            event(f"{backend.name} computes")
            case = case or Case(problem, tensors)
            for level, scope in levels(backend):
                with scope:
                    require_right(backend, case, level)
