"""Attention problems with their tensors in numpy, and the expected results in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends_kernels.tensors import arithmetic

#: Distance of 1 to the next number.
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
#: The largest error of a result, and of a gradient, as a share of the largest number.
LIMITS = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 2e-6}


@dataclass
class Tensor:
    """An array as `launches` takes it."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Case:
    """One problem. sizes: B, H, L, S, E, Ev. mask: element type, and shape as "B11S".

    ones: "key batch" for a key of one batch. size: of the query's numbers. slack: of the limit.
    sinks: element type.
    """

    dtype: str
    sizes: tuple[int, int, int, int, int, int]
    layout: str = "contiguous"
    mask: tuple[str, str] = ("", "")
    key_heads: int = 0
    value_heads: int = 0
    ones: str = ""
    capability: str = "9.0"
    precision: str = "none"
    size: float = 1.0
    slack: float = 1.0
    sinks: str = ""
    options: dict[str, Any] = field(default_factory=dict)


PLAIN = (2, 2, 33, 39, 24, 16)
ODD = (1, 2, 5, 67, 7, 31)
WIDE = (1, 1, 37, 70, 256, 250)
CAUSAL: dict[str, Any] = {"is_causal": True}
LOWER: dict[str, Any] = {"is_causal": True, "lower_right": True}
#: Every arithmetic: element type, capability and precision.
ARITHMETICS: dict[str, dict[str, Any]] = {
    "float16": {"dtype": "float16"},
    "bfloat16": {"dtype": "bfloat16"},
    "3xTF32": {"dtype": "float32"},
    "full float32": {"dtype": "float32", "precision": "ieee"},
    "full bfloat16": {"dtype": "bfloat16", "capability": "7.5"},
}
LAYOUTS = ("heads after rows", "rows apart", "columns first", "one element on", "rows backwards")
MASK_SHAPES = ("LS", "1S", "L1", "11", "B11S", "1HLS", "HL1", "BHLS")


WINDOW: dict[str, Any] = {"window": (20, 9)}
LOWER_WINDOW: dict[str, Any] = {"window": (17, -1), "is_causal": True, "lower_right": True}
CAPPED: dict[str, Any] = {"softcap": 1.5}


def _each(name: str, **more: Any) -> dict[str, Case]:
    return {f"{name}, {word}": Case(**{**kind, **more}) for word, kind in ARITHMETICS.items()}


CASES: dict[str, Case] = {
    **_each("plain", sizes=PLAIN),
    **_each("odd lengths and widths", sizes=ODD),
    **_each("one row, one key", sizes=(1, 1, 1, 1, 32, 32)),
    **_each("whole tiles", sizes=(1, 1, 64, 64, 32, 32)),
    **_each("several tiles", sizes=(1, 1, 131, 129, 16, 8)),
    **_each("causal", sizes=(1, 2, 65, 65, 32, 32), options=CAUSAL),
    **_each("causal to the lower right", sizes=(1, 1, 35, 70, 8, 9), options=LOWER),
    **_each("rows that see no key", sizes=(1, 2, 70, 35, 8, 9), options=LOWER),
    **_each("window", sizes=(1, 2, 90, 97, 16, 8), options=WINDOW),
    **_each("window to the lower right", sizes=(1, 1, 70, 99, 8, 9), options=LOWER_WINDOW),
    **_each("cap", sizes=PLAIN, options=CAPPED),
    **_each("sinks", sizes=(1, 2, 70, 35, 8, 9), sinks="same", options=LOWER),
    **_each("groups", sizes=(2, 6, 9, 40, 16, 16), key_heads=2, value_heads=2),
    **{
        f"groups, value's own, {word}": Case(
            **ARITHMETICS[word], sizes=(1, 4, 9, 40, 16, 16), key_heads=2, value_heads=4
        )
        for word in ("float16", "full float32")
    },
    **_each("booleans", sizes=PLAIN, mask=("bool", "BHLS")),
    **_each("numbers", sizes=PLAIN, mask=("same", "BHLS")),
    **{
        f"mask of {dtype} {shape}": Case(**kind, sizes=(2, 2, 17, 45, 8, 8), mask=(dtype, shape))
        for shape in MASK_SHAPES
        for kind, dtype in (
            (ARITHMETICS["float16"], "bool"),
            (ARITHMETICS["bfloat16"], "same"),
            (ARITHMETICS["float16"], "float32"),
            (ARITHMETICS["3xTF32"], "float32"),
        )
    },
    **{
        f"{layout}, {word}": Case(**ARITHMETICS[word], sizes=(2, 2, 20, 37, 16, 24), layout=layout)
        for layout in LAYOUTS
        for word in ("float16", "3xTF32", "full bfloat16")
    },
    **{
        f"mask {layout}": Case("float16", (2, 2, 20, 37, 16, 24), layout=layout, mask=("same", "BHLS"))
        for layout in LAYOUTS
    },
    **{
        f"{name} of one {what}": Case("float32", (3, 2, 9, 20, 8, 8), ones=f"{name} {what}")
        for name in ("query", "key", "value")
        for what in ("batch", "head")
    },
    **_each("scores of thousands", sizes=PLAIN, size=1000.0, slack=50.0),
    "no key": Case("float16", (1, 2, 5, 0, 8, 8)),
    "no width": Case("float32", (1, 2, 5, 6, 0, 8)),
    "negative scale": Case("float16", PLAIN, options={"scale": -0.5}),
    "mask of one row, window": Case(
        "float16", (1, 2, 65, 65, 32, 32), mask=("same", "1S"), options={"window": (7, 2)}
    ),
    "mask of one key, several tiles": Case(
        "float32", (1, 2, 131, 129, 16, 8), mask=("float32", "L1")
    ),
    "mask of every head of groups": Case(
        "bfloat16", (2, 6, 9, 40, 16, 16), key_heads=2, value_heads=2, mask=("same", "1HLS")
    ),
    "mask under a softcap": Case("float16", PLAIN, mask=("float32", "LS"), options={"softcap": 2.0}),
    "nothing but -1e9": Case("float32", (1, 1, 9, 40, 8, 8), mask=("-1e9", "LS"), size=0.0),
}  # fmt: skip
WIDE_CASES = {
    f"wide, {word}": Case(**ARITHMETICS[word], sizes=WIDE, mask=("bool", "LS"))
    for word in ("float16", "3xTF32", "full bfloat16")
}


def stored(array: Any, dtype: str) -> Any:
    """Return numbers in an element type; bfloat16 as patterns."""
    if dtype == "bfloat16":
        return arithmetic.bfloat16_from_float32(np.asarray(array, "float32"))
    return np.asarray(array).astype(dtype)


def numbers(array: Any, dtype: str, wide: str = "float64") -> Any:
    """Return the numbers that `stored` gave, in a wider type."""
    found = arithmetic.bfloat16_to_float32(array) if dtype == "bfloat16" else array
    with np.errstate(invalid="ignore"):  # some patterns are NaNs that signal
        return found.astype(wide)


def laid_out(array: Any, layout: str) -> Any:
    """Return the same elements in another memory layout."""
    if layout == "heads after rows":
        return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
    if layout == "columns first":
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "rows apart":
        wider = np.zeros((*array.shape[:2], 2 * array.shape[2], array.shape[3] + 8), array.dtype)
        wider[:, :, ::2, 8:] = array
        return wider[:, :, ::2, 8:]
    if layout == "one element on":
        flat = np.zeros(array.size + 1, array.dtype)
        flat[1:] = array.ravel()
        return flat[1:].reshape(array.shape)
    if layout == "rows backwards":
        return np.ascontiguousarray(array[:, :, ::-1])[:, :, ::-1]
    # A multiple of 16 bytes, as a GPU's memory has it and numpy's has not.
    aligned = np.zeros(array.nbytes + 16, "u1")
    first = -aligned.ctypes.data % 16
    there = aligned[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    there[...] = array
    return there


_GUARDS = 64


def guarded(shape: tuple[int, ...], dtype: str) -> Any:
    """Return memory for a result, with guards on either side; all numbers are 7."""
    whole = stored(np.full(math.prod(shape) + 2 * _GUARDS, 7.0), dtype)
    return whole[_GUARDS:-_GUARDS].reshape(shape)


def is_guarded(array: Any) -> bool:
    """Return whether the guards of a result are unchanged."""
    whole = array if array.base is None else array.base
    return bool((whole[:_GUARDS] == whole[0]).all() and (whole[-_GUARDS:] == whole[0]).all())


class Tensors:
    """The tensors of a case, the same ones each time."""

    def __init__(self, case: Case) -> None:
        batch, heads, rows, keys, wide, value_wide = case.sizes
        rng = np.random.default_rng([*case.sizes, len(case.layout)])
        leading = {
            "query": (batch, heads),
            "key": (batch, case.key_heads or heads),
            "value": (batch, case.value_heads or heads),
        }
        name, _, what = case.ones.partition(" ")
        if name:
            first, second = leading[name]
            leading[name] = (1, second) if what == "batch" else (first, 1)
        sizes = {"query": (rows, wide), "key": (keys, wide), "value": (keys, value_wide)}
        self.case, self.dtype = case, case.dtype
        self.named = {
            name: laid_out(
                stored(
                    rng.standard_normal((*leading[name], *size)) * (case.size if name == "query" else 1),
                    self.dtype,
                ),
                case.layout,
            )
            for name, size in sizes.items()
        }
        self.sinks_dtype = case.dtype if case.sinks == "same" else case.sinks
        if case.sinks:
            self.named["sinks"] = stored(rng.standard_normal(heads), self.sinks_dtype)
        self.mask, self.mask_dtype = None, ""
        kind, letters = case.mask
        if kind:
            of = dict(zip("BHLS", (batch, heads, rows, keys), strict=True))
            shape = tuple(of.get(letter, 1) for letter in letters)
            made: Any = rng.standard_normal(shape)
            self.mask_dtype = {"same": self.dtype, "-1e9": "float32"}.get(kind, kind)
            if kind == "-1e9":
                made[...] = -1e9
            elif kind == "bool":
                made = made > 0
            else:
                made[made > 1] = -np.inf
            if shape[-2:] == (rows, keys) and kind != "-1e9":
                made[..., 1, :] = False if kind == "bool" else -np.inf  # a row without keys
            made = made if kind == "bool" else stored(made, self.mask_dtype)
            self.mask = laid_out(made, case.layout) if len(shape) == 4 else made
            self.named["mask"] = self.mask
        self.output_shape = (batch, heads, rows, value_wide)
        self.grad_out = stored(rng.standard_normal(self.output_shape), self.dtype)

    def dtype_of(self, name: str) -> str:
        kinds = {"mask": self.mask_dtype, "sinks": self.sinks_dtype}
        return kinds.get(name, self.dtype)

    def problem(self, **more: Any) -> AttentionProblem:
        specs: dict[str, Any] = {name: spec(array, self.dtype_of(name)) for name, array in self.named.items()}
        device = Device("cuda", 0, capability=self.case.capability)
        return AttentionProblem(
            **specs,
            device=device,
            enable_gqa=bool(self.case.key_heads),
            **self.case.options,
            **more,
        )

    def operands(self) -> dict[str, Tensor]:
        return {name: operand(array, self.dtype_of(name)) for name, array in self.named.items()}

    def whole(self, name: str) -> Any:
        """Return a tensor's numbers with every batch and head of the result."""
        found = numbers(self.named[name], self.dtype_of(name))
        if name in ("mask", "sinks"):
            return found
        batch, heads = self.output_shape[:2]
        found = found.repeat(heads // found.shape[1], axis=1)
        return np.broadcast_to(found, (batch, *found.shape[1:]))


def kind_of(name: str, dtype: str) -> str:
    return "float32" if name in ("logsumexp", "summary") else dtype


def spec(array: Any, dtype: str, *, requires_grad: bool = False) -> TensorSpec:
    strides = tuple(step // array.itemsize for step in array.strides)
    return TensorSpec(array.shape, dtype, strides, requires_grad=requires_grad)


def operand(array: Any, dtype: str) -> Tensor:
    strides = tuple(step // array.itemsize for step in array.strides)
    return Tensor(array.ctypes.data, array.shape, strides, dtype)


@dataclass(frozen=True)
class Answer:
    """Attention in float64."""

    out: Any
    logsumexp: Any
    gradients: dict[str, Any]


def answer(tensors: Tensors) -> Answer:
    """Return the output and the logarithms, and the gradients of query, key, value, mask and sinks."""
    query, key, value = (tensors.whole(name) for name in ("query", "key", "value"))
    problem = tensors.problem()
    scale = (problem.head_dim or 1) ** -0.5 if problem.scale is None else problem.scale
    scores, slope = query @ key.swapaxes(-1, -2) * scale, np.float64(1)
    if problem.softcap:
        share = np.tanh(scores / problem.softcap)
        scores, slope = share * problem.softcap, 1 - share**2
    rows, keys = scores.shape[-2:]
    position = np.arange(rows)[:, None] + (keys - rows if problem.lower_right else 0)
    apart = np.arange(keys) - position
    left, right = problem.band
    for hidden in (left >= 0 and apart < -left, right >= 0 and apart > right):
        scores = np.where(hidden, -np.inf, scores)
    if tensors.mask is not None:
        mask = tensors.mask if tensors.mask_dtype == "bool" else tensors.whole("mask")
        scores = np.where(mask, scores, -np.inf) if tensors.mask_dtype == "bool" else scores + mask
    sinks = np.full((query.shape[1], 1, 1), -np.inf)
    if tensors.sinks_dtype:
        sinks = numbers(tensors.named["sinks"], tensors.sinks_dtype)[:, None, None]
    top = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), sinks)
    top = np.where(top == -np.inf, 0, top)
    weights, sink_weights = np.exp(scores - top), np.exp(sinks - top)
    total = weights.sum(-1, keepdims=True) + sink_weights
    blind = total == 0
    total = np.where(blind, 1, total)
    weights, sink_weights = weights / total, sink_weights / total
    logsumexp = np.where(blind, 0, top + np.log(total))[..., 0]
    out = weights @ value
    coming = numbers(tensors.grad_out, tensors.dtype)
    along = (coming * out).sum(-1, keepdims=True)
    for_mask = weights * (coming @ value.swapaxes(-1, -2) - along)
    for_scores = for_mask * slope
    whole = {
        "query": for_scores @ key * scale,
        "key": for_scores.swapaxes(-1, -2) @ query * scale,
        "value": weights.swapaxes(-1, -2) @ coming,
    }
    if tensors.mask is not None and tensors.mask_dtype != "bool":
        whole["mask"] = for_mask
    gradients = {name: gathered(gradient, tensors.named[name].shape) for name, gradient in whole.items()}
    if tensors.sinks_dtype:
        gradients["sinks"] = -(sink_weights * along).sum((0, 2, 3))
    return Answer(out, logsumexp, gradients)


def gathered(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Return a gradient summed over what was repeated or broadcast from a tensor of this shape."""
    gradient = gradient.sum(tuple(range(gradient.ndim - len(shape))))
    for axis, size in enumerate(shape):
        if size != gradient.shape[axis]:
            split = (size, gradient.shape[axis] // size)
            apart = (*gradient.shape[:axis], *split, *gradient.shape[axis + 1 :])
            gradient = gradient.reshape(apart).sum(axis + 1)
    return gradient


def worst(found: Any, expected: Any, largest: float = 0.0) -> float:
    """Return the largest error, as a share of the largest number; 0 of nothing."""
    if not expected.size:
        return 0.0
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), largest, 1e-3))
