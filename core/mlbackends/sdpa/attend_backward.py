"""scaled_dot_product_attention_backward: the gradients of a call, by the backend that is chosen."""

from functools import partial
from typing import Any

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa import call_cache
from mlbackends.sdpa.backend import Gradients, Prepared
from mlbackends.sdpa.bias import CausalBias
from mlbackends.sdpa.describe import is_tensor, without_gradients
from mlbackends.sdpa.readable import refuse_unreadable
from mlbackends.sdpa.request import Operation, Options, Request, requested
from mlbackends.switches.dynamo import untraced

_OPERATION = Operation(
    "scaled_dot_product_attention_backward",
    (
        *("grad_out", "query", "key", "value", "out", "logsumexp"),
        *("dropout_p", "is_causal"),
    ),
)


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
) -> Gradients:
    """Return the gradients of query, key and value, and of the mask if asked, given that of the result.

    out and logsumexp: what `scaled_dot_product_attention(..., return_logsumexp=True)` returned for the
    same arguments. grad_out is of out's shape (..., H, L, Ev) and element type; logsumexp (..., H, L),
    float64 for float64, else float32. seed: the one of that call, which says what dropout dropped.
    Given out and logsumexp of more keys than are given here, what these keys add to the gradients.
    attn_mask_gradient: return the gradient of a mask of numbers too; of booleans there is none.
    Each gradient is of the shape, element type and kind of its tensor, summed over what was broadcast
    or shared by a group of heads. A row that sees no key gives 0; what is empty gives zeros.

    Raises what `scaled_dot_product_attention` raises; RuntimeError also where a shape, an element type
    or a device does not fit, or where torch is to record gradients of these gradients, which have none;
    ValueError for dropout without a seed.
    Source: Dao 2023, FlashAttention-2, algorithm 2; the order of the arguments is that of torch's
    aten._scaled_dot_product_flash_attention_for_cpu_backward.
    """
    told = dropout_p, is_causal, scale, enable_gqa, True
    kind = call_cache.kind_of_call(query, key, value, attn_mask, seed, told)
    if kind is not None:
        ours = attn_mask_gradient is False and not (dropout_p and seed is None)
        kind = call_cache.kind_of_backward(kind, grad_out, out, logsumexp) if ours else None
    mask = None if isinstance(attn_mask, CausalBias) else attn_mask
    tensors = query, key, value, mask, out, logsumexp
    if kind is not None:
        for call in call_cache.prepared_calls(kind):
            found: Gradients | None = call(grad_out, *tensors, seed)
            if found is not None:
                return found
    results = {"grad_out": grad_out, "out": out, "logsumexp": logsumexp}
    for name, tensor in results.items():
        if not is_tensor(tensor):
            raise _OPERATION.wrong(name, "Tensor", tensor)
    if not isinstance(attn_mask_gradient, bool):
        raise _OPERATION.wrong("attn_mask_gradient", "bool", attn_mask_gradient)
    options = Options(dropout_p, is_causal, scale, enable_gqa, seed)
    asked = requested(_OPERATION, query, key, value, attn_mask, options)
    refuse_unreadable(results, f"{_OPERATION.name}(): ", meta=True)
    _refuse_results(asked, results, _OPERATION.described("query", query).device)
    named = {"query": query, "key": key, "value": value, "attn_mask": asked.mask}
    _refuse_gradients({**named, **results})
    if asked.problem is None:
        return _zeros(query, key, value, asked.mask if attn_mask_gradient else None)
    problem = _wanting(asked.problem, mask=attn_mask_gradient)
    if 0 < problem.dropout < 1 and problem.seed is None:
        raise ValueError("dropout needs the seed of the forward call: it says what was dropped")
    gradients = run_backward(problem, grad_out, query, key, value, asked.mask, out, logsumexp)
    if kind is not None:
        call_cache.keep(kind, partial(_prepared, problem, *tensors))
    return gradients


def _prepared(problem: AttentionProblem, *tensors: Any) -> Prepared | None:
    from mlbackends.sdpa.dispatch import lasting_choice

    backend = lasting_choice(problem)
    return backend.prepared_backward(problem, *tensors) if backend else None


def run_backward(
    problem: AttentionProblem,
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    out: Any,
    logsumexp: Any,
) -> Gradients:
    """Compute the gradients with the backend that is chosen. Raises NoBackend if there is none."""
    from mlbackends.sdpa.dispatch import chosen_backend

    backend = chosen_backend(problem)
    return backend.run_backward(problem, grad_out, query, key, value, mask, out, logsumexp)


def _refuse_results(asked: Request, results: dict[str, Any], place: str) -> None:
    """Raise RuntimeError unless grad_out, out and logsumexp are as the forward call returns them."""
    shapes = {"logsumexp": asked.output_shape[:-1]}
    dtypes = {"logsumexp": asked.logsumexp_dtype}
    for name, tensor in results.items():
        spec = _OPERATION.described(name, tensor)
        shape, dtype = shapes.get(name, asked.output_shape), dtypes.get(name, asked.dtype)
        if asked.output_shape and spec.shape != shape:  # of nested tensors nothing is known
            raise RuntimeError(f"{name} has the shape {list(spec.shape)}; it must be {list(shape)}")
        if spec.dtype != dtype:
            raise RuntimeError(f"{name} is of {spec.dtype}; it must be of {dtype}")
        if spec.device != place:
            raise RuntimeError(f"{name} lies on {spec.device}; query lies on {place}")


def _refuse_gradients(tensors: dict[str, Any]) -> None:
    """Raise RuntimeError where torch would record what is done here, to differentiate it again."""
    if without_gradients():
        return
    for name, tensor in tensors.items():
        if getattr(tensor, "requires_grad", False):
            raise RuntimeError(
                f"{name} requires a gradient, and gradients have none of their own here:"
                " call it under torch.no_grad(), or give it tensor.detach()"
            )


def _wanting(problem: AttentionProblem, *, mask: bool) -> AttentionProblem:
    """Return a problem whose query, key and value require gradients, and if asked a mask of numbers."""
    from msgspec.structs import replace

    def wanted(spec: TensorSpec, required: bool = True) -> TensorSpec:
        return replace(spec, requires_grad=required)

    spec = problem.mask
    return replace(
        problem,
        query=wanted(problem.query),
        key=wanted(problem.key),
        value=wanted(problem.value),
        mask=spec and wanted(spec, mask and spec.dtype != "bool"),
    )


def _zeros(query: Any, key: Any, value: Any, mask: Any) -> Gradients:
    from mlbackends_kernels.tensors.interchange import zeros_like

    described = _OPERATION.described
    if mask is not None and described("attn_mask", mask).dtype == "bool":
        mask = None
    return Gradients(
        *(
            None if each is None else zeros_like(each, described("", each).shape)
            for each in (query, key, value, mask)
        )
    )
