"""An attention problem in the words that people type: `--shape 2,8,1024,64 --dtype bfloat16 --causal`.

The same words are options of `backends sdpa` and lines of a file, one problem a line; # begins a comment.
A list with commas stands for each of its members, so that a line may be a whole grid.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import isfinite, prod

from msgspec import Struct
from msgspec.structs import force_setattr

from mlbackends.model.errors import BadInput, InvalidProblem, UnknownName, counted, shown
from mlbackends.model.problem import (
    ITEM_BYTES,
    AttentionProblem,
    TensorSpec,
    contiguous_strides,
    element_type,
)
from mlbackends.model.records import Device
from mlbackends.sdpa import named_devices

LAYOUTS = ("bhsd", "bshd")
MASKS = ("none", "causal", "lower-right", "bool", "float")
MOST_PROBLEMS = 10_000
"""So many at once."""
_LARGEST = 1 << 40
_MOST_BYTES = 1 << 62
_MOST_SIZES = 8


class Wording(Struct, frozen=True, kw_only=True):
    """One problem as it is typed; None where the query's size counts.

    shape: (..., H, L, E). mask: one of MASKS, or "bool:SIZES" and "float:SIZES" for one that is
    broadcast. layout: bshd for tensors that lie in memory as (B, L, H, E). backward: whether query, key
    and value require gradients. mask_gradient: whether the mask does too, which is backward as well.
    seed: of the values, and of what dropout drops.
    """

    shape: tuple[int, ...]
    kv_len: int | None = None
    kv_heads: int | None = None
    value_dim: int | None = None
    dtype: str = "float32"
    mask: str = "none"
    dropout: float = 0.0
    scale: float | None = None
    gqa: bool = False
    layout: str = "bhsd"
    backward: bool = False
    mask_gradient: bool = False
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mask_gradient:
            force_setattr(self, "backward", True)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that stand for it; what is as usual is left out."""
        found: list[str] = []
        for name, word in WORDS.items():
            value = getattr(self, word.field)
            if word.flag:
                found += [f"--{name}"] if value == word.flag_value else []
            elif value != word.usual and not (word.field == "mask" and value in ("causal", "none")):
                found += [f"--{name}", _written(value)]
        return tuple(found)

    @property
    def text(self) -> str:
        """The line that stands for it."""
        return " ".join(self.words)

    def problem(self, device: Device) -> AttentionProblem:
        """Return the problem on a device. Raises InvalidProblem where it makes no sense."""
        _refuse(self)
        *leading, heads, length, width = (1,) * (3 - len(self.shape)) + self.shape
        kv_heads = heads if self.kv_heads is None else self.kv_heads
        kv_len = length if self.kv_len is None else self.kv_len
        value_dim = width if self.value_dim is None else self.value_dim

        def spec(heads: int, length: int, width: int) -> TensorSpec:
            shape = (*leading, heads, length, width)[-max(len(self.shape), 2) :]
            strides = contiguous_strides(shape)
            if self.layout == "bshd":
                lain = contiguous_strides((*leading, length, heads, width))
                strides = (*lain[:-3], lain[-2], lain[-3], lain[-1])
            return TensorSpec(shape, self.dtype, strides, requires_grad=self.backward)

        kind, _, sizes = self.mask.partition(":")
        mask = None
        if kind in ("bool", "float"):
            shape = _sizes("mask", sizes) if sizes else (length, kv_len)
            dtype = "bool" if kind == "bool" else self.dtype
            mask = TensorSpec(shape, dtype, requires_grad=self.mask_gradient)
        try:
            return AttentionProblem(
                query=spec(heads, length, width),
                key=spec(kv_heads, kv_len, width),
                value=spec(kv_heads, kv_len, value_dim),
                mask=mask,
                dropout=self.dropout,
                is_causal=self.mask in ("causal", "lower-right"),
                lower_right=self.mask == "lower-right",
                enable_gqa=self.gqa,
                scale=self.scale,
                seed=self.seed,
                device=device,
            )
        except InvalidProblem as error:
            hint = error.hint.replace("say enable_gqa=True", "add --gqa")
            raise InvalidProblem(str(error), hint) from None


# ---- the words -----------------------------------------------------------------


def _whole(name: str, text: str, largest: int = _LARGEST) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 20 or int(text) > largest:
        message = f"--{name}: {shown(text)} is no whole number from 0 to {largest}"
        raise BadInput(message, _example(name))
    return int(text)


def _number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        raise BadInput(f"--{name}: {shown(text)} is no finite number", _example(name))
    return found


def _example(name: str) -> str:
    return f"write --{name} {WORDS[name].example}"


def _sizes(name: str, text: str) -> tuple[int, ...]:
    return tuple(_whole(name, part) for part in text.split(","))


def _query_shape(name: str, text: str) -> tuple[int, ...]:
    shape = _sizes(name, text)
    if not 2 <= len(shape) <= _MOST_SIZES:
        takes = f"L,E or H,L,E or B,H,L,E, and more batches before: 2 to {_MOST_SIZES} sizes"
        seen = f"--{name} {shown(text)} has {counted(len(shape), 'size')}"
        raise BadInput(f"{seen}; it takes {takes}", _example(name))
    return shape


def _one_of(*names: str) -> Callable[[str, str], str]:
    """Return what reads one of some names."""

    def read(name: str, text: str) -> str:
        if text not in names:
            raise UnknownName(name, text, names)
        return text

    return read


def _element_type(_: str, text: str) -> str:
    return element_type(text)


def _device(_: str, text: str) -> str:
    return named_devices.canonical(text)


def _mask(name: str, text: str) -> str:
    """Return a mask as a Wording has it: a bare shape is one of numbers."""
    kind, colon, sizes = text.partition(":")
    if text[:1].isdecimal():
        kind, colon, sizes = "float", ":", text
    if not colon:
        return _one_of(*MASKS)("mask", text)
    return f"{_one_of('bool', 'float')('mask with a shape', kind)}:{_written(_sizes(name, sizes))}"


def _split_masks(text: str) -> list[str]:
    """Split a list of masks: a number continues the shape before it."""
    found: list[str] = []
    open_shape = False
    for part in text.split(","):
        if part.isdecimal() and open_shape:
            found[-1] += f",{part}"
        else:
            found.append(part)
            open_shape = part.isdecimal() or ":" in part
    return found


class Word(Struct, frozen=True):
    """A word of a problem.

    field: of Wording. read: makes one value of a text, or raises. split: a text into those of its
    members. usual: the value without the word. flag_value: the value of a word without a text.
    example: a value, for messages.
    """

    field: str
    help: str
    metavar: str = ""
    read: Callable[[str, str], object] = _whole
    split: Callable[[str], list[str]] = lambda text: text.split(",")
    usual: object = None
    flag_value: object = None
    example: str = "8"

    @property
    def flag(self) -> bool:
        """Whether it has no text of its own."""
        return self.flag_value is not None


WORDS = {
    "shape": Word(
        "shape",
        "Batch, heads, length and width of the query, or L,E or H,L,E, or more batches before (8 sizes at"
        " most); several --shape are several problems.",
        "B,H,L,E",
        _query_shape,
        lambda text: [text],
        example="2,8,1024,64",
    ),
    "kv-len": Word("kv_len", "Length of key and value.  [default: L]", "S"),
    "kv-heads": Word("kv_heads", "Heads of key and value.  [default: H]", "N"),
    "value-dim": Word("value_dim", "Width of the value.  [default: E]", "EV"),
    "dtype": Word(
        "dtype",
        "Element type: float32, bfloat16 (or bf16), float16, float64.  [default: float32]",
        "TYPE",
        _element_type,
        usual="float32",
    ),
    "causal": Word("mask", "Each row sees the keys up to its own.", flag_value="causal"),
    "mask": Word(
        "mask",
        "bool, float, or the SHAPE of one that is broadcast, such as bool:2,1,64,64; also none, causal and"
        " lower-right, which ends in that corner.",
        "MASK",
        _mask,
        _split_masks,
        usual="none",
        example="bool:2,1,64,64",
    ),
    "dropout": Word(
        "dropout", "Probability that a weight is dropped.", "P", _number, usual=0.0, example="0.1"
    ),
    "scale": Word(
        "scale", "Factor of the scores.  [default: 1/sqrt(E)]", "X", _number, example="0.125"
    ),
    "gqa": Word("gqa", "Heads of key and value serve groups of query heads.", flag_value=True),
    "layout": Word(
        "layout",
        "How the tensors lie in memory: bhsd, or bshd, which has the heads inside.  [default: bhsd]",
        "ORDER",
        _one_of(*LAYOUTS),
        usual="bhsd",
    ),
    "backward": Word(
        "backward",
        "Query, key and value require gradients: the problem is the backward pass.",
        flag_value=True,
    ),
    "mask-gradient": Word(
        "mask_gradient",
        "The mask, one of numbers, requires a gradient too; --backward is meant with it.",
        flag_value=True,
    ),
    "device": Word(
        "device",
        "Where: cpu, cuda, or one that is not here: sm90, h100, mi300x, cpu:avx2.  [default: cpu]",
        "NAME",
        _device,
        usual="cpu",
    ),
    "seed": Word(
        "seed",
        "Of the values.  [default: 0]",
        "N",
        lambda name, text: _whole(name, text, (1 << 63) - 1),
        usual=0,
    ),
}
"""Every word, as it is typed behind `--`; the options of `backends sdpa` are made from it."""

Given = Mapping[str, Sequence[str]]
"""Words with the texts behind them; a flag has the text ""."""


def wordings(given: Given) -> tuple[Wording, ...]:
    """Return every problem that words stand for, in the order of the lists.

    Raises BadInput or UnknownName for a text that is no value, InvalidProblem for what makes no sense.
    """
    if not given.get("shape"):
        raise BadInput("no problem is given", "say --shape B,H,L,E or --problems FILE")
    axes: dict[str, list[object]] = {}
    for name, texts in given.items():
        word = WORDS[name]
        if not texts:
            continue
        values = [word.flag_value]
        if not word.flag:
            values = [word.read(name, part) for text in texts for part in word.split(text)]
        if word.field == "mask" and word.field in axes:
            raise InvalidProblem(
                "Explicit attn_mask should not be set when is_causal=True",
                "say --mask causal,bool for two problems",
            )
        axes[word.field] = list(dict.fromkeys(values))
    count = prod(map(len, axes.values()))
    if count > MOST_PROBLEMS:
        raise BadInput(f"these are {count} problems; {MOST_PROBLEMS} are the most at once")
    found = [
        Wording(**dict(zip(axes, values, strict=True)))  # type: ignore[arg-type]
        for values in product(*axes.values())
    ]
    for each in found:
        each.problem(Device("cpu", 0))  # raises for what has no answer anywhere
    return tuple(found)


def parse(line: str, usual: Given | None = None) -> tuple[Wording, ...]:
    """Return the problems that a line stands for. usual: words that hold where the line says nothing.

    Raises as `wordings` does.
    """
    import shlex

    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise BadInput(f"{shown(line)} cannot be read: {error}") from None
    given: dict[str, list[str]] = {}
    rest = iter(words)
    for each in rest:
        name, equals, text = each.removeprefix("--").partition("=")
        if not each.startswith("--"):
            raise BadInput(f"{shown(each)} is no word of a problem", "each begins with --")
        if name not in WORDS:
            raise UnknownName("word of a problem", name, tuple(WORDS))
        if WORDS[name].flag and equals:
            raise BadInput(f"--{name} takes no value")
        if not WORDS[name].flag and not equals:
            try:
                text = next(rest)
            except StopIteration:
                raise BadInput(f"--{name} needs a value, {WORDS[name].metavar}") from None
        given.setdefault(name, []).append(text)
    fields = {WORDS[name].field for name in given}
    others = {k: v for k, v in (usual or {}).items() if WORDS[k].field not in fields}
    return wordings({**others, **given})


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    text = str(value)
    return text.removeprefix("float:") if text.startswith("float:") else text


def _refuse(wording: Wording) -> None:
    """Raise InvalidProblem for sizes that no tensor has, and gradients that no tensor can require."""
    if len(wording.shape) == 2 and (wording.kv_heads is not None or wording.layout == "bshd"):
        word = "--layout bshd" if wording.kv_heads is None else "--kv-heads"
        raise InvalidProblem(f"{word} needs a query with a dimension of heads: B,H,L,E")
    query = [max(size, 1) for size in wording.shape]
    kv_len = wording.kv_len or query[-2]
    largest = prod(query[:-3]) * max(wording.kv_heads or 1, *query[-3:-2], 1)
    largest *= max(query[-2], kv_len) * max(query[-1], wording.value_dim or 1)
    if largest * ITEM_BYTES[wording.dtype] > _MOST_BYTES:
        raise InvalidProblem("the tensors would be larger than what any machine can address")
    if wording.backward and not wording.dtype.startswith(("float", "bfloat", "complex")):
        message = f"--backward needs numbers that have gradients; {wording.dtype} has none"
        raise InvalidProblem(message, "say --dtype float32")
    if wording.mask_gradient and wording.mask.partition(":")[0] != "float":
        hint = "say --mask float or a shape"
        raise InvalidProblem("--mask-gradient needs a mask of numbers", hint)
