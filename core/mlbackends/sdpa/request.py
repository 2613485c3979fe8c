"""A call of attention, checked as torch checks it and in torch's order."""

from operator import index
from typing import Any, NamedTuple

from mlbackends.base.element_types import REDUCED
from mlbackends.base.errors import InvalidProblem, NoBackend
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.bias import as_bias, without_bias
from mlbackends.sdpa.describe import describe, device_of, is_number, is_tensor
from mlbackends.switches import store

_SEED_BITS = (1 << 64) - 1


class Operation(NamedTuple):
    """The function that was called. positional: its positional arguments, in order."""

    name: str
    positional: str

    def wrong(self, argument: str, expected: str, seen: object) -> TypeError:
        """Return the exception for an argument of the wrong type."""
        kind, positional = type(seen), self.positional.split()
        home = "" if kind.__module__ in ("builtins", "torch") else f"{kind.__module__}."
        place = f" (position {positional.index(argument) + 1})" if argument in positional else ""
        message = f"argument '{argument}'{place} must be {expected}, not {home}{kind.__qualname__}"
        return TypeError(f"{self.name}(): {message}")

    def described(self, argument: str, tensor: Any) -> TensorSpec:
        """Return the record of an argument. Raises TypeError with its name."""
        try:
            return describe(tensor)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {argument}: {error}") from None


class Fields(NamedTuple):
    """The arguments beyond those of torch's function."""

    window: Any = None
    lower_right: Any = False
    softcap: Any = 0.0
    sinks: Any = None
    alibi_slopes: Any = None
    query_lengths: Any = None
    key_lengths: Any = None
    page_table: Any = None

    @property
    def tensors(self) -> dict[str, Any]:
        """The tensors among them, by name, which a backend receives after query, key, value and mask."""
        names = ("sinks", "alibi_slopes", "page_table")
        return {name: tensor for name in names if (tensor := getattr(self, name)) is not None}

    def of_problem(self, operation: Operation, device: str) -> dict[str, Any]:
        """Return them as fields of a problem.

        Raises TypeError for an argument of a wrong type, RuntimeError for a tensor on another device.
        """
        for name, fits, expected in (
            ("lower_right", isinstance(self.lower_right, bool), "bool"),
            ("softcap", is_number(self.softcap), "float"),
            *((name, is_tensor(tensor), "Tensor") for name, tensor in self.tensors.items()),
        ):
            if not fits:
                raise operation.wrong(name, expected, getattr(self, name))
        fields: dict[str, Any] = {"lower_right": self.lower_right, "softcap": float(self.softcap)}
        for name in ("window", "query_lengths", "key_lengths"):
            if (given := getattr(self, name)) is not None:
                numbers = given.tolist() if hasattr(given, "tolist") else given
                try:
                    fields[name] = tuple(map(index, numbers))
                except TypeError:
                    raise operation.wrong(name, "tuple of ints", given) from None
        if len(fields.get("window", (0, 0))) != 2:
            raise operation.wrong("window", "tuple of 2 ints", self.window)
        for name, tensor in self.tensors.items():
            fields[name] = spec = operation.described(name, tensor)
            if spec.device != device:
                raise RuntimeError(f"{name} is on {spec.device}; query is on {device}")
        return fields


class Request(NamedTuple):
    """A checked call.

    problem: None where there is nothing to compute and the result is zeros of empty_shape. mask: the tensor;
    None for a CausalBias too.
    """

    problem: AttentionProblem | None
    mask: Any
    dtype: str
    empty_shape: tuple[int, ...] = ()

    @property
    def output_shape(self) -> tuple[int, ...]:
        """(..., H, L, Ev); () for nested tensors, whose sizes are unknown."""
        if self.problem is None:
            return self.empty_shape
        named = (self.problem.query, self.problem.key, self.problem.value)
        return () if any(spec.nested for spec in named) else self.problem.output_shape

    @property
    def logsumexp_dtype(self) -> str:
        """The element type of the logarithms of the rows' sums."""
        return "float64" if self.dtype == "float64" else "float32"


def requested(
    operation: Operation,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    *options: Any,
    fields: Fields,
) -> Request:
    """Check a call. options: dropout_p, is_causal, scale, enable_gqa and seed.

    Raises RuntimeError, TypeError, ValueError, IndexError and NotImplementedError where torch does.
    """
    dropout_p, is_causal, scale, enable_gqa, seed = options
    refuse_types(operation, query, key, value, attn_mask, *options)
    seed = None if seed is None else index(seed) & _SEED_BITS
    named = {"query": query, "key": key, "value": value}
    specs = [operation.described(name, tensor) for name, tensor in named.items()]
    of_query, of_key, of_value = specs
    bias = as_bias(attn_mask)
    mask = None if attn_mask is None or bias else operation.described("attn_mask", attn_mask)
    _refuse_tensors(specs, mask)
    if bias is not None:
        scores = of_query.shape[-2], of_key.shape[-2]
        given = attn_mask, is_causal, fields.lower_right
        attn_mask, is_causal, lower_right = without_bias(*given, scores, fields.key_lengths)
        fields = fields._replace(lower_right=lower_right)
    dtype = of_query.dtype
    more = fields.of_problem(operation, of_query.device)
    # With sinks a row without keys has a logarithm, and lengths must be checked even if a tensor is empty.
    has_zeros = not (any(spec.nested for spec in specs) or {"sinks", "key_lengths"} & more.keys())
    if has_zeros and not (of_query.shape[-2] and of_value.elements):
        return Request(None, attn_mask, dtype, (*of_query.shape[:-1], of_value.shape[-1]))
    # torch's own checks, with its exceptions.
    if mask is not None and is_causal:
        raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
    if mask is not None and len(mask.shape) < 2:
        raise IndexError(f"attn_mask needs 2 dimensions or more; it has {len(mask.shape)}")
    if enable_gqa and len(of_query.shape) < 3:
        raise IndexError("enable_gqa needs a head dimension; query has 2 dimensions")
    if dtype.startswith("complex"):
        raise NotImplementedError(f"attention is not defined for {dtype}")
    reduced = dtype in REDUCED and store.read("cuda.fp16_bf16_reduction_math_sdp")
    try:
        problem = AttentionProblem(
            query=of_query,
            key=of_key,
            value=of_value,
            mask=mask,
            dropout=float(dropout_p),
            is_causal=is_causal,
            enable_gqa=enable_gqa,
            scale=None if scale is None else float(scale),
            seed=seed,
            inner_dtype=dtype if reduced else "",
            device=device_of(query, of_query),
            **more,
        )
    except InvalidProblem as error:
        # A RuntimeError, which torch raises and callers catch.
        reason = Reason("invalid-problem", str(error), error.hint)
        raise NoBackend(str(error), (reason,), error.hint) from None
    return Request(problem, attn_mask, dtype)


def refuse_types(
    operation: Operation, query: Any, key: Any, value: Any, attn_mask: Any, *options: Any
) -> None:
    """Raise TypeError for an argument of the wrong type. options: as for `requested`."""
    dropout_p, is_causal, scale, enable_gqa, seed = options
    mask_fits = attn_mask is None or as_bias(attn_mask) is not None or is_tensor(attn_mask)
    for name, argument, fits, expected in (
        ("query", query, is_tensor(query), "Tensor"),
        ("key", key, is_tensor(key), "Tensor"),
        ("value", value, is_tensor(value), "Tensor"),
        ("attn_mask", attn_mask, mask_fits, "Tensor"),
        ("dropout_p", dropout_p, is_number(dropout_p), "float"),
        ("is_causal", is_causal, isinstance(is_causal, bool), "bool"),
        ("scale", scale, scale is None or is_number(scale), "float"),
        ("enable_gqa", enable_gqa, isinstance(enable_gqa, bool), "bool"),
    ):
        if not fits:
            raise operation.wrong(name, expected, argument)
    if seed is None:
        return
    if isinstance(seed, bool):
        raise operation.wrong("seed", "int", seed)
    try:
        index(seed)
    except TypeError:
        raise operation.wrong("seed", "int", seed) from None


def _refuse_tensors(specs: list[TensorSpec], mask: TensorSpec | None) -> None:
    """Raise RuntimeError for what torch refuses before it checks whether a tensor is empty."""
    dtypes, devices = [spec.dtype for spec in specs], [spec.device for spec in specs]
    ranks = [len(spec.shape) for spec in specs]
    for fact, facts, fits, expected in (
        ("dtype", dtypes, len(set(dtypes)) == 1, "have the same dtype"),
        ("device", devices, len(set(devices)) == 1, "have the same device type"),
        ("dim", ranks, min(ranks) >= 2, "all be at least 2 dimensional"),
    ):
        if not fits:
            named = zip(("query", "key", "value"), facts, strict=True)
            got = " and ".join(f"{name}.{fact}: {value}" for name, value in named)
            raise RuntimeError(f"Expected query, key, and value to {expected}, but got {got}")
    if mask is None:
        return
    dtype, device = dtypes[0], devices[0]
    if mask.dtype not in ("bool", "float32", dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got"
            f" attn_mask.dtype: {mask.dtype} and query.dtype: {dtype}"
        )
    if mask.device != device:
        raise RuntimeError(f"Expected attn_mask to be on the query's device, {device}, but got {mask.device}")
