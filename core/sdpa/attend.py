"""scaled_dot_product_attention: torch's checks in torch's order, then the backend that was chosen."""

from typing import Any

from mlbackends.model.errors import InvalidProblem, NoBackend
from mlbackends.model.problem import REDUCED, AttentionProblem, TensorSpec
from mlbackends.model.reasons import Reason
from mlbackends.sdpa.bias import CausalBias, CausalVariant, as_bias
from mlbackends.sdpa.describe import describe, device_of, is_number, is_tensor, without_gradients
from mlbackends.sdpa.readable import refuse_unreadable
from mlbackends.untraced import untraced

_NAME = "scaled_dot_product_attention()"


@untraced
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Return softmax(query @ transposed(key) * scale + attn_mask) @ value.

    Shapes: query (..., H, L, E), key (..., Hkv, S, E), value (..., Hkv, S, Ev); the result is (..., H, L, Ev)
    and of the same kind as query: a numpy array for a numpy array, a torch tensor for a torch tensor.
    attn_mask: a CausalBias; or booleans, False where a key is not seen; or numbers that are added to
    the scores; of a shape that broadcasts to (..., H, L, S). A row that sees no key is 0.
    dropout_p: the probability, 0 to 1, that a weight is dropped; it counts whenever it is above 0, and
    what is kept is divided by 1 - dropout_p. Which ones are dropped is repeatable: by
    torch.manual_seed for torch's tensors (whose generator for the CPU is drawn from, once a call),
    by numpy.random.seed for all others; they are not the ones that torch itself would drop.
    scale: None for 1/sqrt(E). enable_gqa: heads of key and value serve groups of query heads.

    Raises RuntimeError, TypeError, ValueError, IndexError and NotImplementedError where torch does;
    NoBackend, a RuntimeError, where no backend may or can compute it, with all the reasons.
    """
    _refuse_arguments(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    bias = as_bias(attn_mask)
    named = {"query": query, "key": key, "value": value}
    masked = named if bias else {**named, "attn_mask": attn_mask}
    refuse_unreadable(masked, f"{_NAME}: ", meta=True)
    if bias is not None:
        if is_causal:
            raise ValueError("CausalBias should not be used with causal=True")
        attn_mask, is_causal = None, True
    specs = [_described(name, tensor) for name, tensor in named.items()]
    mask = None if attn_mask is None else _described("attn_mask", attn_mask)
    _refuse_tensors(specs[0], specs[1], specs[2], mask)
    nested = any(spec.nested for spec in specs)  # whose sizes tell nothing
    if not nested and not (specs[0].shape[-2] and specs[2].elements):
        from mlbackends.kernels.tensors.interchange import zeros_like

        return zeros_like(query, (*specs[0].shape[:-1], specs[2].shape[-1]))
    _refuse_what_has_no_meaning(specs[0], mask, is_causal, enable_gqa)
    if without_gradients():
        specs = [_frozen(spec) for spec in specs]
        mask = mask and _frozen(mask)
    problem = _problem(query, specs, mask, bias, dropout_p, is_causal, scale, enable_gqa)
    return run(problem, query, key, value, attn_mask)


def run(problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
    """Compute a problem with the backend that is chosen for it. Raises NoBackend if there is none."""
    from mlbackends.sdpa.dispatch import chosen_backend

    return chosen_backend(problem).run(problem, query, key, value, mask)


def _described(name: str, tensor: Any) -> TensorSpec:
    try:
        return describe(tensor)
    except TypeError as error:
        raise TypeError(f"{_NAME}: {name}: {error}") from None


def _problem(
    query: Any,
    specs: list[TensorSpec],
    mask: TensorSpec | None,
    bias: CausalBias | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> AttentionProblem:
    from mlbackends import flag_store

    if bias is not None and bias.shape != (specs[0].shape[-2], specs[1].shape[-2]):
        scores = (specs[0].shape[-2], specs[1].shape[-2])
        raise RuntimeError(f"a causal mask of shape {bias.shape} does not fit scores of {scores}")
    lower_right = bias is not None and bias.variant is CausalVariant.LOWER_RIGHT
    reduced = specs[0].dtype in REDUCED and flag_store.read("cuda.fp16_bf16_reduction_math_sdp")
    try:
        return AttentionProblem(
            query=specs[0],
            key=specs[1],
            value=specs[2],
            mask=mask,
            dropout=float(dropout_p),
            is_causal=is_causal,
            lower_right=lower_right,
            enable_gqa=enable_gqa,
            scale=None if scale is None else float(scale),
            inner_dtype=specs[0].dtype if reduced else "",
            device=device_of(query, specs[0]),
        )
    except InvalidProblem as error:
        # torch's type: callers of this function catch RuntimeError.
        reason = Reason("invalid-problem", str(error), error.hint)
        raise NoBackend(str(error), (reason,), error.hint) from None


def _refuse_arguments(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    dropout_p: object,
    is_causal: object,
    scale: object,
    enable_gqa: object,
) -> None:
    """Raise TypeError for an argument of the wrong kind."""
    for place, (name, tensor) in enumerate(
        zip(("query", "key", "value"), (query, key, value), strict=True)
    ):
        if not is_tensor(tensor):
            raise _wrong(f"'{name}' (position {place + 1})", "Tensor", tensor)
    if not (attn_mask is None or as_bias(attn_mask) or is_tensor(attn_mask)):
        raise _wrong("'attn_mask' (position 4)", "Tensor", attn_mask)
    if not is_number(dropout_p):
        raise _wrong("'dropout_p' (position 5)", "float", dropout_p)
    if not isinstance(is_causal, bool):
        raise _wrong("'is_causal' (position 6)", "bool", is_causal)
    if not (scale is None or is_number(scale)):
        raise _wrong("'scale'", "float", scale)
    if not isinstance(enable_gqa, bool):
        raise _wrong("'enable_gqa'", "bool", enable_gqa)


def _wrong(argument: str, wanted: str, seen: object) -> TypeError:
    kind = type(seen)
    home = "" if kind.__module__ in ("builtins", "torch") else f"{kind.__module__}."
    return TypeError(
        f"{_NAME}: argument {argument} must be {wanted}, not {home}{kind.__qualname__}"
    )


def _refuse_tensors(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, mask: TensorSpec | None
) -> None:
    """Raise RuntimeError for what torch refuses before it looks whether there is anything to do."""
    named = {"query": query, "key": key, "value": value}
    dtypes = " and ".join(f"{name}.dtype: {spec.dtype}" for name, spec in named.items())
    if len({spec.dtype for spec in named.values()}) > 1:
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got {dtypes}"
        )
    places = " and ".join(f"{name}.device: {spec.device}" for name, spec in named.items())
    if len({spec.device for spec in named.values()}) > 1:
        raise RuntimeError(
            f"Expected query, key, and value to have the same device type, but got {places}"
        )
    ranks = " and ".join(f"{name}.dim: {len(spec.shape)}" for name, spec in named.items())
    if any(len(spec.shape) < 2 for spec in named.values()):
        raise RuntimeError(
            f"Expected query, key, and value to all be at least 2 dimensional, but got {ranks}"
        )
    if mask is None:
        return
    wide = ("float32",) if query.dtype in REDUCED else ()
    if mask.dtype not in ("bool", query.dtype, *wide):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got"
            f" attn_mask.dtype: {mask.dtype} and query.dtype: {query.dtype}"
        )
    if mask.device != query.device:
        raise RuntimeError(
            f"Expected attn_mask to be on the query's device, {query.device}, but got {mask.device}"
        )


def _refuse_what_has_no_meaning(
    query: TensorSpec, mask: TensorSpec | None, is_causal: bool, enable_gqa: bool
) -> None:
    """Raise for what torch's formula stumbles over, with its exception."""
    if mask is not None and is_causal:
        raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
    if mask is not None and len(mask.shape) < 2:
        raise IndexError(f"attn_mask needs 2 dimensions or more; it has {len(mask.shape)}")
    if enable_gqa and len(query.shape) < 3:
        raise IndexError("enable_gqa needs a dimension of heads; query has 2 dimensions")
    if query.dtype.startswith("complex"):
        raise NotImplementedError(f"attention of {query.dtype} has no definition")


def _frozen(spec: TensorSpec) -> TensorSpec:
    from msgspec.structs import replace

    return replace(spec, requires_grad=False) if spec.requires_grad else spec
