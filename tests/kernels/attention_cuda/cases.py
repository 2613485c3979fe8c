"""Attention problems with their tensors in numpy, and what comes out in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends_kernels.tensors import bfloat16

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
    sinks: element type. query_lengths, key_lengths: where there are several. page_size: of keys in pages.
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
    query_lengths: tuple[int, ...] = ()
    key_lengths: tuple[int, ...] = ()
    page_size: int = 0
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
WIDE_WINDOW: dict[str, Any] = {"window": (600, -1), "is_causal": True, "lower_right": True}
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
_HALF, _BFLOAT = ARITHMETICS["float16"], ARITHMETICS["bfloat16"]
_SERVED: dict[str, dict[str, Any]] = {
    "sequences": {
        "sizes": (1, 4, 70, 121, 24, 16),
        "query_lengths": (1, 40, 0, 29),
        "key_lengths": (50, 31, 7, 33),
    },
    "pages": {"sizes": (3, 4, 5, 0, 16, 24), "key_lengths": (40, 0, 100), "page_size": 16},
    "pages of 24 keys": {
        "sizes": (3, 4, 5, 0, 64, 64),
        "key_lengths": (7, 30, 61),
        "page_size": 24,
    },
    "sequences and pages": {
        "sizes": (1, 4, 47, 0, 32, 32),
        "query_lengths": (1, 45, 1),
        "key_lengths": (33, 64, 100),
        "page_size": 16,
    },
}
_DECODED: dict[str, dict[str, Any]] = {
    "one row": {"sizes": (2, 4, 1, 150, 32, 32)},
    "one row of groups": {"sizes": (2, 8, 1, 150, 32, 32), "key_heads": 2, "value_heads": 2},
    "few rows of many groups": {"sizes": (1, 32, 3, 70, 16, 16), "key_heads": 1, "value_heads": 1},
    "groups, value's own": {"sizes": (1, 8, 2, 70, 16, 16), "key_heads": 2, "value_heads": 4},
}
_SEEN: dict[str, dict[str, Any]] = {
    "": {},
    "lower right": LOWER,
    "window": LOWER_WINDOW,
    "window about the row": {"window": (6, 11)},
    "cap": CAPPED | LOWER,
}
#: What flash_cuda computes: 16 bits, no masks, value with the heads of key where there are gradients.
FLASH_CASES: dict[str, Case] = {
    **{
        name: case
        for name, case in CASES.items()
        if case.dtype in ("float16", "bfloat16")
        and case.capability == "9.0"
        and not case.mask[0]
        and case.key_heads == case.value_heads
    },
    **{
        f"{name}, {what or 'all'}, {kind['dtype']}": Case(**kind, **more, options=seen)
        for index, (name, more) in enumerate((_SERVED | _DECODED).items())
        for place, (what, seen) in enumerate(_SEEN.items())
        for kind in ((_HALF, _BFLOAT)[(index + place) % 2],)
    },
    **{
        f"groups in a tile, {what or 'all'}": Case(
            **_HALF, sizes=(1, 12, 30, 70, 16, 8), key_heads=4, value_heads=4, options=seen
        )
        for what, seen in _SEEN.items()
    },
    **{
        f"sinks of {sinks}, {name}": Case(**kind, **more, sinks=sinks, options=LOWER)
        for name, more in {**_DECODED, **_SERVED}.items()
        for kind, sinks in ((_HALF, "float32"), (_BFLOAT, "same"))
        if name != "pages of 24 keys"
    },
    "no scale": Case("float16", PLAIN, options={"scale": 0.0}),
    "negative scale and a cap": Case("float16", PLAIN, options={"scale": -0.5, **CAPPED}),
    "a cap of 1e-3": Case("float16", PLAIN, options={"softcap": 1e-3}),
    "a window of the own key": Case("float16", (1, 1, 70, 70, 8, 8), options={"window": (0, 0)}),
    "rows the same": Case("float16", (1, 2, 70, 90, 16, 8), layout="rows the same", options=LOWER),
    "no sequence": Case("float16", (1, 2, 0, 0, 8, 8), query_lengths=(0,), key_lengths=(0,)),
    "rows that grow": Case("bfloat16", (1, 1, 40, 200, 16, 16), layout="rows grow", size=30.0, slack=2),
    **{
        f"as for sm{chip}, {name}": Case("bfloat16", sizes, capability=f"{chip // 10}.{chip % 10}")
        for chip in (86, 120)
        for name, sizes in (
            ("plain", (1, 2, 140, 131, 64, 64)),
            ("wider", (1, 1, 130, 40, 100, 72)),
        )
    },
}  # fmt: skip
FLASH_WIDE_CASES = {
    f"{width} wide, {dtype}, sm{capability}": Case(
        dtype, (1, 1, 37, 70, width, width - 6), capability=capability, options=LOWER
    )
    for dtype, width, capability in (
        ("float16", 128, "9.0"),
        ("float16", 200, "8.6"),
    )
} | {
    f"one row {width} wide": Case("float16", (1, 2, 1, 99, width, width), capability=capability)
    for width, capability in ((128, "9.0"), (256, "8.6"))
}
_LONG_KEYS: dict[str, dict[str, Any]] = {
    "one row": {"sizes": (1, 2, 1, 900, 32, 32)},
    "groups": {"sizes": (1, 4, 2, 520, 24, 16), "key_heads": 2, "value_heads": 2},
    "many rows": {"sizes": (1, 1, 40, 600, 16, 16)},
    "sequences": {
        "sizes": (1, 2, 31, 690, 16, 16),
        "query_lengths": (1, 30),
        "key_lengths": (600, 90),
    },
    "pages": {"sizes": (2, 4, 1, 0, 16, 16), "key_lengths": (700, 3), "page_size": 32},
}
_SEEN_OF_LONG_KEYS: dict[str, dict[str, Any]] = {
    "all": {"dtype": "float16"},
    "lower right": {"dtype": "bfloat16", "sinks": "same", "options": LOWER},
    "window": {"dtype": "float16", "sinks": "float32", "options": WIDE_WINDOW},
    "cap": {"dtype": "bfloat16", "options": CAPPED},
}
FLASH_PART_CASES = {
    f"{name}, {what}": Case(**more, **seen)
    for what, seen in _SEEN_OF_LONG_KEYS.items()
    for name, more in _LONG_KEYS.items()
}


def stored(array: Any, dtype: str) -> Any:
    """Return numbers in an element type; bfloat16 as patterns."""
    if dtype == "bfloat16":
        return bfloat16.from_float32(np.asarray(array, "float32"))
    return np.asarray(array).astype(dtype)


def numbers(array: Any, dtype: str) -> Any:
    return (bfloat16.to_float32(array) if dtype == "bfloat16" else array).astype("float64")


def laid_out(array: Any, layout: str) -> Any:
    """Return the same elements, lying in memory in another way."""
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
    if layout == "rows the same":
        return np.broadcast_to(laid_out(array[:, :, :1], ""), array.shape)
    # A multiple of 16 bytes, as a GPU's memory has it and numpy's has not.
    aligned = np.zeros(array.nbytes + 16, "u1")
    first = -aligned.ctypes.data % 16
    there = aligned[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    there[...] = array
    return there


_GUARDS = 64


def guarded(shape: tuple[int, ...], dtype: str) -> Any:
    """Return room for a result, with guards on either side; all numbers are 7."""
    whole = stored(np.full(math.prod(shape) + 2 * _GUARDS, 7.0), dtype)
    return whole[_GUARDS:-_GUARDS].reshape(shape)


def is_guarded(array: Any) -> bool:
    """Tell whether the guards of a result are as they were."""
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
        if case.page_size:
            pages = sum(-(-each // case.page_size) for each in case.key_lengths) + 2
            leading |= {name: (pages, leading[name][1]) for name in ("key", "value")}
            keys = case.page_size
        name, _, what = case.ones.partition(" ")
        if name:
            first, second = leading[name]
            leading[name] = (1, second) if what == "batch" else (first, 1)
        sizes = {"query": (rows, wide), "key": (keys, wide), "value": (keys, value_wide)}
        self.case, self.dtype = case, case.dtype
        self.named = {
            name: laid_out(
                stored(
                    rng.standard_normal((*leading[name], *size))
                    * (case.size if name == "query" else 1)
                    * (np.linspace(0, 1, size[0])[:, None] if case.layout == "rows grow" else 1),
                    self.dtype,
                ),
                case.layout,
            )
            for name, size in sizes.items()
        }
        self.sinks_dtype = case.dtype if case.sinks == "same" else case.sinks
        if case.sinks:
            self.named["sinks"] = stored(rng.standard_normal(heads), self.sinks_dtype)
        if case.page_size:
            self.named["page_table"] = self._filled_pages(rng)
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

    def _filled_pages(self, rng: Any) -> Any:
        """Return a table of pages in no order; numbers that no sequence has become NaN."""
        size, lengths = self.case.page_size, self.case.key_lengths
        order = rng.permutation(len(self.named["key"])).astype("int32")
        table = np.full((len(lengths), -(-max(lengths) // size) + 1), 1 << 30, "int32")
        unused, at = np.ones((len(order), size), bool), 0
        for index, keys in enumerate(lengths):
            count = -(-keys // size)
            table[index, :count] = order[at : at + count]
            for key in range(keys):
                unused[order[at + key // size], key % size] = False
            at += count
        for name in ("key", "value"):
            self.named[name].swapaxes(1, 2)[unused] = stored(np.float64("nan"), self.dtype)
        return table

    def dtype_of(self, name: str) -> str:
        kinds = {"mask": self.mask_dtype, "sinks": self.sinks_dtype, "page_table": "int32"}
        return kinds.get(name, self.dtype)

    def problem(self, **more: Any) -> AttentionProblem:
        specs: dict[str, Any] = {
            name: spec(each, self.dtype_of(name)) for name, each in self.named.items()
        }
        device = Device("cuda", 0, capability=self.case.capability)
        lengths: dict[str, Any] = {
            "query_lengths": self.case.query_lengths,
            "key_lengths": self.case.key_lengths,
            "enable_gqa": bool(self.case.key_heads),
        }
        return AttentionProblem(**specs, device=device, **lengths, **self.case.options, **more)

    def operands(self) -> dict[str, Tensor]:
        return {name: operand(each, self.dtype_of(name)) for name, each in self.named.items()}

    def whole(self, name: str) -> Any:
        """Return a tensor's numbers with every batch and head of the result."""
        found = numbers(self.named[name], self.dtype_of(name))
        if name in ("mask", "sinks"):
            return found
        batch, heads = self.output_shape[:2]
        found = found.repeat(heads // found.shape[1], axis=1)
        return np.broadcast_to(found, (batch, *found.shape[1:]))


def kind_of(name: str, dtype: str) -> str:
    floats = ("logsumexp", "summary", "partial", "logarithms")
    return "float32" if name in floats else dtype


def spec(array: Any, dtype: str) -> TensorSpec:
    return TensorSpec(array.shape, dtype, tuple(step // array.itemsize for step in array.strides))


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
    """Return the output and the logarithms, and the gradients of query, key, value and sinks.

    Sequences of several lengths have no gradients.
    """
    case = tensors.case
    if not case.key_lengths:
        return _answer(tensors, *(tensors.whole(name) for name in ("query", "key", "value")))
    query, found, row, key = tensors.whole("query"), [], 0, 0
    for index, (rows, keys) in enumerate(tensors.problem().sequences):
        if case.page_size:
            pages = tensors.named["page_table"][index, : -(-keys // case.page_size)]
            mine = [
                numbers(tensors.named[name][pages], tensors.dtype).swapaxes(1, 2)
                for name in ("key", "value")
            ]
            mine = [each.reshape(-1, *each.shape[2:])[:keys].swapaxes(0, 1)[None] for each in mine]
        else:
            mine = [tensors.whole(name)[:, :, key : key + keys] for name in ("key", "value")]
        mine = [each.repeat(query.shape[1] // each.shape[1], axis=1) for each in mine]
        own = query[:, :, row : row + rows] if case.query_lengths else query[index : index + 1]
        found.append(_answer(tensors, own, *mine))
        row, key = row + rows, key + keys
    axis = 2 if case.query_lengths else 0
    out, logsumexp = ([getattr(each, name) for each in found] for name in ("out", "logsumexp"))
    return Answer(np.concatenate(out, axis), np.concatenate(logsumexp, axis), {})


def _answer(tensors: Tensors, query: Any, key: Any, value: Any) -> Answer:
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
    if problem.key_lengths:
        return Answer(out, logsumexp, {})
    coming = numbers(tensors.grad_out, tensors.dtype)
    along = (coming * out).sum(-1, keepdims=True)
    for_mask = weights * (coming @ value.swapaxes(-1, -2) - along)
    for_scores = for_mask * slope
    whole = {
        "query": for_scores @ key * scale,
        "key": for_scores.swapaxes(-1, -2) @ query * scale,
        "value": weights.swapaxes(-1, -2) @ coming,
    }
    gradients = {name: _summed(each, tensors.named[name].shape) for name, each in whole.items()}
    if tensors.mask is not None and tensors.mask_dtype != "bool":
        own = (*[1] * (4 - tensors.mask.ndim), *tensors.mask.shape)
        repeated = tuple(axis for axis in range(4) if own[axis] == 1)
        gradients["mask"] = for_mask.sum(repeated).reshape(tensors.mask.shape)
    if tensors.sinks_dtype:
        gradients["sinks"] = -(sink_weights * along).sum((0, 2, 3))
    return Answer(out, logsumexp, gradients)


def _summed(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Return a gradient summed over the batches and heads that shared its tensor."""
    if gradient.shape[0] != shape[0]:
        gradient = gradient.sum(0, keepdims=True)
    apart = (gradient.shape[0], shape[1], -1, *gradient.shape[2:])
    return gradient.reshape(apart).sum(2) if gradient.size else np.zeros(shape)


def worst(found: Any, expected: Any, largest: float = 0.0) -> float:
    """Return the largest error, as a share of the largest number; 0 of nothing."""
    if not expected.size:
        return 0.0
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), largest, 1e-3))
