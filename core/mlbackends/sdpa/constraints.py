"""Constraints: the conditions that a backend sets for a problem, each a code, a sentence and a test.

The same object refuses a problem and describes the backend in `backends sdpa list`. A test returns "" for a
problem that passes, otherwise the value that was found and the value that is needed.
"""

from collections.abc import Callable

from msgspec import Struct

from mlbackends.base.errors import joined
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, TensorSpec, heads_of


class Constraint(Struct, frozen=True):
    """One condition. code: from base/reason_codes.json. sentence: what is required. test: see above."""

    code: str
    sentence: str
    test: Callable[[AttentionProblem], str]
    hint: str = ""

    def reason(self, problem: AttentionProblem) -> Reason | None:
        """Return why the problem does not pass, None if it does."""
        message = self.test(problem)
        return Reason(self.code, message, self.hint) if message else None


def unmet(constraints: tuple[Constraint, ...], problem: AttentionProblem) -> tuple[Reason, ...]:
    """Return a reason for every constraint that the problem does not pass."""
    reasons = [constraint.reason(problem) for constraint in constraints]
    return tuple([reason for reason in reasons if reason is not None])


Test = Callable[[AttentionProblem], str]


def constraint(code: str, sentence: str, *, hint: str = "") -> Callable[[Test], Callable[[], Constraint]]:
    """Turn a test into a function that returns its constraint."""

    def built(test: Test) -> Callable[[], Constraint]:
        made = Constraint(code, sentence, test, hint)
        return lambda: made

    return built


def refusal(
    code: str, sentence: str, is_refused: Callable[[AttentionProblem], object], message: str
) -> Callable[[], Constraint]:
    """Return a function that returns the constraint. message: with fields of the problem, {p.dropout}."""
    made = Constraint(
        code, sentence, lambda problem: message.format(p=problem) if is_refused(problem) else ""
    )
    return lambda: made


# ---- the device ---------------------------------------------------------------


def on_device(*platforms: str) -> Constraint:
    """Require tensors on one of these platforms: "cpu", "cuda", "rocm", ..."""

    def test(problem: AttentionProblem) -> str:
        if problem.platform in platforms:
            return ""
        return f"needs {_either(platforms)} tensors; these are on {problem.platform}"

    return Constraint("wrong-device", f"tensors on {_either(platforms)}", test)


def capability_between(lowest: tuple[int, int], highest: tuple[int, int]) -> Constraint:
    """Require a CUDA device whose compute capability is in a range, both ends included.

    Other devices pass: `on_device` refuses them.
    """
    required = f"sm{_sm(lowest)} to sm{_sm(highest)}"

    def test(problem: AttentionProblem) -> str:
        if problem.platform != "cuda":
            return ""
        capability = problem.capability
        if capability is None:
            return f"the compute capability of the device is unknown; needs {required}"
        if lowest <= capability <= highest:
            return ""
        return f"the device is sm{_sm(capability)}; needs {required}"

    return Constraint("wrong-capability", f"a GPU of {required}", test)


# ---- element types ------------------------------------------------------------


def dtype_in(*dtypes: str) -> Constraint:
    """Require one of these element types."""

    def test(problem: AttentionProblem) -> str:
        if problem.dtype in dtypes:
            return ""
        return f"the dtype is {problem.dtype}; supported: {', '.join(dtypes)}"

    return Constraint("wrong-dtype", f"dtype {_either(dtypes)}", test)


# ---- shapes -------------------------------------------------------------------


def rank_is(rank: int = 4) -> Constraint:
    """Require query, key and value to have this number of dimensions."""

    def test(problem: AttentionProblem) -> str:
        ranks = [len(spec.shape) for spec in _inputs(problem)]
        if ranks == [rank] * 3:
            return ""
        return (
            f"query, key and value have {ranks[0]}, {ranks[1]} and {ranks[2]} dimensions; {rank} are needed"
        )

    return Constraint("wrong-rank", f"query, key and value with {rank} dimensions", test)


@constraint("batch-differs", "equal batch sizes of query, key and value")
def equal_batch(problem: AttentionProblem) -> str:
    """Require equal batch sizes, without broadcasting."""
    batches = [spec.shape[:-3] for spec in _inputs(problem)]
    if batches[0] == batches[1] == batches[2] or problem.page_table is not None:
        return ""
    sizes = ", ".join(str(b[0]) if len(b) == 1 else str(list(b)) for b in batches)
    return f"query, key and value have the batch sizes {sizes}; they must be equal"


@constraint("heads-differ", "equal numbers of heads in query, key and value")
def equal_heads(problem: AttentionProblem) -> str:
    """Require equal numbers of heads."""
    return "" if len(set(_heads(problem))) == 1 else _heads_differ(problem, "they must be equal")


def grouped_heads(*, value_may_differ: bool = False, one_for_all: bool = False) -> Constraint:
    """Require equal numbers of heads, or with enable_gqa numbers in key and value that divide the query's.

    value_may_differ: with enable_gqa, key and value may have different numbers of heads.
    one_for_all: without it, they may also have one head each.
    """

    def test(problem: AttentionProblem) -> str:
        query, key, value = _heads(problem)
        if query == key == value or (one_for_all and query and key == value == 1):
            return ""
        if not problem.enable_gqa:
            return _heads_differ(problem, "they must be equal unless enable_gqa is True")
        if key != value and not value_may_differ:
            return _heads_differ(problem, "key and value must have the same number")
        return ""

    return Constraint("heads-differ", "equal numbers of heads, or grouped heads with enable_gqa", test)


same_head_dim = refusal(
    "head-dim-differs", "value_dim = head_dim", lambda p: p.head_dim != p.value_dim,
    "head_dim is {p.head_dim} and value_dim is {p.value_dim}; they must be equal",
)  # fmt: skip


def head_dim_at_most(limit: int) -> Constraint:
    """Require a head_dim and a value_dim of at most this limit."""

    def test(problem: AttentionProblem) -> str:
        width = max(problem.head_dim, problem.value_dim)
        return "" if width <= limit else f"head_dim is {width}; the limit is {limit}"

    return Constraint("head-dim-too-large", f"head_dim at most {limit}", test)


def head_dim_multiple_of(step: int) -> Constraint:
    """Require a head_dim and a value_dim that are multiples of a number."""

    def test(problem: AttentionProblem) -> str:
        odd = [dim for dim in (problem.head_dim, problem.value_dim) if dim % step]
        return f"head_dim is {odd[0]}; it must be a multiple of {step}" if odd else ""

    return Constraint("head-dim-unaligned", f"head_dim a multiple of {step}", test)


non_empty = refusal(
    "empty-sequence", "sequence lengths above zero", lambda p: not p.query_length or not p.key_length,
    "the lengths of query and key are {p.query_length} and {p.key_length}; both must be above zero",
)  # fmt: skip


square_causal = refusal(
    "causal-not-square", "equal lengths with is_causal",
    lambda p: p.is_causal and p.query_length != p.key_length,
    "is_causal with lengths {p.query_length} and {p.key_length}; they must be equal",
)  # fmt: skip


# ---- memory -------------------------------------------------------------------


def last_dim_contiguous(*, singleton_exempt: bool = False, mask_too: bool = False) -> Constraint:
    """Require rows with contiguous elements.

    singleton_exempt: those of query, key and value do not matter where the query's rows have one element.
    mask_too: the mask too.
    """

    def test(problem: AttentionProblem) -> str:
        is_exempt = singleton_exempt and problem.head_dim == 1
        masks = [("mask", problem.mask)] if mask_too and problem.mask else []
        inputs = zip(("query", "key", "value"), _inputs(problem), strict=True)
        named = [*(() if is_exempt else inputs), *masks]
        bad = [f"{name} {spec.strides[-1]}" for name, spec in named if spec.strides[-1] != 1]
        return f"the strides of the last dimension must be 1; they are {', '.join(bad)}" if bad else ""

    return Constraint("rows-not-contiguous", "rows with contiguous elements", test)


# ---- optional features ----------------------------------------------------------


# fmt: off
mask_fixed = refusal(
    "mask-gradient", "a mask that does not require a gradient", lambda p: p.mask and p.mask.requires_grad,
    "gradients of masks are not supported; the mask requires one",
)
no_bool_mask = refusal(
    "mask", "no boolean mask", lambda p: p.mask and p.mask.dtype == "bool",
    "boolean masks are not supported, only float masks, which are added",
)
no_dropout = refusal(
    "dropout", "no dropout", lambda p: p.dropout, "dropout is not supported; it is {p.dropout}"
)
pages_forward_only = refusal(
    "gradient", "no gradients with paged keys", lambda p: p.page_table and p.wants_gradient,
    "gradients are not supported with paged keys; one is required",
)
no_logsumexp = refusal(
    "logsumexp", "no request for the logsumexp of the rows", lambda p: p.logsumexp,
    "the logsumexp of the rows is requested and cannot be returned",
)
not_nested = refusal(
    "nested", "tensors that are not nested", lambda p: any(spec.nested for spec in _inputs(p)),
    "nested tensors are not supported",
)
no_float64_inside = refusal(
    "inner-dtype", "no float64 intermediates",
    lambda p: p.inner_dtype == "float64" and p.dtype != "float64",
    "float64 intermediates are not supported",
)
no_softcap = refusal(
    "softcap", "no softcap", lambda p: p.softcap, "softcap is not supported; it is {p.softcap}"
)
no_alibi = refusal("alibi", "no ALiBi slopes", lambda p: p.alibi_slopes, "ALiBi slopes are not supported")
no_sinks = refusal("sinks", "no sinks", lambda p: p.sinks, "sinks are not supported")
no_variable_lengths = constraint("variable-lengths", "no packed sequences")(
    lambda p: f"packed sequences are not supported; there are {len(p.query_lengths)}" * bool(p.query_lengths)
)
no_pages = refusal(
    "pages", "no paged keys", lambda p: p.page_table,
    "paged keys are not supported; key has pages of {p.key.shape[2]}",
)
# fmt: on


@constraint("mask", "no mask other than a causal one")
def no_mask(problem: AttentionProblem) -> str:
    """Refuse every mask but a causal one."""
    if problem.mask is None:
        return ""
    return f"masks are not supported; there is one of shape {list(problem.mask.shape)}"


def mask_ranks(*ranks: int) -> Constraint:
    """Require a mask with one of these numbers of dimensions."""

    def test(problem: AttentionProblem) -> str:
        if problem.mask is None or len(problem.mask.shape) in ranks:
            return ""
        return f"the mask has {len(problem.mask.shape)} dimensions; {_either(ranks)} are supported"

    return Constraint("mask-rank", f"a mask with {_either(ranks)} dimensions", test)


@constraint(
    "gradient",
    "inputs that do not require gradients",
    hint="call it under torch.no_grad(), or pass tensor.detach()",
)
def no_gradient(problem: AttentionProblem) -> str:
    """Refuse inputs that require gradients."""
    names = ("query", "key", "value", "mask", "sinks")
    inputs = zip(names, (*_inputs(problem), problem.mask, problem.sinks), strict=True)
    wanting = [name for name, spec in inputs if spec is not None and spec.requires_grad]
    verb = "requires" if len(wanting) == 1 else "require"
    return f"gradients are not supported; {joined(wanting)} {verb} one" if wanting else ""


@constraint("causal-lower-right", "top-left causal masks only")
def no_lower_right(problem: AttentionProblem) -> str:
    """Refuse bottom-right causal masks and windows."""
    if not problem.lower_right or all(rows == keys for rows, keys in problem.sequences):
        return ""
    mask = "causal mask" if problem.is_causal else "window"
    return f"bottom-right alignment of the {mask} is not supported, only top-left"


@constraint("causal-upper-left", "bottom-right causal masks and windows only")
def lower_right_causal(problem: AttentionProblem) -> str:
    """Refuse top-left causal masks and windows."""
    if problem.lower_right or problem.band == (-1, -1):
        return ""
    if all(rows == keys for rows, keys in problem.sequences):
        return ""
    mask = "causal mask" if problem.is_causal else "window"
    return f"top-left alignment of the {mask} is not supported, only bottom-right"


@constraint("window", "no window")
def no_window(problem: AttentionProblem) -> str:
    """Refuse windows."""
    if problem.window == (-1, -1):
        return ""
    left, right = ("all" if side < 0 else str(side) for side in problem.window)
    return f"windows are not supported; rows see {left} keys to the left and {right} to the right"


#: Features without an argument of torch's function, and the constraint of a backend without them.
BEYOND_TORCH = {
    "alibi": no_alibi(),
    "pages": no_pages(),
    "sinks": no_sinks(),
    "softcap": no_softcap(),
    "variable_lengths": no_variable_lengths(),
    "window": no_window(),
}


def _inputs(problem: AttentionProblem) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    return problem.query, problem.key, problem.value


def _heads(problem: AttentionProblem) -> tuple[int, int, int]:
    return heads_of(problem.query), heads_of(problem.key), heads_of(problem.value)


def _heads_differ(problem: AttentionProblem, needed: str) -> str:
    query, key, value = _heads(problem)
    return f"query, key and value have {query}, {key} and {value} heads; {needed}"


def _sm(capability: tuple[int, int]) -> str:
    return f"{capability[0]}{capability[1]}"


def _either(names: tuple[object, ...]) -> str:
    *others, last = map(str, names)
    return f"{', '.join(others)} or {last}" if others else last
