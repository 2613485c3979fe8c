"""An attention problem as records: shapes, types, strides and the device, without tensors.

    weights = softmax(query @ transposed(key) * scale + mask)        output = weights @ value

Shapes: query (..., H, L, E), key (..., Hkv, S, E), value (..., Hkv, S, Ev), mask broadcastable to
(..., H, L, S); the output is (..., H, L, Ev). Sequences of several lengths lie one after another in a
batch of one, or have their keys in pages. A problem that no backend could ever answer cannot be made, so
nothing that reads one has to check it again.
"""

from math import isfinite, prod

from msgspec import Struct, field
from msgspec.structs import force_setattr

from mlbackends.base.element_types import ITEM_BYTES, element_type
from mlbackends.base.errors import InvalidProblem, UnknownName
from mlbackends.base.reasons import Reason
from mlbackends.model.records import Device


class TensorSpec(Struct, frozen=True):
    """A tensor without its values.

    strides and storage_offset: in elements; left out, the tensor is contiguous. device: where it
    lies, such as "cpu" or "cuda:1"; left out, it is where the problem is. dtype: any name that
    `element_type` takes, kept as torch's.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] = ()
    device: str = ""
    requires_grad: bool = False
    nested: bool = False
    storage_offset: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            try:
                force_setattr(self, "dtype", element_type(self.dtype))
            except UnknownName as error:
                raise InvalidProblem(str(error), error.hint) from None
        if min(self.shape, default=0) < 0:
            raise InvalidProblem(f"a tensor of shape {list(self.shape)} has a negative size")
        if self.storage_offset < 0:
            raise InvalidProblem(f"a storage offset of {self.storage_offset} is before the storage")
        if not self.strides:
            force_setattr(self, "strides", contiguous_strides(self.shape))
        elif len(self.strides) != len(self.shape):
            raise InvalidProblem(
                f"a tensor of shape {list(self.shape)} needs {len(self.shape)} strides;"
                f" it has {list(self.strides)}"
            )

    @property
    def elements(self) -> int:
        """How many values it holds."""
        return prod(self.shape)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a tensor whose last dimension varies fastest."""
    strides = [1] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        strides[place] = strides[place + 1] * max(shape[place + 1], 1)
    return tuple(strides)


class AttentionProblem(Struct, frozen=True, kw_only=True):
    """One call of scaled-dot-product attention, without the values.

    scale: None for 1/sqrt(E). dropout: the probability that a weight is dropped. seed: says which are,
    the same ones for every backend of ours (see `mlbackends_kernels.tensors.dropout`);
    None draws one from the generator of torch or NumPy, which the caller may have seeded.
    is_causal: row i sees the keys up to its own position, which is i, or i + S - L with lower_right.
    window: how many keys to the left and to the right of its own position a row sees, -1 for all.
    softcap: scores become softcap * tanh(scores / softcap) before masks; 0 for none.
    sinks: (H,), one more score for each head, neither scaled nor capped nor masked, which counts in the
    sum of every row and has no value. logsumexp includes it: it is the sink itself for a row without keys,
    whose output is 0. Source: gpt-oss; FlashAttention's learnable_sink has the same logsumexp.
    alibi_slopes: (H,), a score is lowered by its head's slope times the distance of the key from the row's
    own position, after the softcap and before masks; they have no gradient. Source: Press and others 2022.
    query_lengths, key_lengths: of sequences that lie one after another along L and S of tensors
    (1, H, T, E), each of which attends to itself alone: positions count within a sequence.
    page_table: (B, most pages) of int32, the pages that hold the keys of each sequence, in order; key is
    (pages, Hkv, page size, E), value likewise, and key_lengths has how many keys count of each sequence.
    The query is (B, H, L, E), or (1, H, T, E) of query_lengths.
    inner_dtype: the type to compute in; "" for float32 where the elements have 16 bits, and their own
    otherwise; "float64" for a result to measure others by; the 16-bit type itself where a backend may
    round to it between its steps.
    logsumexp: the logarithm of the sum of each row's exponentials is wanted beside the output.
    device: the record of the processor that holds the tensors; its capability is "9.0" or "gfx942".
    """

    query: TensorSpec
    key: TensorSpec
    value: TensorSpec
    mask: TensorSpec | None = None
    dropout: float = 0.0
    is_causal: bool = False
    lower_right: bool = False
    enable_gqa: bool = False
    scale: float | None = None
    seed: int | None = None
    inner_dtype: str = ""
    logsumexp: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    sinks: TensorSpec | None = None
    alibi_slopes: TensorSpec | None = None
    query_lengths: tuple[int, ...] = ()
    key_lengths: tuple[int, ...] = ()
    page_table: TensorSpec | None = None
    device: Device = field(default_factory=lambda: Device("cpu", 0))

    def __post_init__(self) -> None:
        _check_tensors(self)
        if not (isfinite(self.dropout) and 0 <= self.dropout <= 1):
            raise InvalidProblem(f"dropout probability has to be between 0 and 1, but got {self.dropout}")
        if not self.is_nested:
            _check_shapes(self)  # else sizes differ within the batch: no number could be compared
        if self.query_lengths or self.key_lengths or self.page_table is not None:
            _check_sequences(self)
        if self.mask is not None:
            _check_mask(self, self.mask)
        if self.inner_dtype not in ("", "float32", "float64", self.dtype):
            raise InvalidProblem(
                f"inner_dtype is {self.inner_dtype!r}; it must be float32, float64 or {self.dtype}"
            )
        if min(self.window) < -1:
            raise InvalidProblem(f"window is {self.window}; a side is a count of keys, or -1 for all")
        if not (isfinite(self.softcap) and self.softcap >= 0):
            raise InvalidProblem(f"softcap must be 0 or greater, but got {self.softcap}")
        has_positions = self.is_causal or self.window != (-1, -1) or self.alibi_slopes is not None
        if self.lower_right and not has_positions:
            raise InvalidProblem("lower_right aligns a causal mask or a window; is_causal is False")
        for name in ("sinks", "alibi_slopes"):
            if getattr(self, name) is not None:
                _check_of_heads(self, name, getattr(self, name))

    @property
    def wants_gradient(self) -> bool:
        """Whether query, key, value, a mask or sinks require a gradient."""
        tensors = (self.query, self.key, self.value, self.mask, self.sinks)
        return any(spec is not None and spec.requires_grad for spec in tensors)

    @property
    def is_nested(self) -> bool:
        """Whether a tensor is nested, so that its sizes say nothing."""
        return self.query.nested or self.key.nested or self.value.nested

    @property
    def platform(self) -> str:
        """The kind of the device, a part of a GPU counted as the GPU: cpu, cuda, rocm, ..."""
        return "cuda" if self.device.kind == "mig" else self.device.kind

    @property
    def capability(self) -> tuple[int, int] | None:
        """The CUDA compute capability of the device; None for what has none."""
        major, _, minor = self.device.capability.partition(".")
        if self.platform != "cuda" or not (major.isdecimal() and minor.isdecimal()):
            return None
        return int(major), int(minor)

    @property
    def dtype(self) -> str:
        """The element type of query, key and value."""
        return self.query.dtype

    @property
    def rank(self) -> int:
        """How many dimensions the query has."""
        return len(self.query.shape)

    @property
    def heads(self) -> int:
        """H: heads of the query."""
        return heads_of(self.query)

    @property
    def key_heads(self) -> int:
        """Hkv: heads of the key."""
        return heads_of(self.key)

    @property
    def query_length(self) -> int:
        """L: rows of the query."""
        return self.query.shape[-2]

    @property
    def key_length(self) -> int:
        """S: rows of key and value; where they lie in pages, the most of a sequence."""
        if self.page_table is not None:
            return max(self.key_lengths, default=0)
        return self.key.shape[-2]

    @property
    def sequences(self) -> tuple[tuple[int, int], ...]:
        """The rows and keys of each sequence: (L, S) alone where all of the batch have these."""
        if self.query_lengths:
            return tuple(zip(self.query_lengths, self.key_lengths, strict=True))
        if self.page_table is not None:
            return tuple((self.query_length, keys) for keys in self.key_lengths)
        return ((self.query_length, self.key_length),)

    @property
    def band(self) -> tuple[int, int]:
        """The window, with nothing to the right of a row's own position where is_causal."""
        return (self.window[0], 0) if self.is_causal else self.window

    @property
    def head_dim(self) -> int:
        """E: width of a row of query and key."""
        return self.query.shape[-1]

    @property
    def value_dim(self) -> int:
        """Ev: width of a row of value and output."""
        return self.value.shape[-1]

    @property
    def leading_shape(self) -> tuple[int, ...]:
        """The dimensions before (L, Ev) of the output: batch and heads, broadcast."""
        return broadcast(*_leading(self))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the answer."""
        return (*self.leading_shape, self.query_length, self.value_dim)


class KnownWrong(Struct, frozen=True):
    """A public report of wrong numbers that covers a problem.

    title: the symptom. source: the report, such as pytorch#196678, and url its address. versions: what is
    affected, by name. instead: what avoids it. unpredictable: why the result may still be right, "" if it
    never is.
    """

    title: str
    source: str
    url: str
    versions: dict[str, str]
    instead: str
    unpredictable: str = ""

    @property
    def text(self) -> str:
        """One sentence for people."""
        affected = " and ".join(f"{name} {clauses}" for name, clauses in self.versions.items())
        where = f", {affected}" if affected else ""
        head, when = (
            ("can be wrong here", f"; {self.unpredictable}")
            if self.unpredictable
            else ("known wrong here", "")
        )
        return f"{head}: {self.title} ({self.source}{where}{when}); {self.instead}"


class Verdict(Struct, frozen=True):
    """The verdict of one backend on a problem: `reasons` are all that speak against it, none if it can.

    answers_to: the name of the SDPBackend that stands for it. note: its library's answer, a warning, or why
    the library was not asked; "" without one. known_wrong: reports that its result is wrong. missing:
    packages that are not installed here, for a device that is only described. undecided: whether its library
    decides, and could not be asked.
    """

    backend: str
    answers_to: str
    reasons: tuple[Reason, ...] = ()
    note: str = ""
    missing: tuple[Reason, ...] = ()
    undecided: bool = False
    known_wrong: tuple[KnownWrong, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether it can answer."""
        return not self.reasons and not self.undecided

    @property
    def is_elsewhere(self) -> bool:
        """Whether it computes only on other kinds of devices."""
        return any(reason.code == "wrong-device" for reason in self.reasons)


class Decision(Struct, frozen=True):
    """The backend that computes a problem, "" for none, and all verdicts in the order of asking."""

    problem: AttentionProblem
    chosen: str
    verdicts: tuple[Verdict, ...]

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Every reason of every backend."""
        return tuple(reason for verdict in self.verdicts for reason in verdict.reasons)


def heads_of(spec: TensorSpec) -> int:
    """Return the size of the dimension that holds heads; a tensor of two dimensions is one head."""
    return spec.shape[-3] if len(spec.shape) > 2 else 1


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that all of them extend to, aligned at the end.

    Raises InvalidProblem where two sizes differ and neither is 1.
    """
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        expected = {size for size in sizes if size != 1}
        if len(expected) > 1:
            raise InvalidProblem(
                f"sizes {' and '.join(map(str, sorted(expected)))} do not go together"
                f" in the shapes {', '.join(str(list(shape)) for shape in shapes)}"
            )
        result.append(expected.pop() if expected else 1)
    return tuple(result)


def _check_tensors(problem: AttentionProblem) -> None:
    named = {"query": problem.query, "key": problem.key, "value": problem.value}
    for name, spec in named.items():
        if len(spec.shape) < 2:
            raise InvalidProblem(
                f"{name} must be at least 2 dimensional, (L, E); it has the shape {list(spec.shape)}"
            )
    if len({spec.dtype for spec in named.values()}) > 1:
        dtypes = ", ".join(f"{name} {spec.dtype}" for name, spec in named.items())
        raise InvalidProblem(f"query, key and value must have one element type; got {dtypes}")
    places = {name: spec.device for name, spec in named.items() if spec.device}
    if len(set(places.values())) > 1:
        dtypes = ", ".join(f"{name} on {place}" for name, place in places.items())
        raise InvalidProblem(f"query, key and value must be on one device; got {dtypes}")
    for name, place in places.items():
        if place.partition(":")[0] != problem.platform:
            kind = problem.device.kind
            raise InvalidProblem(f"{name} is on {place}, and the problem's device is {kind}")


def _check_shapes(problem: AttentionProblem) -> None:
    key, value = problem.key, problem.value
    for noun, wanted, other in (
        ("query and key must have the same last dimension", problem.head_dim, key.shape[-1]),
        ("key and value must have the same length", key.shape[-2], value.shape[-2]),
    ):
        if wanted != other:
            raise InvalidProblem(f"{noun}; it is {wanted} and {other}")
    for name, spec in (("key", key), ("value", value)) if problem.enable_gqa else ():
        if len(spec.shape) < 3 or problem.rank < 3:
            raise InvalidProblem("enable_gqa needs a dimension of heads: 3 dimensions or more")
        if not heads_of(spec) or problem.heads % heads_of(spec):
            raise InvalidProblem(
                f"Number of heads in key and value must divide the number of heads in query:"
                f" {name} has {heads_of(spec)}, query {problem.heads}"
            )
    try:
        broadcast(*_leading(problem))
    except InvalidProblem as error:
        heads = {problem.key_heads, heads_of(value)} - {problem.heads}
        grouped = heads and all(head and not problem.heads % head for head in heads)
        is_missing = grouped and not problem.enable_gqa
        hint = "for grouped heads, set enable_gqa=True" if is_missing else ""
        raise InvalidProblem(f"batches and heads must match or be 1: {error}", hint) from None


def _check_mask(problem: AttentionProblem, mask: TensorSpec) -> None:
    if mask.dtype not in ("bool", "float32", problem.dtype):
        raise InvalidProblem(
            "Expected attn_mask dtype to be bool or float or to match query dtype,"
            f" but got {mask.dtype} and query {problem.dtype}"
        )
    if problem.is_causal:
        raise InvalidProblem("Explicit attn_mask should not be set when is_causal=True")
    if problem.query.nested or problem.key.nested:
        return
    if problem.key_lengths:
        raise InvalidProblem(
            "a mask needs one length for all sequences; query_lengths or a page_table gives several",
            "is_causal, lower_right and window count within each sequence",
        )
    scores = (*problem.leading_shape, problem.query_length, problem.key_length)
    last = scores[len(scores) - len(mask.shape) :]
    if not 2 <= len(mask.shape) <= len(scores) or any(
        size not in (1, whole) for size, whole in zip(mask.shape, last, strict=True)
    ):
        raise InvalidProblem(
            f"a mask of shape {list(mask.shape)} does not extend to the scores {list(scores)}"
        )


def _check_of_heads(problem: AttentionProblem, name: str, spec: TensorSpec) -> None:
    """Check a tensor that has a number for each head."""
    if spec.dtype not in ("float32", problem.dtype):
        raise InvalidProblem(
            f"{name} must be of float32 or of query's type; got {spec.dtype} and {problem.dtype}"
        )
    if problem.is_nested:
        raise InvalidProblem(f"{name} need plain tensors, whose heads are known; these are nested")
    heads = problem.leading_shape[-1] if problem.leading_shape else 1
    if spec.shape != (heads,):
        raise InvalidProblem(
            f"{name} must be one for each of {heads} heads, [{heads}]; got {list(spec.shape)}"
        )


def _check_sequences(problem: AttentionProblem) -> None:
    """Check the lengths of sequences that are packed, or whose keys lie in pages."""
    rows, keys, table = problem.query_lengths, problem.key_lengths, problem.page_table
    if problem.is_nested:
        raise InvalidProblem("nested tensors already contain their lengths; do not pass lengths, too")
    shapes = [spec.shape for spec in (problem.query, problem.key, problem.value)]
    if [len(shape) for shape in shapes] != [4, 4, 4]:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise InvalidProblem(f"sequences of several lengths need 4 dimensions; got {listed}")
    if not keys or not (rows or table):
        given = "key_lengths" if keys else "query_lengths" if rows else "page_table"
        missing = "query_lengths or a page_table" if keys else "key_lengths"
        raise InvalidProblem(
            f"{given} is given without {missing}",
            "give both, and tensors with one sequence after another",
        )
    for name, lengths in (("query_lengths", rows), ("key_lengths", keys)):
        if min(lengths, default=0) < 0:
            raise InvalidProblem(f"{name} has a negative length, {min(lengths)}")
    if rows and len(rows) != len(keys):
        raise InvalidProblem(
            f"query_lengths has {len(rows)} sequences and key_lengths {len(keys)}; they must agree"
        )
    packed = [("query", shapes[0], rows)] if rows else []
    if table is None:
        packed += [("key", shapes[1], keys), ("value", shapes[2], keys)]
    for name, shape, lengths in packed:
        if shape[0] != 1 or shape[2] != sum(lengths):
            raise InvalidProblem(
                f"{name} has the shape {list(shape)}; sequences of {sum(lengths)} rows together"
                f" lie one after another in [1, {shape[1]}, {sum(lengths)}, {shape[3]}]"
            )
    if table is not None:
        _check_pages(problem, table)


def _check_pages(problem: AttentionProblem, table: TensorSpec) -> None:
    keys, size = problem.key_lengths, problem.key.shape[-2]
    pages = problem.key.shape[0], problem.value.shape[0]
    if table.dtype != "int32" or len(table.shape) != 2:
        raise InvalidProblem(
            "page_table must be of int32 and of the shape (sequences, pages of the longest);"
            f" got {table.dtype} of {list(table.shape)}",
            "page_table.astype('int32'), or .int() of torch" if table.dtype == "int64" else "",
        )
    if pages[0] != pages[1]:
        raise InvalidProblem(f"key has {pages[0]} pages and value {pages[1]}; they must be equal")
    if table.shape[0] != len(keys):
        raise InvalidProblem(
            f"page_table has {table.shape[0]} sequences and key_lengths {len(keys)}; they must agree"
        )
    if not problem.query_lengths and problem.query.shape[0] != len(keys):
        raise InvalidProblem(
            f"query has a batch of {problem.query.shape[0]} and page_table {len(keys)} sequences",
            "where queries lie one after another, give query_lengths",
        )
    if max(keys) > table.shape[1] * size:
        raise InvalidProblem(f"a sequence has {max(keys)} keys; {table.shape[1]} pages of {size} hold fewer")


def _leading(problem: AttentionProblem) -> tuple[tuple[int, ...], ...]:
    """Return the dimensions before the last two of each tensor, grouped heads repeated."""
    shapes = [spec.shape[:-2] for spec in (problem.query, problem.key, problem.value)]
    if problem.page_table is not None:  # pages are no batches
        shapes[1:] = [shape[-1:] for shape in shapes[1:]]
    if problem.enable_gqa:
        shapes = [(*shape[:-1], problem.heads) for shape in shapes]
    return tuple(shapes)
