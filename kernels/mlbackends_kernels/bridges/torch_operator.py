"""mlbackends::scaled_dot_product_attention and its backward pass: our attention as operators of torch.

torch's transformations see one operator: autograd, autocast, vmap, torch.func, torch.compile, torch.export.
Derivatives beyond first-order gradients are those of `torch_formula`. Written for torch 2.13 to 2.15.

Shapes: those of `attend.scaled_dot_product_attention`. The result has the layout of the query, (B, H, L, E)
or (B, L, H, E), and a gradient that of its tensor, whichever backend computes.
"""

import contextlib
from typing import Any

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from mlbackends.base.errors import NoBackend
from mlbackends.sdpa import attend, calls, switches
from mlbackends.sdpa.bias import without_bias
from mlbackends.sdpa.describe import describe, is_transformed
from mlbackends.switches.dynamo import untraced
from mlbackends_kernels.attention_cpu.forward import is_rows_first
from mlbackends_kernels.bridges import torch_formula
from mlbackends_kernels.tensors.interchange import as_array, like

_NAME = "scaled_dot_product_attention"
_TENSORS = (
    "Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, Tensor? sinks=None, Tensor? seed=None,"
    " Tensor? alibi_slopes=None"
)
_OPTIONS = (
    "float dropout_p=0.0, bool is_causal=False, float? scale=None, bool enable_gqa=False, int[]? window=None,"
    " bool lower_right=False, float softcap=0.0, int[]? query_lengths=None, int[]? key_lengths=None,"
    " int[]? kinds=None, bool set_priority=False"
)
_LIBRARY = torch.library.Library("mlbackends", "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag,)
_LIBRARY.define(
    f"{_NAME}({_TENSORS}, Tensor? page_table=None, *, {_OPTIONS}) -> (Tensor, Tensor)", tags=_TAGS
)
_LIBRARY.define(
    f"{_NAME}_backward(Tensor grad_out, Tensor out, Tensor logsumexp, {_TENSORS}, *, {_OPTIONS},"
    ' bool mask_gradient=False, str backend="") -> (Tensor, Tensor, Tensor, Tensor, Tensor)',
    tags=_TAGS,
)
FORWARD: Any = getattr(torch.ops.mlbackends, _NAME).default
BACKWARD: Any = getattr(torch.ops.mlbackends, f"{_NAME}_backward").default
_core: Any = torch._C  # noqa: SLF001
_SEEDS = 1 << 63


def call(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    return_logsumexp: bool = False,
    seed: int | None = None,
    sinks: Any = None,
    alibi_slopes: Any = None,
    page_table: Any = None,
    **options: Any,
) -> Any:
    """Return what `attend.scaled_dot_product_attention` returns, by the operator.

    The seed of dropout is drawn from torch's generator by an operation of torch, so that a graph has it too.
    """
    given = (query, key, value, sinks, alibi_slopes, page_table)
    if not isinstance(query, torch.Tensor | torch.fx.Proxy):
        if torch.compiler.is_compiling():  # of no kind that a graph has: it breaks here
            options |= {"seed": seed, "sinks": sinks, "alibi_slopes": alibi_slopes, "page_table": page_table}
            options["return_logsumexp"] = return_logsumexp
            return attend.compute(query, key, value, attn_mask, dropout_p, is_causal, **options)
        message = (
            f"the result is of the kind of query, {type(query).__qualname__}, which cannot have gradients:"
            " pass query as a torch tensor, or call it under torch.no_grad()"
        )
        raise RuntimeError(message)
    if torch.is_grad_enabled() and getattr(alibi_slopes, "requires_grad", False) is True:
        raise RuntimeError("alibi_slopes requires a gradient and has none: pass alibi_slopes.detach()")
    query, key, value, sinks, alibi_slopes, page_table = map(_as_torch, given)
    mask, is_causal, lower_right = without_bias(
        *(attn_mask, is_causal, options.pop("lower_right", False)),
        (query.shape[-2], key.shape[-2]),
        options.get("key_lengths"),
    )
    for name in ("window", "query_lengths", "key_lengths"):
        if (numbers := options.get(name)) is not None:
            options[name] = numbers.tolist() if hasattr(numbers, "tolist") else list(numbers)
    drawn = _as_seed(seed)
    if drawn is None and 0 < dropout_p < 1:
        drawn = torch.randint(0, _SEEDS - 1, (), device="cpu")
    tensors = (query, key, value, _as_torch(mask), sinks, drawn, alibi_slopes, page_table)
    options |= {"dropout_p": _number(dropout_p), "is_causal": is_causal, "lower_right": lower_right}
    if switches.traced_scopes:
        options["kinds"], options["set_priority"] = switches.traced_scopes[-1]
    results = FORWARD(*tensors, **options)
    return results if return_logsumexp else results[0]


def call_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any,
    sinks: Any,
    alibi_slopes: Any,
    seed: int | None,
    attn_mask_gradient: bool,
    **options: Any,
) -> tuple[Any, ...]:
    """Return what `attend.scaled_dot_product_attention_backward` returns, by the operator."""
    mask, is_causal, lower_right = without_bias(
        attn_mask, is_causal, options.pop("lower_right"), (query.shape[-2], key.shape[-2])
    )
    tensors = (grad_out, out, logsumexp, query, key, value, mask, sinks)
    wants_mask = attn_mask_gradient and mask is not None and mask.dtype != torch.bool
    options |= {"dropout_p": _number(dropout_p), "is_causal": is_causal, "lower_right": lower_right}
    more = (_as_seed(seed), _as_torch(alibi_slopes))
    found = BACKWARD(*map(_as_torch, tensors), *more, mask_gradient=wants_mask, **options)
    return (*found[:3], found[3] if wants_mask else None, None if sinks is None else found[4])


def _number(number: Any) -> float:
    return number if isinstance(number, float) else float(number)


def _as_seed(seed: int | None) -> Any:
    """Return the bits of a seed as a tensor of a signed number."""
    return None if seed is None else torch.tensor((seed + _SEEDS) % (2 * _SEEDS) - _SEEDS)


def _as_torch(tensor: Any) -> Any:
    """Return a tensor of any kind as a torch tensor."""
    if tensor is None or isinstance(tensor, torch.Tensor | torch.fx.Proxy):
        return tensor
    array = as_array(tensor)
    writable = array if array.flags.writeable else array.copy()  # torch has no read-only tensors
    return like(torch.empty(0), writable, describe(tensor).dtype)


# ---- kernels ------------------------------------------------------------------------


def _result(tensor: Any, shape: Any, dtype: Any = None) -> Any:
    """Return an uninitialised result in the layout of a tensor: (B, H, L, E) or (B, L, H, E)."""
    if tensor.dim() == len(shape) and is_rows_first(tensor.shape, tensor.stride()):
        swapped = (*shape[:-3], shape[-2], shape[-3], shape[-1])
        return tensor.new_empty(swapped, dtype=dtype).transpose(-2, -3)
    return tensor.new_empty(shape, dtype=dtype)


def _laid_out(result: Any, tensor: Any) -> Any:
    """Return a result in the layout that `_result` gives it."""
    if tensor.dim() == result.dim() and is_rows_first(tensor.shape, tensor.stride()):
        return result.transpose(-2, -3).contiguous().transpose(-2, -3)
    return result.contiguous()


def _scope(kinds: list[int] | None, set_priority: bool) -> Any:
    """Return the scope of a call in a graph, in which its kinds are allowed; None for all."""
    if kinds is None:
        return contextlib.nullcontext()
    return switches.sdpa_kernel(list(map(switches.SDPBackend, kinds)), set_priority)


@untraced
def _forward(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    sinks: Any = None,
    seed: Any = None,
    alibi_slopes: Any = None,
    page_table: Any = None,
    *,
    kinds: list[int] | None = None,
    set_priority: bool = False,
    **options: Any,
) -> tuple[Any, Any]:
    more = {"sinks": sinks, "alibi_slopes": alibi_slopes, "page_table": page_table}
    more["seed"] = None if seed is None else int(seed)
    with _scope(kinds, set_priority):
        out, logsumexp = attend.compute(query, key, value, mask, return_logsumexp=True, **more, **options)
    return _laid_out(out, query), logsumexp.contiguous()


@untraced
def _backward(
    grad_out: Any,
    out: Any,
    logsumexp: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    sinks: Any = None,
    seed: Any = None,
    alibi_slopes: Any = None,
    *,
    mask_gradient: bool = False,
    kinds: list[int] | None = None,
    set_priority: bool = False,
    **options: Any,
) -> tuple[Any, ...]:
    tensors = (query, key, value, mask, sinks)
    more = {"attn_mask": mask, "sinks": sinks, "alibi_slopes": alibi_slopes, **options}
    more |= {"seed": None if seed is None else int(seed), "attn_mask_gradient": mask_gradient}
    try:
        with _scope(kinds, set_priority):
            found: Any = attend.compute_backward(grad_out, query, key, value, out, logsumexp, **more)
    except NoBackend:  # the backends are switched off by now, or none has these gradients
        calls.note("torch", query, "no backend of ours has these gradients", "backward")
        with torch.no_grad():
            given = (*tensors, seed, alibi_slopes)
            found = torch_formula.gradients(grad_out, *given, mask_gradient=mask_gradient, **options)
    return tuple(
        query.new_empty(0) if gradient is None else _laid_out(gradient, tensor)
        for gradient, tensor in zip(found, tensors, strict=True)
    )


def _forward_fake(
    query: Any, key: Any, value: Any, *_: Any, enable_gqa: bool = False, key_lengths: Any = None, **__: Any
) -> tuple[Any, Any]:
    grouped = 3 if enable_gqa else 2
    leading = query.shape[:-2]
    if not key_lengths:
        leading = torch.broadcast_shapes(*(tensor.shape[:-grouped] for tensor in (query, key, value)))
        leading = (*leading, *query.shape[-grouped:-2])
    out = _result(query, (*leading, query.shape[-2], value.shape[-1]))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    return out, query.new_empty(out.shape[:-1], dtype=wide)


def _backward_fake(
    _: Any,
    __: Any,
    ___: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    sinks: Any = None,
    *others: Any,
    mask_gradient: bool = False,
    **options: Any,
) -> tuple[Any, ...]:
    del others, options
    tensors = (query, key, value, mask if mask_gradient else None, sinks)
    return tuple(query.new_empty(0) if each is None else _result(each, each.shape) for each in tensors)


# ---- derivatives --------------------------------------------------------------------


def _recorded(operator: Any, function: Any, formula: Any) -> Any:
    """Return the kernel of an operator that adds it to torch's graph of gradients."""

    def kernel(keys: Any, *tensors: Any, **options: Any) -> Any:
        if forward_ad._current_level >= 0 and any(map(_is_dual, tensors)):  # noqa: SLF001
            calls.note("torch", tensors[0], "forward-mode differentiation")
            return formula(*tensors, **options)
        if torch.is_grad_enabled() and _core._any_requires_grad(*tensors):  # noqa: SLF001
            with enable_single_level_autograd_function():
                return function.apply(keys, options, *tensors)
        with _core._AutoDispatchBelowAutograd():  # noqa: SLF001
            return operator.redispatch(keys & _core._after_autograd_keyset, *tensors, **options)  # noqa: SLF001

    return kernel


def _is_dual(tensor: Any) -> bool:
    return tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None


def _below(operator: Any, keys: Any, tensors: Any, options: Any) -> Any:
    """Call what computes an operator, for one level of torch.func; the next one may record it again."""
    forward_too = forward_ad._set_fwd_grad_enabled(True)  # noqa: SLF001
    with torch.enable_grad(), forward_too, _core._AutoDispatchBelowAutograd():  # noqa: SLF001
        return operator.redispatch(keys & _core._after_autograd_keyset, *tensors, **options)  # noqa: SLF001


class _Attention(_SingleLevelFunction):  # type: ignore[misc,unused-ignore]
    @staticmethod
    def forward(ctx: Any, keys: Any, options: dict[str, Any], *tensors: Any) -> Any:
        out, logsumexp = _below(FORWARD, keys, tensors, options)
        last = None if is_transformed(*tensors[:1]) else calls.last_attention()
        ctx.options = {**options, "backend": last.backend if last else ""}
        ctx.save_for_backward(*(*tensors, *[None] * 4)[:7], out, logsumexp)
        ctx.mark_non_differentiable(logsumexp)
        ctx.set_materialize_grads(False)
        return out, logsumexp

    @staticmethod
    def backward(ctx: Any, grad_out: Any, _: Any) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[2:]
        if grad_out is None:
            return None, None, *(None for _ in needed)
        *tensors, out, logsumexp = ctx.saved_tensors
        wants_mask = len(needed) > 3 and needed[3]
        found = BACKWARD(grad_out, out.detach(), logsumexp, *tensors, mask_gradient=wants_mask, **ctx.options)
        pairs = zip((*found, None, None, None), needed, strict=False)
        return None, None, *(gradient if is_needed else None for gradient, is_needed in pairs)


class _Gradients(_SingleLevelFunction):  # type: ignore[misc,unused-ignore]
    @staticmethod
    def forward(ctx: Any, keys: Any, options: dict[str, Any], *tensors: Any) -> Any:
        found = _below(BACKWARD, keys, tensors, options)
        ctx.options = options
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    def backward(ctx: Any, *coming: Any) -> tuple[Any, ...]:
        """Return second-order gradients, of which those by way of out and logsumexp are a part."""
        needed = (*ctx.needs_input_grad[2:3], False, False, *ctx.needs_input_grad[5:])
        tensors = ctx.saved_tensors
        wanted = [place for place, gradient in enumerate(coming) if gradient is not None]
        if not wanted:
            return None, None, *(None for _ in needed)
        calls.note("torch", tensors[3], "gradients of gradients", "backward")

        def once(*inputs: Any) -> list[Any]:
            left = iter(inputs)
            pairs = zip(tensors, needed, strict=True)
            given = [next(left) if is_needed else tensor for tensor, is_needed in pairs]
            found = torch_formula.gradients(given[0], *given[3:], **ctx.options)
            return [found[place] for place in wanted]

        # A level of torch.func, since that of the forward pass may have ended.
        inputs = [tensor for tensor, is_needed in zip(tensors, needed, strict=True) if is_needed]
        _, pulled_back = torch.func.vjp(once, *inputs)
        left = iter(pulled_back([coming[place] for place in wanted]))
        return None, None, *(next(left) if is_needed else None for is_needed in needed)


def _formula_backward(grad_out: Any, _: Any, __: Any, *tensors: Any, **options: Any) -> tuple[Any, ...]:
    found = torch_formula.gradients(grad_out, *tensors, **options)
    return tuple(grad_out.new_empty(0) if gradient is None else gradient for gradient in found)


# ---- vmap ---------------------------------------------------------------------------


def _batched(operator: Any, first: int) -> Any:
    """Return the vmap rule of an operator whose tensors from `first` on are query, key, value and mask.

    The batch becomes the first dimension of our leading dimensions. What these cannot express is computed
    one after another: packed and paged sequences, gradients of sinks, and dropout that is the same for all.
    """

    def rule(info: Any, dims: Any, *tensors: Any, **options: Any) -> tuple[Any, Any]:
        size = info.batch_size
        tensors, dims = (*tensors, *[None] * 8)[: first + 7], (*dims, *[None] * 8)[: first + 7]
        sinks, seed = tensors[first + 4 : first + 6]
        alone = (
            bool(options.get("key_lengths"))
            or (sinks is not None and (first > 0 or dims[first + 4] is not None))
            or (seed is not None and dims[first + 5] is None)
            or dims[first + 6] is not None
        )
        if alone:
            each = [
                operator(*(_item(*pair, number) for pair in zip(tensors, dims, strict=True)), **options)
                for number in range(size)
            ]
            results = tuple(torch.stack(parts) for parts in zip(*each, strict=True))
            return results, (0,) * len(results)
        folded = [_batch_first(*pair, size) for pair in zip(tensors, dims, strict=True)]
        own = max(tensor.dim() - 1 for tensor in folded[first : first + 3])
        rank = max(own, 3)
        given = []
        for place, tensor in enumerate(folded):
            if place >= first + 4:  # sinks and slopes are the same for all; one seed is enough
                given.append(None if tensor is None else tensor[0])
            elif tensor is None:
                given.append(None)
            else:
                missing = rank - (tensor.dim() - 1) - (first > 0 and place == 2)
                given.append(tensor[(slice(None), *[None] * missing)])
        results = operator(*given, **options)
        if not first:
            out, logsumexp = results
            shape = (size, *out.shape[1 + rank - own :])
            return (out.reshape(shape), logsumexp.reshape(shape[:-1])), (0, 0)
        found = tuple(
            gradient if gradient.dim() == 1 else gradient.reshape(tensor.shape)
            for gradient, tensor in zip(results, folded[first : first + 5], strict=True)
        )
        return found, tuple(None if gradient.dim() == 1 else 0 for gradient in found)

    return rule


def _batch_first(tensor: Any, dim: int | None, size: int) -> Any:
    if tensor is None:
        return None
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _item(tensor: Any, dim: int | None, number: int) -> Any:
    return tensor if dim is None else tensor.select(dim, number)


# ---- autocast -----------------------------------------------------------------------


def _autocast(device: str, key: Any) -> Any:
    """Return the kernel that casts as autocast does for attention: floating-point tensors except float64."""

    def cast(tensor: Any) -> Any:
        if tensor is None or not tensor.is_floating_point() or tensor.dtype == torch.float64:
            return tensor
        return tensor.to(torch.get_autocast_dtype(device))

    def kernel(_: Any, *tensors: Any, **options: Any) -> Any:
        with _core._ExcludeDispatchKeyGuard(_core.DispatchKeySet(key)):  # noqa: SLF001
            return FORWARD(*map(cast, tensors[:4]), *tensors[4:], **options)

    return kernel


for _operator, _kernel, _fake, _function, _formula, _first in (
    (FORWARD, _forward, _forward_fake, _Attention, torch_formula.attention, 0),
    (BACKWARD, _backward, _backward_fake, _Gradients, _formula_backward, 3),
):
    _name = _operator.name()
    _LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    _LIBRARY.impl(_name, _recorded(_operator, _function, _formula), "Autograd", with_keyset=True)
    torch.library.register_fake(_name, _fake, lib=_LIBRARY)
    torch.library.register_vmap(_name, _batched(_operator, _first), lib=_LIBRARY)
for _device in ("cpu", "cuda"):
    _key = f"Autocast{_device.upper()}"
    _kernel = _autocast(_device, getattr(_core.DispatchKey, _key))
    _LIBRARY.impl(FORWARD.name(), _kernel, _key, with_keyset=True)
