"""An attention problem in the words that people type: `--shape 2,8,1024,64 --dtype bfloat16 --causal`.

The same words are the options of `backends sdpa` and the lines of a problem file; # begins a comment.
A comma-separated list gives one problem for each of its items, so one line can describe a grid.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import isfinite, prod

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from mlbackends.base.element_types import ITEM_BYTES, element_type
from mlbackends.base.errors import (
    BadInput,
    InvalidProblem,
    MlBackendsError,
    UnknownName,
    counted,
    shown,
)
from mlbackends.base.tables import table
from mlbackends.host.files import named_bytes
from mlbackends.model.problem import AttentionProblem, TensorSpec, contiguous_strides
from mlbackends.model.records import Device
from mlbackends.sdpa import named_devices

LAYOUTS = ("bhsd", "bshd")
MASKS = ("none", "causal", "lower-right", "bool", "float")
#: The most problems in one run.
MOST_PROBLEMS = 10_000
_LARGEST = 1 << 40
_MOST_BYTES = 1 << 62
_MOST_SIZES = 8
_MOST_TEXT = 1 << 20
#: The words whose values contain commas.
_LISTS = ("shape", "window", "query-lengths", "key-lengths")


class Wording(Struct, frozen=True, kw_only=True):
    """One problem as it is typed; None where the size of the query is used, "" for the device's dtype.

    shape: (..., H, L, E). mask: one of MASKS, or "bool:SIZES" or "float:SIZES" for a mask that is broadcast.
    layout: bshd for tensors stored as (B, L, H, E). backward: query, key, value and sinks require gradients.
    mask_gradient: the mask requires one too, which implies backward. seed: for the values and for dropout.
    sinks, alibi: each head has a sink, or a slope. page_size: of key and value. The other fields are as in
    AttentionProblem.
    """

    shape: tuple[int, ...]
    kv_len: int | None = None
    kv_heads: int | None = None
    value_dim: int | None = None
    dtype: str = ""
    mask: str = "none"
    dropout: float = 0.0
    scale: float | None = None
    gqa: bool = False
    window: tuple[int, ...] | None = None
    lower_right: bool = False
    softcap: float = 0.0
    sinks: bool = False
    alibi: bool = False
    query_lengths: tuple[int, ...] | None = None
    key_lengths: tuple[int, ...] | None = None
    page_size: int | None = None
    layout: str = "bhsd"
    backward: bool = False
    mask_gradient: bool = False
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mask_gradient:
            force_setattr(self, "backward", True)
        if not self.dtype:
            force_setattr(self, "dtype", named_devices.usual_dtype(self.device))
        if self.lower_right and self.mask in ("causal", "lower-right"):
            force_setattr(self, "mask", "lower-right")
            force_setattr(self, "lower_right", False)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that describe it, without those that have their usual value."""
        found: list[str] = []
        for name, word in WORDS.items():
            value = getattr(self, word.field)
            if word.flag:
                found += [f"--{name}"] if value == word.flag_value else []
            elif name == "dtype" and named_devices.usual_dtype(self.device) != word.usual:
                found += [f"--{name}", value]  # the element type matters most on a GPU
            elif value != word.usual and not (word.field == "mask" and value in ("causal", "none")):
                found += [f"--{name}", _written(value)]
        return tuple(found)

    @property
    def text(self) -> str:
        """The line that describes it."""
        return " ".join(self.words)

    def problem(self, device: Device) -> AttentionProblem:
        """Return the problem on a device. Raises InvalidProblem for a combination that is not possible."""
        _refuse(self)
        *leading, heads, length, width = (1,) * (3 - len(self.shape)) + self.shape
        kv_heads = heads if self.kv_heads is None else self.kv_heads
        kv_len = length if self.kv_len is None else self.kv_len
        value_dim = width if self.value_dim is None else self.value_dim
        keys = self.key_lengths or self.query_lengths or ()
        front, table = tuple(leading), None
        if self.page_size:
            keys = keys or (kv_len,) * prod(leading)
            pages = [-(-key // self.page_size) for key in keys]
            table = TensorSpec((len(keys), max(pages, default=0)), "int32")
            front, kv_len = (max(sum(pages), 1),), self.page_size
        elif keys and self.kv_len is None:
            kv_len = sum(keys)

        def spec(front: tuple[int, ...], heads: int, length: int, width: int) -> TensorSpec:
            shape = (*front, heads, length, width)[-max(len(self.shape), 2) :]
            strides = contiguous_strides(shape)
            if self.layout == "bshd":
                lain = contiguous_strides((*front, length, heads, width))
                strides = (*lain[:-3], lain[-2], lain[-3], lain[-1])
            return TensorSpec(shape, self.dtype, strides, requires_grad=self.backward)

        kind, _, sizes = self.mask.partition(":")
        mask = None
        if kind in ("bool", "float"):
            shape = _sizes("mask", sizes) if sizes else (length, kv_len)
            dtype = "bool" if kind == "bool" else self.dtype
            mask = TensorSpec(shape, dtype, requires_grad=self.mask_gradient)
        sinks = TensorSpec((max(heads, kv_heads),), self.dtype, requires_grad=self.backward)
        try:
            return AttentionProblem(
                query=spec(tuple(leading), heads, length, width),
                key=spec(front, kv_heads, kv_len, width),
                value=spec(front, kv_heads, kv_len, value_dim),
                mask=mask,
                dropout=self.dropout,
                is_causal=self.mask in ("causal", "lower-right"),
                lower_right=self.mask == "lower-right" or self.lower_right,
                enable_gqa=self.gqa,
                scale=self.scale,
                seed=self.seed,
                window=(-1, -1) if self.window is None else (self.window[0], self.window[1]),
                softcap=self.softcap,
                sinks=sinks if self.sinks else None,
                alibi_slopes=replace(sinks, requires_grad=False) if self.alibi else None,
                query_lengths=self.query_lengths or (),
                key_lengths=keys,
                page_table=table,
                device=device,
            )
        except InvalidProblem as error:
            hint = error.hint.replace("set enable_gqa=True", "add --gqa")
            raise InvalidProblem(str(error), hint) from None


# ---- the words -----------------------------------------------------------------


def _wrong(name: str, problem: str) -> BadInput:
    return BadInput(f"--{name}{problem}", f"write --{name} {WORDS[name].example}")


def _whole(name: str, text: str, largest: int = _LARGEST) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 20 or int(text) > largest:
        raise _wrong(name, f": {shown(text)} is not a whole number from 0 to {largest}")
    return int(text)


def _number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        raise _wrong(name, f": {shown(text)} is not a finite number")
    return found


def _sizes(name: str, text: str) -> tuple[int, ...]:
    if "," in text and (mixed := re.search("[xX×]", text)):
        hint = f"repeat --{name} for several problems"
        raise BadInput(f"--{name}: {shown(text)} has both ',' and {mixed[0]!r}", hint)
    return tuple(_whole(name, part) for part in re.split("[,xX×]", text))


def _window(name: str, text: str) -> tuple[int, ...]:
    sides = tuple(-1 if side == "-1" else _whole(name, side) for side in text.split(","))
    if len(sides) != 2:
        raise _wrong(name, f" {shown(text)} has {counted(len(sides), 'side')}; it needs two")
    return sides


def _query_shape(name: str, text: str) -> tuple[int, ...]:
    shape = _sizes(name, text)
    if not 2 <= len(shape) <= _MOST_SIZES:
        expected = f"L,E or H,L,E or B,H,L,E, or more leading sizes: 2 to {_MOST_SIZES} sizes"
        found = f"{shown(text)} has {counted(len(shape), 'size')}"
        raise _wrong(name, f" {found}; it needs {expected}")
    return shape


def _one_of(*names: str) -> Callable[[str, str], str]:
    """Return a reader that accepts these names."""

    def read(name: str, text: str) -> str:
        if text not in names:
            raise UnknownName(name, text, names)
        return text

    return read


def _mask(name: str, text: str) -> str:
    """Return a mask as a Wording has it; a shape alone is a float mask."""
    kind, colon, sizes = text.partition(":")
    if text[:1].isdecimal():
        kind, colon, sizes = "float", ":", text
    if not colon:
        return _one_of(*MASKS)("mask", text)
    return f"{_one_of('bool', 'float')('mask with a shape', kind)}:{_written(_sizes(name, sizes))}"


def _members(name: str, text: str) -> list[str]:
    """Split a comma-separated list; in a list of masks a number continues the shape before it."""
    if name != "mask":
        return [text] if name in _LISTS else text.split(",")
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
    """A word of a problem: a row of problem_words.json.

    field: of Wording. usual: the value without the word. flag_value: the value of a word that takes none.
    example: a value, for messages.
    """

    field: str
    help: str
    metavar: str = ""
    usual: object = None
    flag_value: object = None
    example: str = "8"

    @property
    def flag(self) -> bool:
        """Whether it takes no value."""
        return self.flag_value is not None


#: Every word, as it is typed after `--`; the options of `backends sdpa` are made from it.
WORDS = msgspec.convert(table("sdpa/problem_words"), dict[str, Word])
#: Readers of values; the words without one here take a whole number.
_READERS: dict[str, Callable[[str, str], object]] = {
    "shape": _query_shape,
    "dtype": lambda _, text: element_type(text),
    "mask": _mask,
    "dropout": _number,
    "scale": _number,
    "softcap": _number,
    "window": _window,
    "query-lengths": _sizes,
    "key-lengths": _sizes,
    "layout": _one_of(*LAYOUTS),
    "device": lambda _, text: named_devices.canonical(text),
    "seed": lambda name, text: _whole(name, text, (1 << 63) - 1),
}

#: Words with their values as text; the value of a flag is "".
Given = Mapping[str, Sequence[str]]


def wordings(given: Given) -> tuple[Wording, ...]:
    """Return every problem that words describe, in the order of the lists.

    Raises BadInput or UnknownName for a wrong value, InvalidProblem for a combination that is not possible.
    """
    if not given.get("shape"):
        raise BadInput("no problem is given", "add --shape B,H,L,E or --problems FILE")
    axes: dict[str, list[object]] = {}
    for name, texts in given.items():
        word = WORDS[name]
        if not texts:
            continue
        values = [word.flag_value]
        if not word.flag:
            read = _READERS.get(name, _whole)
            values = [read(name, part) for text in texts for part in _members(name, text)]
        if word.field == "mask" and word.field in axes:
            raise InvalidProblem(
                "torch refuses --causal together with --mask: fold causality into the mask",
                "for two problems, write --mask causal,bool",
            )
        axes[word.field] = list(dict.fromkeys(values))
    count = prod(map(len, axes.values()))
    if count > MOST_PROBLEMS:
        raise BadInput(f"these are {count} problems; the limit is {MOST_PROBLEMS}")
    found = [
        Wording(**dict(zip(axes, values, strict=True)))  # type: ignore[arg-type]
        for values in product(*axes.values())
    ]
    for part in found:
        part.problem(Device("cpu", 0))  # raises for what no device can compute
    return tuple(found)


def parse(line: str, usual: Given | None = None) -> tuple[Wording, ...]:
    """Return the problems that a line describes. usual: words that apply where the line has no other value.

    Raises what `wordings` raises.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise BadInput(f"{shown(line)} cannot be read: {error}") from None
    given: dict[str, list[str]] = {}
    rest = iter(words)
    for part in rest:
        name, equals, text = part.removeprefix("--").partition("=")
        if not part.startswith("--"):
            raise BadInput(f"{shown(part)} is not an option of a problem", "options begin with --")
        if name not in WORDS:
            raise UnknownName("option of a problem", name, tuple(WORDS))
        if WORDS[name].flag and equals:
            raise BadInput(f"--{name} does not accept a value")
        if not WORDS[name].flag and not equals:
            try:
                text = next(rest)
            except StopIteration:
                raise BadInput(f"--{name} needs a value, {WORDS[name].metavar}") from None
        given.setdefault(name, []).append(text)
    fields = {WORDS[name].field for name in given}
    others = {k: v for k, v in (usual or {}).items() if WORDS[k].field not in fields}
    return wordings({**others, **given})


def read_file(path: str, usual: Given | None = None) -> tuple[Wording, ...]:
    """Return the problems of a file, "-" for standard input. Raises BadInput with file and line."""
    hint = "a problem file has one problem a line, such as --shape 2,8,1024,64 --causal"
    data = named_bytes(path, _MOST_TEXT, "list of problems", hint=hint, waits=True)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not text: {error.reason} at byte {error.start}") from None
    path = "standard input" if path == "-" else path
    found: list[Wording] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            found += parse(line, usual)
        except MlBackendsError as error:
            raise BadInput(f"{path}:{number}: {error}", error.hint) from None
        if len(found) > MOST_PROBLEMS:
            raise BadInput(f"{path} has more than {MOST_PROBLEMS} problems")
    if not found:
        raise BadInput(f"{path} has no problem", "write one a line: --shape 2,8,1024,64 --causal")
    return tuple(found)


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    text = str(value)
    return text.removeprefix("float:") if text.startswith("float:") else text


def _refuse(wording: Wording) -> None:
    """Raise InvalidProblem for impossible sizes, and for gradients that no tensor can require."""
    if len(wording.shape) == 2 and (wording.kv_heads is not None or wording.layout == "bshd"):
        word = "--layout bshd" if wording.kv_heads is None else "--kv-heads"
        raise InvalidProblem(f"{word} needs a query with a head dimension: B,H,L,E")
    if wording.page_size == 0:
        raise InvalidProblem("--page-size must be above zero", "write --page-size 16")
    if wording.key_lengths and not (wording.query_lengths or wording.page_size):
        hint = "add --query-lengths or --page-size"
        raise InvalidProblem("--key-lengths needs packed sequences or keys in pages", hint)
    query = [max(size, 1) for size in wording.shape]
    lengths = wording.key_lengths or wording.query_lengths or ()
    rest = (len(lengths) or prod(query[:-3])) * (wording.page_size or 0)
    kv_len = max(wording.kv_len or query[-2], sum(lengths)) + rest
    largest = prod(query[:-3]) * max(wording.kv_heads or 1, *query[-3:-2], 1)
    largest *= max(query[-2], kv_len) * max(query[-1], wording.value_dim or 1)
    if largest * ITEM_BYTES[wording.dtype] > _MOST_BYTES:
        raise InvalidProblem("the tensors would be larger than any address space")
    if wording.backward and not wording.dtype.startswith(("float", "bfloat", "complex")):
        message = f"--backward needs a floating-point type; {wording.dtype} has no gradients"
        raise InvalidProblem(message, "write --dtype float32")
    if wording.mask_gradient and wording.mask.partition(":")[0] != "float":
        hint = "write --mask float or a shape"
        raise InvalidProblem("--mask-gradient needs a float mask", hint)
