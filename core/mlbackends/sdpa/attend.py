"""scaled_dot_product_attention and its gradients: torch's checks, then the chosen backend."""

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from mlbackends.base import registry
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients
from mlbackends.sdpa.describe import is_tensor, needs_operator, without_gradients
from mlbackends.sdpa.dispatch import chosen_backend
from mlbackends.sdpa.request import Fields, Operation, Request, refuse_types, requested
from mlbackends.switches.dynamo import is_compiling, untraced

_FORWARD = Operation("scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal")
_BACKWARD = Operation(
    "scaled_dot_product_attention_backward",
    "grad_out query key value out logsumexp dropout_p is_causal",
)


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
    return_logsumexp: bool = False,
    seed: int | None = None,
    window: tuple[int, int] | None = None,
    lower_right: bool = False,
    softcap: float = 0.0,
    sinks: Any = None,
    alibi_slopes: Any = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    page_table: Any = None,
) -> Any:
    """Return softmax(query @ transposed(key) * scale + attn_mask) @ value.

    Shapes: query (..., H, L, E), key (..., Hkv, S, E), value (..., Hkv, S, Ev); the result is (..., H, L, Ev)
    and of the same kind as query: a numpy array for a numpy array, a torch tensor for a torch tensor. A torch
    result has our gradients where query, key, value or a float mask requires one; gradients of gradients are
    computed by the formula. To torch's transformations (vmap, torch.compile, torch.export) this is one
    operator, torch.ops.mlbackends.scaled_dot_product_attention; lengths must then be ints. The mask of a
    numpy.ma.MaskedArray is ignored.
    attn_mask: a CausalBias, a boolean mask (False hides a key), or a float mask that is added to the scores;
    its shape must broadcast to (..., H, L, S). A row that sees no key is 0; a row whose scores all overflow
    to -inf is NaN.
    dropout_p: the probability, 0 to 1, that a weight is dropped, also outside of training; the other weights
    are divided by 1 - dropout_p. The lower 64 bits of seed decide which weights are dropped. Without a seed,
    torch.manual_seed makes calls with torch's tensors repeatable (one number is drawn from its CPU generator
    for each call), and numpy.random.seed all others. torch itself would drop other weights.
    scale: None for 1/sqrt(E). enable_gqa: heads of key and value serve groups of query heads.
    return_logsumexp: also return the natural logarithm of the sum of the exponentials of each row's scores,
    scaled and masked: (..., H, L), of the kind of query, float64 for float64, otherwise float32; 0 for a row
    that sees no key. It has no gradient.

    torch's function lacks the other arguments, and not every backend supports them (`backends sdpa list`).
    window: the number of keys that a row sees to the left and right of its own position, -1 for all. Row i of
    L has the position i, or i + S - L with lower_right, which aligns a causal mask bottom-right too.
    softcap: scores become softcap * tanh(scores / softcap) before masks; 0 for none.
    sinks: (H,), of query's type or float32: an additional score for each head, which counts in the sum and
    the logarithm of every row and has no value. The logarithm of a row that sees no key is its sink.
    alibi_slopes: (H,), of query's type or float32: ALiBi, scores are lowered by their head's slope times the
    distance of the key from the row's own position. They have no gradient, and must not require one.
    query_lengths, key_lengths: the lengths of sequences that are packed one after another in (1, H, L, E) and
    (1, Hkv, S, E), as ints or as a tensor, whose values are read; a sequence sees only itself.
    page_table: (B, max pages) of int32: the pages of each sequence in key (pages, Hkv, page size, E) and in
    value, of whose keys the first key_lengths (B,) count. Paged tensors have no gradient.

    Raises RuntimeError, TypeError, ValueError, IndexError and NotImplementedError where torch does;
    NoBackend, a RuntimeError, with all reasons where no backend may or can compute it; IndexError from a CPU
    backend for a page that does not exist.
    """
    more: dict[str, Any] = {
        "window": window,
        "lower_right": lower_right,
        "softcap": softcap,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "query_lengths": query_lengths,
        "key_lengths": key_lengths,
        "page_table": page_table,
    }
    named: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa, "seed": seed, **more}
    named["return_logsumexp"] = return_logsumexp
    given = query, key, value, attn_mask, dropout_p, is_causal
    if is_compiling():
        return _by_operator(*given, **named)
    if not isinstance(return_logsumexp, bool):
        raise _FORWARD.wrong("return_logsumexp", "bool", return_logsumexp)
    if not needs_operator(query, key, value, attn_mask, sinks, alibi_slopes, page_table):
        return compute(*given, **named)
    refuse_types(_FORWARD, *given, scale, enable_gqa, seed)
    return _by_operator(*given, **named)


@untraced
def compute(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_logsumexp: bool = False,
    seed: int | None = None,
    **more: Any,
) -> Any:
    """Return what `scaled_dot_product_attention` returns, not connected to torch's graph of gradients.

    If the tensors require gradients, the backend is one that has them.
    """
    fields = Fields(**more)
    options = dropout_p, is_causal, scale, enable_gqa, seed
    request = requested(_FORWARD, query, key, value, attn_mask, *options, fields=fields)
    problem = request.problem
    if problem is None:
        zeros_like = _interchange().zeros_like
        out = zeros_like(query, request.output_shape)
        if not return_logsumexp:
            return out
        return out, zeros_like(query, request.output_shape[:-1], request.logsumexp_dtype)
    if problem.wants_gradient and without_gradients():
        problem = _requiring(problem, False, mask=False)
    if return_logsumexp and not problem.wants_gradient:
        problem = replace(problem, logsumexp=True)
    backend = chosen_backend(problem)
    run = backend.run_with_logsumexp if return_logsumexp else backend.run
    return run(problem, query, key, value, request.mask, **fields.tensors)


def scaled_dot_product_attention_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    seed: int | None = None,
    attn_mask_gradient: bool = False,
    window: tuple[int, int] | None = None,
    lower_right: bool = False,
    softcap: float = 0.0,
    sinks: Any = None,
    alibi_slopes: Any = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    page_table: Any = None,
) -> Gradients:
    """Return the gradients of query, key and value, and optionally of the mask, given that of the result.

    out and logsumexp: the results of `scaled_dot_product_attention(..., return_logsumexp=True)` for the same
    arguments. grad_out has the shape (..., H, L, Ev) and element type of out; logsumexp is (..., H, L),
    float64 for float64, otherwise float32. seed: the seed of that call, for dropout.
    If out and logsumexp are from a call with more keys, the result is what the given keys contribute.
    attn_mask_gradient: also return the gradient of a float mask; that of sinks is always returned. The other
    arguments are those of the forward call.
    Each gradient has the shape, element type and kind of its tensor, and is summed over broadcast dimensions
    and over the heads that share a key head. A row that sees no key, and an empty tensor, give zeros.

    Raises what `scaled_dot_product_attention` raises; RuntimeError also where a shape, an element type or a
    device does not fit; ValueError for dropout without a seed.
    Source: Dao 2023, FlashAttention-2, algorithm 2; the order of the arguments is that of torch's
    aten._scaled_dot_product_flash_attention_for_cpu_backward.
    """
    more: dict[str, Any] = {
        "window": window,
        "lower_right": lower_right,
        "softcap": softcap,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "query_lengths": query_lengths,
        "key_lengths": key_lengths,
    }
    named: dict[str, Any] = {"attn_mask": attn_mask, "scale": scale, "enable_gqa": enable_gqa, "seed": seed}
    named |= {"attn_mask_gradient": attn_mask_gradient, **more}
    given = grad_out, query, key, value, out, logsumexp, dropout_p, is_causal
    tensors = grad_out, query, key, value, out, logsumexp, attn_mask, sinks, alibi_slopes
    if is_compiling() or (page_table is None and needs_operator(*tensors)):
        _register()
        return Gradients(*_operators.call_backward(*given, **named))
    return compute_backward(*given, **named, page_table=page_table)


@untraced
def compute_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    seed: int | None = None,
    attn_mask_gradient: bool = False,
    backend: str = "",
    **more: Any,
) -> Gradients:
    """Return what `scaled_dot_product_attention_backward` returns, not connected to torch's graph.

    backend: the name of the one that computed the forward call, and computes this one if it can; "" for any.
    """
    fields = Fields(**more)
    results = {"grad_out": grad_out, "out": out, "logsumexp": logsumexp}
    for name, tensor in results.items():
        if not is_tensor(tensor):
            raise _BACKWARD.wrong(name, "Tensor", tensor)
    if not isinstance(attn_mask_gradient, bool):
        raise _BACKWARD.wrong("attn_mask_gradient", "bool", attn_mask_gradient)
    options = dropout_p, is_causal, scale, enable_gqa, seed
    request = requested(_BACKWARD, query, key, value, attn_mask, *options, fields=fields)
    _refuse_results(request, results, _BACKWARD.described("query", query).device)
    named = {"query": query, "key": key, "value": value, "attn_mask": request.mask}
    if request.problem is None:
        specs = {
            name: _BACKWARD.described(name, tensor) for name, tensor in named.items() if tensor is not None
        }
        mask = specs.pop("attn_mask", None)
        if attn_mask_gradient and mask is not None and mask.dtype != "bool":
            specs["attn_mask"] = mask
        zeros_like = _interchange().zeros_like
        return Gradients(*(zeros_like(named[name], spec.shape) for name, spec in specs.items()))
    problem = _requiring(request.problem, True, mask=attn_mask_gradient)
    if 0 < problem.dropout < 1 and problem.seed is None:
        raise ValueError("dropout needs the seed of the forward call, to drop the same weights")
    tensors = query, key, value, request.mask, out, logsumexp
    chosen = chosen_backend(problem, "backward", backend)
    return chosen.run_backward(problem, grad_out, *tensors, **fields.tensors)


def _register() -> bool:
    """Load the module with the operators of torch, which registers them when it is first imported."""
    global _operators  # noqa: PLW0603  what torch's compiler reads after this call
    _operators = registry.load(f"{registry.KERNELS}.bridges", "torch_operator")
    return True


# torch's compiler calls it where it traces, instead of tracing it.
_register._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
_operators: Any = None


def replace_attention(model: Any = None) -> AbstractContextManager[None]:
    """Replace torch.nn.functional.scaled_dot_product_attention by ours, in this process, from this call on.

    The result is a context manager: what was there before comes back at the end of its block. Where ours
    cannot compute a call, torch does; `last_attention` says so, and why.
    model: a model of transformers, whose attention alone is replaced; soft caps and sinks, which torch's
    function lacks, are computed too. transformers, if it is imported, then also takes
    attn_implementation="mlbackends".
    Raises ImportError without torch, TypeError for another model.
    """
    replacement: AbstractContextManager[None] = registry.load(
        f"{registry.KERNELS}.bridges", "torch_function"
    ).Replacement(model)
    return replacement


def _by_operator(*args: Any, **options: Any) -> Any:
    _register()
    return _operators.call(*args, **options)


def _interchange() -> Any:
    return registry.load(f"{registry.KERNELS}.tensors", "interchange")


def _requiring(problem: AttentionProblem, gradients: bool, *, mask: bool) -> AttentionProblem:
    """Return the problem with or without gradients of all tensors. mask: the same for a float mask."""
    required = dict.fromkeys(("query", "key", "value"), gradients)
    if problem.sinks is not None:
        required["sinks"] = gradients
    if problem.mask is not None:
        required["mask"] = mask and problem.mask.dtype != "bool"
    specs = {name: replace(getattr(problem, name), requires_grad=wanted) for name, wanted in required.items()}
    return replace(problem, **specs)


def _refuse_results(request: Request, results: dict[str, Any], place: str) -> None:
    """Raise RuntimeError unless grad_out, out and logsumexp are as the forward call returns them."""
    for name, tensor in results.items():
        spec = _BACKWARD.described(name, tensor)
        shape, dtype = request.output_shape, request.dtype
        if name == "logsumexp":
            shape, dtype = shape[:-1], request.logsumexp_dtype
        if request.output_shape and spec.shape != shape:  # unknown for nested tensors
            raise RuntimeError(f"{name} has the shape {list(spec.shape)}; it must be {list(shape)}")
        if spec.dtype != dtype:
            raise RuntimeError(f"{name} has the dtype {spec.dtype}; it must be {dtype}")
        if spec.device != place:
            raise RuntimeError(f"{name} is on {spec.device}; query is on {place}")
