"""scaled_dot_product_attention and its gradients: torch's checks, then the chosen backend."""

from typing import Any

from msgspec.structs import replace

from mlbackends.base import registry
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients
from mlbackends.sdpa.describe import is_tensor, without_gradients
from mlbackends.sdpa.dispatch import chosen_backend
from mlbackends.sdpa.readable import refuse_unreadable
from mlbackends.sdpa.request import Fields, Operation, Request, requested
from mlbackends.switches.dynamo import untraced

_FORWARD = Operation(
    "scaled_dot_product_attention",
    "query key value attn_mask dropout_p is_causal",
)
_BACKWARD = Operation(
    "scaled_dot_product_attention_backward",
    "grad_out query key value out logsumexp dropout_p is_causal",
)


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
    return_logsumexp: bool = False,
    seed: int | None = None,
    window: tuple[int, int] | None = None,
    lower_right: bool = False,
    softcap: float = 0.0,
    sinks: Any = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    page_table: Any = None,
) -> Any:
    """Return softmax(query @ transposed(key) * scale + attn_mask) @ value.

    Shapes: query (..., H, L, E), key (..., Hkv, S, E), value (..., Hkv, S, Ev); the result is (..., H, L, Ev)
    and of the same kind as query: a numpy array for a numpy array, a torch tensor for a torch tensor,
    whose gradients are ours where query, key, value or a mask of numbers requires one; gradients of
    gradients are refused.
    The mask of a numpy.ma.MaskedArray is ignored: all its numbers count.
    attn_mask: a CausalBias; or booleans, False where a key is not seen; or numbers that are added to
    the scores; of a shape that broadcasts to (..., H, L, S). A row that sees no key is 0;
    one that sees keys, and whose scores all overflow to -inf, is NaN.
    dropout_p: the probability, 0 to 1, that a weight is dropped; it counts whenever it is above 0, and
    what is kept is divided by 1 - dropout_p. seed decides which ones are dropped, by its lower 64 bits;
    without one it is repeatable by torch.manual_seed for torch's tensors (whose generator for the CPU is
    drawn from, once a call), by numpy.random.seed for all others. They are not the ones that torch itself
    would drop.
    scale: None for 1/sqrt(E). enable_gqa: heads of key and value serve groups of query heads.
    return_logsumexp: return also the natural logarithm of the sum of the exponentials of each row's
    scores, scaled and masked: (..., H, L), of the kind of query, float64 for float64, else float32, 0
    for a row that sees no key. It has no gradient.

    The rest is not in torch's function, and not every backend has it (`backends sdpa list`).
    window: how many keys to the left and right of its own position a row sees, -1 for all; row i of L has
    the position i, with lower_right i + S - L, where a causal mask ends, too.
    softcap: scores become softcap * tanh(scores / softcap) before masks; 0 for none.
    sinks: (H,), of query's type or float32: one more score for each head, which counts in every row's sum
    and in its logarithm, and has no value. A row that sees no key has its sink as logarithm.
    query_lengths, key_lengths: of sequences that lie one after another in (1, H, L, E) and (1, Hkv, S, E),
    as ints or a tensor of them, which is read; each sequence sees itself alone.
    page_table: (B, most pages) of int32: the pages of each sequence, of which key (pages, Hkv, page size, E)
    and value consist, and of whose keys key_lengths (B,) count. They have no gradient.

    Raises RuntimeError, TypeError, ValueError, IndexError and NotImplementedError where torch does;
    NoBackend, a RuntimeError, where no backend may or can compute it, with all the reasons; IndexError from
    a backend of the CPU for a page that is not there.
    """
    fields = Fields(window, lower_right, softcap, sinks, query_lengths, key_lengths, page_table)
    options = dropout_p, is_causal, scale, enable_gqa, seed
    if not isinstance(return_logsumexp, bool):
        raise _FORWARD.wrong("return_logsumexp", "bool", return_logsumexp)
    request = requested(_FORWARD, query, key, value, attn_mask, *options, fields=fields)
    problem = request.problem
    tensors = query, key, value, request.mask
    more = fields.tensors
    if problem is None:
        zeros_like = _interchange().zeros_like
        out = zeros_like(query, request.output_shape)
        logsumexp = zeros_like(query, request.output_shape[:-1], request.logsumexp_dtype)
        wanting = any(getattr(each, "requires_grad", False) for each in tensors[:3])
        if wanting and not without_gradients():
            out = _torch_graph().connected(out, *tensors[:3])
        return (out, logsumexp) if return_logsumexp else out
    if problem.wants_gradient and without_gradients():
        problem = _requiring(problem, False, mask=False)
    if return_logsumexp and not problem.wants_gradient:
        problem = replace(problem, logsumexp=True)
    backend = chosen_backend(problem)
    if problem.wants_gradient:
        # A backend that takes "gradient" returns the logarithms too: the backward pass needs them.
        out, logsumexp = _torch_graph().attended(backend, problem, *tensors, **more)
    elif return_logsumexp:
        out, logsumexp = backend.run_with_logsumexp(problem, *tensors, **more)
    else:
        out, logsumexp = backend.run(problem, *tensors, **more), None
    return (out, logsumexp) if return_logsumexp else out


@untraced
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
    query_lengths: Any = None,
    key_lengths: Any = None,
    page_table: Any = None,
) -> Gradients:
    """Return the gradients of query, key and value, and optionally of the mask, given that of the result.

    out and logsumexp: what `scaled_dot_product_attention(..., return_logsumexp=True)` returned for the
    same arguments. grad_out is of out's shape (..., H, L, Ev) and element type; logsumexp (..., H, L),
    float64 for float64, else float32. seed: the one of that call, which decides what dropout dropped.
    Given out and logsumexp of more keys than are given here, what these keys add to the gradients.
    attn_mask_gradient: return the gradient of a mask of numbers too; of booleans there is none. That of
    sinks is always returned. The rest is as in the forward call.
    Each gradient is of the shape, element type and kind of its tensor, summed over what was broadcast
    or shared by a group of heads. A row that sees no key gives 0; what is empty gives zeros.

    Raises what `scaled_dot_product_attention` raises; RuntimeError also where a shape, an element type
    or a device does not fit, or where torch is to record gradients of these gradients, which have none;
    ValueError for dropout without a seed.
    Source: Dao 2023, FlashAttention-2, algorithm 2; the order of the arguments is that of torch's
    aten._scaled_dot_product_flash_attention_for_cpu_backward.
    """
    fields = Fields(window, lower_right, softcap, sinks, query_lengths, key_lengths, page_table)
    results = {"grad_out": grad_out, "out": out, "logsumexp": logsumexp}
    for name, tensor in results.items():
        if not is_tensor(tensor):
            raise _BACKWARD.wrong(name, "Tensor", tensor)
    if not isinstance(attn_mask_gradient, bool):
        raise _BACKWARD.wrong("attn_mask_gradient", "bool", attn_mask_gradient)
    options = dropout_p, is_causal, scale, enable_gqa, seed
    request = requested(_BACKWARD, query, key, value, attn_mask, *options, fields=fields)
    more = fields.tensors
    refuse_unreadable(results, f"{_BACKWARD.name}(): ", meta=True)
    _refuse_results(request, results, _BACKWARD.described("query", query).device)
    named = {"query": query, "key": key, "value": value, "attn_mask": request.mask}
    if not without_gradients():
        for name, tensor in {**named, **results, **more}.items():
            if getattr(tensor, "requires_grad", False):
                raise RuntimeError(
                    f"{name} requires a gradient, and gradients have none of their own here:"
                    " call it under torch.no_grad(), or give it tensor.detach()"
                )
    if request.problem is None:
        specs = {
            name: _BACKWARD.described(name, each)
            for name, each in named.items()
            if each is not None
        }
        mask = specs.pop("attn_mask", None)
        if attn_mask_gradient and mask is not None and mask.dtype != "bool":
            specs["attn_mask"] = mask
        zeros_like = _interchange().zeros_like
        return Gradients(*(zeros_like(named[name], spec.shape) for name, spec in specs.items()))
    problem = _requiring(request.problem, True, mask=attn_mask_gradient)
    if 0 < problem.dropout < 1 and problem.seed is None:
        raise ValueError("dropout needs the seed of the forward call: it says what was dropped")
    tensors = query, key, value, request.mask, out, logsumexp
    return chosen_backend(problem).run_backward(problem, grad_out, *tensors, **more)


def _torch_graph() -> Any:
    """Return the module that joins results to torch's graph."""
    return registry.load(f"{registry.KERNELS}.bridges", "torch_gradients")


def _interchange() -> Any:
    return registry.load(f"{registry.KERNELS}.tensors", "interchange")


def _requiring(problem: AttentionProblem, gradients: bool, *, mask: bool) -> AttentionProblem:
    """Return a problem of which all tensors, and a mask of numbers, require gradients or none."""
    required = dict.fromkeys(("query", "key", "value"), gradients)
    if problem.sinks is not None:
        required["sinks"] = gradients
    if problem.mask is not None:
        required["mask"] = mask and problem.mask.dtype != "bool"
    specs = {
        name: replace(getattr(problem, name), requires_grad=wanted)
        for name, wanted in required.items()
    }
    return replace(problem, **specs)


def _refuse_results(request: Request, results: dict[str, Any], place: str) -> None:
    """Raise RuntimeError unless grad_out, out and logsumexp are as the forward call returns them."""
    for name, tensor in results.items():
        spec = _BACKWARD.described(name, tensor)
        shape, dtype = request.output_shape, request.dtype
        if name == "logsumexp":
            shape, dtype = shape[:-1], request.logsumexp_dtype
        if request.output_shape and spec.shape != shape:  # of nested tensors nothing is known
            raise RuntimeError(f"{name} has the shape {list(spec.shape)}; it must be {list(shape)}")
        if spec.dtype != dtype:
            raise RuntimeError(f"{name} is of {spec.dtype}; it must be of {dtype}")
        if spec.device != place:
            raise RuntimeError(f"{name} lies on {spec.device}; query lies on {place}")
