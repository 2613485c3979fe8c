"""torch.compile(model, backend="mlbackends"): attention by our dispatcher, everything else by torch.

The graph runs as with torch's "eager" backend, but with each scaled_dot_product_attention (also inside
nn.MultiheadAttention, activation checkpoints and branches) replaced by `attention`. Written for torch 2.13 to
2.15. The scopes of both sdpa_kernel functions, torch's and ours, in or around the compiled code restrict the
kinds of backends, ours and torch's. A function whose graph breaks within a scope is not compiled, and its
attention is torch's.

Our backends compute dense CPU tensors without dropout, and their gradients; torch computes the rest. For
second-order gradients the backward pass recomputes attention with torch's kernel and differentiates that.
"""

import contextlib
import functools
import inspect
import threading
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend as TorchKind
from torch.nn.attention import sdpa_kernel
from torch.utils._python_dispatch import _disable_current_modes

from mlbackends.base.errors import NoBackend
from mlbackends.sdpa import attend, calls, switches
from mlbackends.sdpa.switches import SDPBackend
from mlbackends.switches import store
from mlbackends_kernels.bridges import torch_gradients

_NAME = "scaled_dot_product_attention"
_PLAIN = (torch.Tensor, torch.nn.Parameter)
#: torch._fused_sdp_choice's answer for flash attention, as in torch.nn.attention.SDPBackend.
_FLASH = 1
#: The most nodes between a softmax and its products.
_FARTHEST = 50
_NEED_WEIGHTS = [*inspect.signature(functional.multi_head_attention_forward).parameters].index("need_weights")


def compile_graph(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return what runs a captured graph; the entry point of torch's `torch_dynamo_backends`.

    The inputs are not used, so dynamic shapes work too. mode, options: as torch.compile passes them. Raises
    ValueError for a mode other than "default" and for any option.
    """
    del example_inputs
    if mode not in (None, "default"):
        raise ValueError(f"the backend 'mlbackends' has no modes; mode={mode!r} is for 'inductor'")
    if options:
        named = ", ".join(map(repr, options))
        raise ValueError(f"the backend 'mlbackends' takes no options; it was given {named}")
    aten = torch.ops.aten.scaled_dot_product_attention
    replacements: dict[Any, Callable[..., Any]] = {
        functional.scaled_dot_product_attention: attention,
        torch._C._nn.scaled_dot_product_attention: attention,  # noqa: SLF001  another name of it
        aten: attention,
        aten.default: attention,
        functional.multi_head_attention_forward: multi_head_attention_forward,
        switches.begin_in_graph: _begin,
        switches.end_in_graph: _end,
    }
    has_scopes = False
    for module in graph.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        functions = [node for node in module.graph.nodes if node.op == "call_function"]
        replaced = [node for node in functions if node.target in replacements]
        for node in replaced:
            has_scopes |= node.target is switches.begin_in_graph
            node.target = replacements[node.target]
        unknown = [(node, *kept) for node in module.graph.nodes if (kept := _unreplaced(node))]
        for node, query, why in unknown:
            with module.graph.inserting_before(node):
                module.graph.call_function(calls.note, ("torch", query, why))
            warnings.warn(f"torch computes this attention: {why}", UserWarning, stacklevel=2)
        if replaced or unknown:
            module.recompile()
    forward: Callable[..., Any] = graph.forward
    if not has_scopes:
        return forward

    def run(*args: Any) -> Any:
        depth = len(_SCOPES.entered)
        try:
            return forward(*args)
        finally:  # if it raises, the scopes that it entered are left
            while len(_SCOPES.entered) > depth:
                _end()

    return run


_WRITTEN = "softmax(query @ key) @ value is written out; call scaled_dot_product_attention instead"
_FAST_PATH = "the fast path of torch.nn, which has no replacement here"
_UNREPLACED = {
    "flex_attention": "flex_attention, which has no replacement here",
    "_native_multi_head_attention": _FAST_PATH,
    "_transformer_encoder_layer_fwd": _FAST_PATH,
}
_PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "einsum", "__matmul__"})
#: What may stand between the products and the softmax: scales, masks, casts and dropout.
_BETWEEN = frozenset(
    {
        "add", "__add__", "iadd", "sub", "mul", "__mul__", "imul", "truediv", "div", "masked_fill",
        "masked_fill_", "where", "to", "float", "type_as", "type", "half", "bfloat16", "dropout",
        "contiguous", "view", "reshape", "clamp", "tanh", "max",
    }
)  # fmt: skip


def _unreplaced(node: torch.fx.Node) -> tuple[torch.fx.Node, str] | None:
    """Return the query of attention that a node computes and torch keeps, and why; None for anything else."""
    name = _name(node)
    if why := _UNREPLACED.get(name):
        return node.all_input_nodes[0], why
    if name != "softmax":
        return None
    scores, result = _product(node, "all_input_nodes"), _product(node, "users")
    if not scores or not result:
        return None
    # The query is the last but one: baddbmm adds its first tensor to the product.
    query, key = scores.all_input_nodes[-2:][0], scores.all_input_nodes[-1]
    while key.op in ("call_function", "call_method") and len(key.all_input_nodes) == 1:
        key = key.all_input_nodes[0]
    # Products with a parameter are a linear layer: the softmax weighs choices, such as experts.
    is_layer = isinstance(key.meta.get("example_value"), torch.nn.Parameter)
    return None if is_layer else (query, _WRITTEN)


def _product(node: torch.fx.Node, side: str) -> torch.fx.Node | None:
    """Return the product of matrices on a side of a node, apart from what may be between them."""
    near = [node]
    for step in near:  # which grows
        for other in getattr(step, side) if len(near) < _FARTHEST else ():
            if _name(other) in _PRODUCTS:
                return other
            near += [other] if _name(other) in _BETWEEN and other not in near else []
    return None


def _name(node: torch.fx.Node) -> str:
    """Return the name of what a node calls, such as softmax; "" if it calls a module or nothing."""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    return str(getattr(node.target, "__name__", node.target)).partition(".")[0]


def multi_head_attention_forward(query: Any, *args: Any, **kwargs: Any) -> Any:
    """Run torch.nn.functional.multi_head_attention_forward with our attention inside."""
    if args[_NEED_WEIGHTS - 1] if len(args) >= _NEED_WEIGHTS else kwargs.get("need_weights", True):
        calls.note("torch", query, "need_weights=True returns weights, which ours does not store")
    return _with_our_attention(functional.multi_head_attention_forward)(query, *args, **kwargs)


# ---- scopes -----------------------------------------------------------------


class _Scopes(threading.local):
    """The scopes that the graphs of a thread have entered."""

    def __init__(self) -> None:
        self.entered: list[contextlib.AbstractContextManager[Any]] = []


_SCOPES = _Scopes()
for _marker in (switches.begin_in_graph, switches.end_in_graph):
    torch.compiler.allow_in_graph(_marker)


def _begin(names: tuple[str, ...], set_priority: bool) -> None:
    scope = switches.sdpa_kernel([SDPBackend[name] for name in names], set_priority)
    scope.__enter__()
    _SCOPES.entered.append(scope)


def _end() -> None:
    _SCOPES.entered.pop().__exit__(None, None, None)


def _kinds() -> list[SDPBackend] | None:
    """Return the kinds that torch's switches and ours both allow; None for all."""
    is_on = torch._C  # noqa: SLF001
    theirs = {
        SDPBackend.FLASH_ATTENTION: is_on._get_flash_sdp_enabled(),  # noqa: SLF001
        SDPBackend.EFFICIENT_ATTENTION: is_on._get_mem_efficient_sdp_enabled(),  # noqa: SLF001
        SDPBackend.MATH: is_on._get_math_sdp_enabled(),  # noqa: SLF001
        SDPBackend.CUDNN_ATTENTION: is_on._get_cudnn_sdp_enabled(),  # noqa: SLF001
    }
    ours = store.read_all(tuple(map(switches.SWITCHES.__getitem__, theirs)))
    allowed = [kind for (kind, on), is_ours in zip(theirs.items(), ours, strict=True) if on and is_ours]
    return None if len(allowed) == len(theirs) else allowed


def _by_torch(*tensors: Any, **options: Any) -> Any:
    """Compute with torch's attention, with the kinds that both allow."""
    kinds = _kinds()
    if kinds is None:
        return functional.scaled_dot_product_attention(*tensors, **options)
    with sdpa_kernel([getattr(TorchKind, kind.name) for kind in kinds]):
        return functional.scaled_dot_product_attention(*tensors, **options)


@functools.cache
def _with_our_attention(function: types.FunctionType) -> Callable[..., Any]:
    """Return a function of torch.nn.functional that calls our attention.

    torch.compile keeps such a function as one node of its graph. A copy of its code with one different global
    is thread-safe, which a change of torch.nn.functional would not be.
    """
    if _NAME not in function.__code__.co_names:
        return function
    names = {**function.__globals__, _NAME: attention}
    ours = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    ours.__kwdefaults__ = function.__kwdefaults__
    return ours


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return what torch.nn.functional.scaled_dot_product_attention returns, in the same layout.

    Calls without a backend of ours go to torch. So does misuse, for torch's exception; where torch would
    compute something that we refuse, our exception is raised.
    """
    options: dict[str, Any] = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    tensors: tuple[Any, ...] = (query, key, value, attn_mask)
    ours = all(tensor is None or not _why_not_ours(tensor) for tensor in tensors)
    core = torch._C  # noqa: SLF001
    keys = core._TorchDispatchModeKey  # noqa: SLF001
    # Under a tracing mode our result would become a constant of the traced graph.
    is_traced = any(
        core._get_dispatch_mode(key) is not None  # noqa: SLF001
        for key in (keys.FAKE, keys.FUNCTIONAL, keys.PROXY)
    )
    if dropout_p != 0 or not ours or is_traced:
        others = map(_why_not_ours, (tensor for tensor in tensors if tensor is not None))
        why = "dropout" if dropout_p else "the call is being traced" if is_traced else ""
        calls.note("torch", query, why or next(filter(None, others)))
        return _by_torch(*tensors, dropout_p, **options)
    tensors = tuple(map(_cast, tensors))
    needs_gradient = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in tensors
    )
    plain: list[Any] = [None if tensor is None else tensor.detach() for tensor in tensors]
    kinds = _kinds()
    no_scope = contextlib.nullcontext()
    scope = no_scope if kinds is None else switches.sdpa_kernel(kinds)
    # No other mode of torch may record our operations: an activation checkpoint compares those of the
    # forward pass with those of its repetition.
    unrecorded = _disable_current_modes() if core._len_torch_dispatch_stack() else no_scope  # noqa: SLF001
    try:
        with scope, unrecorded:
            result = attend.scaled_dot_product_attention(*plain, **options, return_logsumexp=needs_gradient)
            out = _laid_out(result[0] if needs_gradient else result, tensors, options)
    except NoBackend as error:
        here = (reason.message for reason in error.reasons if reason.code != "wrong-device")
        calls.note("torch", query, "; ".join(dict.fromkeys(here)))
        return _by_torch(*tensors, **options)
    except (RuntimeError, ValueError, TypeError, IndexError):  # NotImplementedError is the first
        # torch's exception, if it has one
        functional.scaled_dot_product_attention(*plain, **options)
        raise
    if not needs_gradient:
        return out
    return _Attention.apply([out, result[1]], options, *tensors)[0]  # type: ignore[no-any-return,no-untyped-call,unused-ignore]


class _Attention(torch_gradients.Attention):
    """Our gradients, or torch's for second-order gradients and where our backends have none."""

    @staticmethod
    def backward(ctx: Any, grad_out: Any, _: Any) -> Any:
        """Return the gradients of query, key, value and mask."""
        options, needs_input = ctx.differentiate, ctx.needs_input_grad[2:]
        query, key, value, mask, out, logsumexp = ctx.saved_tensors
        gradients: Any = None
        if not torch.is_grad_enabled():
            with contextlib.suppress(NoBackend):  # our backends are switched off by now
                gradients = attend.scaled_dot_product_attention_backward(
                    *(grad_out, query, key, value, out, logsumexp),
                    attn_mask=mask,
                    attn_mask_gradient=needs_input[3],
                    **options,
                )
        if gradients is None:
            gradients = _recomputed((query, key, value, mask), needs_input, grad_out, options)
        pairs = zip(gradients[: len(needs_input)], needs_input, strict=True)  # without sinks
        return None, None, *(gradient if needed else None for gradient, needed in pairs)


def _recomputed(
    tensors: tuple[Any, ...], needs_input: tuple[bool, ...], grad_out: Any, options: dict[str, Any]
) -> list[Any]:
    """Recompute with torch, and return the gradients of the tensors that need one."""
    again = torch.is_grad_enabled()  # the gradients will be differentiated too
    why = "gradients of gradients" if again else "no backend of ours has these gradients"
    calls.note("torch", grad_out, why, "backward")
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        # Aliases, since query and key may be the same tensor, with separate gradients.
        aliases = list(tensors)
        for place, tensor in enumerate(tensors):
            if needs_input[place]:
                alias = tensor.view_as(tensor) if again else tensor.detach().requires_grad_()
                aliases[place] = alias
        result = functional.scaled_dot_product_attention(*aliases, **options)
        inputs = [alias for alias, needed in zip(aliases, needs_input, strict=True) if needed]
        gradients = iter(torch.autograd.grad(result, inputs, grad_out, create_graph=again, allow_unused=True))
    return [next(gradients) if needed else None for needed in needs_input]


def _why_not_ours(tensor: Any) -> str:
    """Return why our backends cannot read a tensor, "" for a plain CPU tensor with readable values."""
    if tensor.is_nested:
        return "nested tensors"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # noqa: SLF001
        return "vmap, or another transformation of torch.func"
    if type(tensor) not in _PLAIN:
        return f"tensors of the type {type(tensor).__qualname__}"
    if tensor.device.type != "cpu":
        return f"tensors on {tensor.device.type}: only those on the CPU are ours here"
    if tensor.layout is not torch.strided:
        return f"tensors of the layout {tensor.layout}"
    if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        return "forward-mode differentiation"
    return ""


def _cast(tensor: Any) -> Any:
    """Cast as autocast does for attention: floating-point tensors except float64."""
    if tensor is None or not torch.is_autocast_enabled("cpu"):
        return tensor
    if not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype("cpu"))


def _laid_out(result: Any, tensors: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the result with the strides of torch's result, on which a following view() may rely.

    torch's flash attention keeps the layout of query; its plain formula returns a contiguous tensor.
    """
    query = tensors[0]
    is_flash = False
    if not query.is_contiguous() and query.shape == result.shape:
        with contextlib.suppress(RuntimeError):  # all kinds of torch are switched off
            is_flash = torch._fused_sdp_choice(*tensors, **options) == _FLASH  # noqa: SLF001
    if is_flash:
        like = torch.empty_like(query, device="meta")
    else:
        like = torch.empty(result.shape, dtype=result.dtype, device="meta")
    if result.stride() == like.stride():
        return result
    return torch.empty_strided(like.shape, like.stride(), dtype=result.dtype).copy_(result)
