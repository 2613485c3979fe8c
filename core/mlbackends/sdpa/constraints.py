"""What a backend may ask of a problem: each a code, a sentence for the docs, and a test.

The same object refuses a problem, fills the table of what a backend takes, and names its test. A
test returns "" for a problem that passes, else what was seen and what is needed.
"""

from collections.abc import Callable

from msgspec import Struct

from mlbackends.base.errors import counted, joined
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, TensorSpec, heads_of


class Constraint(Struct, frozen=True):
    """One condition. code: from base/reason_codes.json. sentence: what it asks for. test: see above."""

    code: str
    sentence: str
    test: Callable[[AttentionProblem], str]
    hint: str = ""

    def reason(self, problem: AttentionProblem) -> Reason | None:
        """Return why the problem does not pass, None if it does."""
        seen = self.test(problem)
        return Reason(self.code, seen, self.hint) if seen else None


def unmet(constraints: tuple[Constraint, ...], problem: AttentionProblem) -> tuple[Reason, ...]:
    """Return a reason for every constraint that the problem does not pass."""
    asked = [constraint.reason(problem) for constraint in constraints]
    return tuple([reason for reason in asked if reason is not None])


Test = Callable[[AttentionProblem], str]


def constraint(
    code: str, sentence: str, *, hint: str = ""
) -> Callable[[Test], Callable[[], Constraint]]:
    """Make of a test the function that returns its constraint."""

    def built(test: Test) -> Callable[[], Constraint]:
        found = Constraint(code, sentence, test, hint)

        def returned() -> Constraint:
            return found

        returned.__name__, returned.__doc__ = test.__name__, test.__doc__
        return returned

    return built


# ---- the device ---------------------------------------------------------------


def on_device(*platforms: str) -> Constraint:
    """Ask for tensors on one of these platforms: "cpu", "cuda", "rocm", ..."""

    def test(problem: AttentionProblem) -> str:
        if problem.platform in platforms:
            return ""
        return f"the tensors are on {problem.platform}; it needs {_either(platforms)}"

    return Constraint("wrong-device", f"tensors on {_either(platforms)}", test)


def capability_between(lowest: tuple[int, int], highest: tuple[int, int]) -> Constraint:
    """Ask for a CUDA device of a compute capability in a range, both ends included.

    Silent where the device is no CUDA device: `on_device` says that.
    """
    required = f"sm{_sm(lowest)} to sm{_sm(highest)}"

    def test(problem: AttentionProblem) -> str:
        if problem.platform != "cuda":
            return ""
        capability = problem.capability
        if capability is None:
            return f"the compute capability of the device is not known; it needs {required}"
        if lowest <= capability <= highest:
            return ""
        return f"the device is sm{_sm(capability)}; it needs {required}"

    return Constraint("wrong-capability", f"a GPU of {required}", test)


def device_has(*features: str) -> Constraint:
    """Ask for features that the device's record lists, such as "avx2"."""

    def test(problem: AttentionProblem) -> str:
        missing = [each for each in features if each not in problem.device.features]
        if not missing:
            return ""
        return f"the device lacks {', '.join(missing)}; it needs {', '.join(features)}"

    return Constraint("missing-feature", f"a device with {', '.join(features)}", test)


# ---- element types ------------------------------------------------------------


def dtype_in(*dtypes: str) -> Constraint:
    """Ask for one of these element types."""

    def test(problem: AttentionProblem) -> str:
        if problem.dtype in dtypes:
            return ""
        return f"the element type is {problem.dtype}; it takes {', '.join(dtypes)}"

    return Constraint("wrong-dtype", f"element type {_either(dtypes)}", test)


# ---- shapes -------------------------------------------------------------------


def rank_is(rank: int = 4) -> Constraint:
    """Ask for query, key and value of so many dimensions."""

    def test(problem: AttentionProblem) -> str:
        ranks = [len(spec.shape) for spec in _inputs(problem)]
        if ranks == [rank] * 3:
            return ""
        return (
            f"query, key and value have {ranks[0]}, {ranks[1]} and {ranks[2]} dimensions;"
            f" each needs {rank}"
        )

    return Constraint("wrong-rank", f"query, key and value of {rank} dimensions", test)


@constraint("batch-differs", "query, key and value of the same batch size")
def equal_batch(problem: AttentionProblem) -> str:
    """Ask for one batch size, without broadcasting."""
    batches = [spec.shape[:-3] for spec in _inputs(problem)]
    if batches[0] == batches[1] == batches[2] or problem.page_table is not None:
        return ""
    seen = ", ".join(_size(batch) for batch in batches)
    return f"query, key and value have the batch sizes {seen}; they must be equal"


@constraint("heads-differ", "as many heads in key and value as in the query")
def equal_heads(problem: AttentionProblem) -> str:
    """Ask for as many heads in key and value as in the query."""
    return "" if len(set(_heads(problem))) == 1 else _heads_differ(problem, "they must be equal")


def grouped_heads(*, value_may_differ: bool = False, one_for_all: bool = False) -> Constraint:
    """Ask for equal heads, or with enable_gqa for heads of key and value that divide the query's.

    value_may_differ: with enable_gqa, key and value need not have as many heads as each other.
    one_for_all: without it, they may also have one head each.
    """

    def test(problem: AttentionProblem) -> str:
        query, key, value = _heads(problem)
        if query == key == value or (one_for_all and query and key == value == 1):
            return ""
        if not problem.enable_gqa:
            return _heads_differ(problem, "they must be equal unless enable_gqa is True")
        if key != value and not value_may_differ:
            return _heads_differ(problem, "key and value must have equally many")
        return ""

    return Constraint("heads-differ", "equal heads, or grouped ones with enable_gqa", test)


@constraint("head-dim-differs", "value as wide as query and key")
def same_head_dim(problem: AttentionProblem) -> str:
    """Ask for a value as wide as query and key."""
    if problem.head_dim == problem.value_dim:
        return ""
    return (
        f"head_dim is {problem.head_dim} and value_dim {problem.value_dim}; they must be the same"
    )


def head_dim_at_most(limit: int) -> Constraint:
    """Ask for rows of query, key and value of at most so many elements."""

    def test(problem: AttentionProblem) -> str:
        seen = max(problem.head_dim, problem.value_dim)
        return "" if seen <= limit else f"head_dim is {seen}; it takes at most {limit}"

    return Constraint("head-dim-too-large", f"head_dim at most {limit}", test)


def head_dim_multiple_of(step: int) -> Constraint:
    """Ask for rows of query, key and value of a multiple of so many elements."""

    def test(problem: AttentionProblem) -> str:
        odd = [dim for dim in (problem.head_dim, problem.value_dim) if dim % step]
        return f"head_dim is {odd[0]}; it must be a multiple of {step}" if odd else ""

    return Constraint("head-dim-unaligned", f"head_dim a multiple of {step}", test)


@constraint("empty-sequence", "lengths above zero")
def non_empty(problem: AttentionProblem) -> str:
    """Ask for at least one row of query and key."""
    if problem.query_length and problem.key_length:
        return ""
    return (
        f"the lengths of query and key are {problem.query_length} and {problem.key_length};"
        " both must be above zero"
    )


@constraint("causal-not-square", "equal lengths where is_causal")
def square_causal(problem: AttentionProblem) -> str:
    """Ask for equal lengths of query and key where the mask is causal."""
    if not problem.is_causal or problem.query_length == problem.key_length:
        return ""
    return (
        f"is_causal with lengths {problem.query_length} and {problem.key_length};"
        " they must be equal"
    )


# ---- memory -------------------------------------------------------------------


def last_dim_contiguous(*, singleton_exempt: bool = False, mask_too: bool = False) -> Constraint:
    """Ask for rows whose elements lie side by side.

    singleton_exempt: where the query's rows have one element, their strides do not matter.
    mask_too: the mask as well.
    """

    def test(problem: AttentionProblem) -> str:
        if singleton_exempt and problem.head_dim == 1:
            return ""
        masks = [("mask", problem.mask)] if mask_too and problem.mask else []
        named = [*zip(("query", "key", "value"), _inputs(problem), strict=True), *masks]
        bad = [f"{name} {spec.strides[-1]}" for name, spec in named if spec.strides[-1] != 1]
        return f"the last dimension has the stride of {', '.join(bad)}; it must be 1" if bad else ""

    return Constraint("rows-not-contiguous", "rows whose elements lie side by side", test)


# ---- what else a problem may ask for --------------------------------------------


@constraint("mask", "no mask but a causal one")
def no_mask(problem: AttentionProblem) -> str:
    """Ask for no mask but a causal one."""
    if problem.mask is None:
        return ""
    return f"there is a mask of shape {list(problem.mask.shape)}; it takes none"


@constraint("mask-gradient", "a mask that requires no gradient")
def mask_fixed(problem: AttentionProblem) -> str:
    """Ask for a mask without a gradient of its own."""
    required = problem.mask is not None and problem.mask.requires_grad
    return "the mask requires a gradient; it gives none" if required else ""


def mask_ranks(*ranks: int) -> Constraint:
    """Ask for a mask of one of these numbers of dimensions."""

    def test(problem: AttentionProblem) -> str:
        if problem.mask is None or len(problem.mask.shape) in ranks:
            return ""
        return f"the mask has {len(problem.mask.shape)} dimensions; it takes {_either(ranks)}"

    return Constraint("mask-rank", f"a mask of {_either(ranks)} dimensions", test)


@constraint("dropout", "no dropout")
def no_dropout(problem: AttentionProblem) -> str:
    """Ask for no dropout."""
    return f"dropout is {problem.dropout}; it takes none" if problem.dropout else ""


@constraint(
    "gradient",
    "inputs that require no gradient",
    hint="call it under torch.no_grad(), or give it tensor.detach()",
)
def no_gradient(problem: AttentionProblem) -> str:
    """Ask for inputs that require no gradient."""
    names = ("query", "key", "value", "mask", "sinks")
    inputs = zip(names, (*_inputs(problem), problem.mask, problem.sinks), strict=True)
    wanting = [name for name, spec in inputs if spec is not None and spec.requires_grad]
    verb = "requires" if len(wanting) == 1 else "require"
    return f"{joined(wanting)} {verb} a gradient; it computes none" if wanting else ""


@constraint("gradient", "with keys in pages, inputs that require no gradient")
def pages_forward_only(problem: AttentionProblem) -> str:
    """Ask for no gradient where keys lie in pages."""
    if problem.page_table is None or not problem.wants_gradient:
        return ""
    return "a gradient is required, and key and value lie in pages; it computes none of these"


@constraint("logsumexp", "no demand for the logsumexp of each row")
def no_logsumexp(problem: AttentionProblem) -> str:
    """Ask that nobody wants the logarithm of the sum of each row's exponentials."""
    return "the logsumexp of each row is asked for; it tells none" if problem.logsumexp else ""


@constraint("nested", "tensors that are not nested")
def not_nested(problem: AttentionProblem) -> str:
    """Ask for plain tensors, not nested ones."""
    nested = any(spec.nested for spec in _inputs(problem))
    return "the tensors are nested; it takes plain ones" if nested else ""


@constraint("causal-lower-right", "a causal mask from the upper left corner")
def no_lower_right(problem: AttentionProblem) -> str:
    """Ask that a causal mask starts in the upper left corner."""
    if not problem.lower_right or all(rows == keys for rows, keys in problem.sequences):
        return ""
    mask = "causal mask" if problem.is_causal else "window"
    return f"the {mask} ends in the lower right corner; it takes one from the upper left"


@constraint("causal-upper-left", "a causal mask or a window to the lower right corner")
def lower_right_causal(problem: AttentionProblem) -> str:
    """Ask that a causal mask or a window ends in the lower right corner."""
    if problem.lower_right or problem.band == (-1, -1):
        return ""
    if all(rows == keys for rows, keys in problem.sequences):
        return ""
    mask = "causal mask" if problem.is_causal else "window"
    return f"the {mask} starts in the upper left corner; it takes one to the lower right"


@constraint("mask", "no mask of booleans")
def no_bool_mask(problem: AttentionProblem) -> str:
    """Ask for a mask of numbers, which are added, or none."""
    if problem.mask is None or problem.mask.dtype != "bool":
        return ""
    return "the mask is of booleans; it takes one of numbers, which are added"


@constraint("inner-dtype", "no demand for float64 inside")
def no_float64_inside(problem: AttentionProblem) -> str:
    """Ask that nobody wants float64 between the steps of a narrower problem."""
    if problem.inner_dtype != "float64" or problem.dtype == "float64":
        return ""
    return f"float64 is asked for inside; it computes {problem.dtype} in float32"


@constraint("window", "no window")
def no_window(problem: AttentionProblem) -> str:
    """Ask that rows see keys however far from their own position."""
    if problem.window == (-1, -1):
        return ""
    left, right = ("all" if side < 0 else str(side) for side in problem.window)
    return f"rows see {left} keys to the left and {right} to the right; it takes no window"


@constraint("softcap", "no cap on the scores")
def no_softcap(problem: AttentionProblem) -> str:
    """Ask for scores as they are."""
    return f"softcap is {problem.softcap}; it takes none" if problem.softcap else ""


@constraint("sinks", "no sinks")
def no_sinks(problem: AttentionProblem) -> str:
    """Ask for sums of the scores of keys alone."""
    return "each head has a sink; it takes none" if problem.sinks is not None else ""


@constraint("variable-lengths", "sequences of one length")
def no_variable_lengths(problem: AttentionProblem) -> str:
    """Ask for sequences that do not lie one after another."""
    if not problem.query_lengths:
        return ""
    count = counted(len(problem.query_lengths), "sequence")
    return f"{count} of their own lengths lie one after another; it takes one length for all"


@constraint("pages", "keys and values that do not lie in pages")
def no_pages(problem: AttentionProblem) -> str:
    """Ask for key and value without a table of pages."""
    if problem.page_table is None:
        return ""
    return f"key and value lie in pages of {problem.key.shape[-2]}; it takes whole sequences"


#: What torch's scaled_dot_product_attention has no argument for, and the constraint of what lacks it.
BEYOND_TORCH = {
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


def _size(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else str(list(sizes))


def _sm(capability: tuple[int, int]) -> str:
    return f"{capability[0]}{capability[1]}"


def _either(names: tuple[object, ...]) -> str:
    return " or ".join(map(str, names))
