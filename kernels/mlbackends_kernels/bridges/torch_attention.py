"""scaled_dot_product_attention on torch tensors, by our dispatcher where it can, by torch where not.

Ours are dense tensors on the CPU without dropout, and their gradients. For gradients of gradients the
backward pass computes attention again with torch's own kernel and differentiates that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from mlbackends.model.errors import NoBackend
from mlbackends.sdpa import attend
from mlbackends_kernels.bridges import torch_gradients

_PLAIN = (torch.Tensor, torch.nn.Parameter)
#: torch._fused_sdp_choice's answer for flash attention, as in torch.nn.attention.SDPBackend.
_FLASH = 1


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

    Whatever our dispatcher finds nobody for goes to torch. So does misuse, for torch's exception; what
    our dispatcher calls misuse though torch would compute something raises our exception.
    """
    options = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    tensors = (query, key, value, attn_mask)
    ours = all(each is None or _is_ours(each) for each in tensors)
    if dropout_p != 0 or not ours or _is_traced():
        return functional.scaled_dot_product_attention(*tensors, dropout_p, **options)
    tensors = tuple(map(_cast, tensors))
    wanted = torch.is_grad_enabled() and any(
        each is not None and each.requires_grad for each in tensors
    )
    result = _computed(tensors, options, logsumexp=wanted)
    if result is None:
        return functional.scaled_dot_product_attention(*tensors, **options)
    if not wanted:
        return _laid_out(result, tensors, options)
    found = [_laid_out(result[0], tensors, options), result[1]]
    return _Attention.apply(found, options, *tensors)[0]  # type: ignore[no-any-return,no-untyped-call,unused-ignore]


class _Attention(torch_gradients.Attention):
    """Our gradients, and torch's where they are to be differentiated or nobody of ours has any."""

    @staticmethod
    def backward(ctx: Any, grad_out: Any, _: Any) -> Any:
        """Return the gradients of query, key, value and mask."""
        options, wanted = ctx.differentiate, ctx.needs_input_grad[2:]
        found = None if torch.is_grad_enabled() else _gradients(ctx, grad_out, options)
        if found is None:
            found = _recomputed(ctx.saved_tensors[:4], wanted, grad_out, options)
        return (
            None,
            None,
            *(each if needed else None for each, needed in zip(found, wanted, strict=True)),
        )


def _gradients(ctx: Any, grad_out: Any, options: dict[str, Any]) -> Any:
    """Return our gradients, None where nobody can compute them now."""
    query, key, value, mask, out, logsumexp = ctx.saved_tensors
    try:
        return attend.scaled_dot_product_attention_backward(
            *(grad_out, query, key, value, out, logsumexp),
            attn_mask=mask,
            attn_mask_gradient=ctx.needs_input_grad[5],
            **options,
        )
    except NoBackend:
        return None


def _recomputed(
    tensors: tuple[Any, ...], wanted: tuple[bool, ...], grad_out: Any, options: dict[str, Any]
) -> list[Any]:
    """Compute again with torch, and return the gradients of the wanted tensors."""
    again = torch.is_grad_enabled()  # the caller wants to differentiate the gradients, too
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        # An alias for each: query and key may be one tensor, and have gradients of their own.
        aliases = [
            _alias(each, needed, connected=again)
            for each, needed in zip(tensors, wanted, strict=True)
        ]
        result = functional.scaled_dot_product_attention(*aliases, **options)
        inputs = [each for each, needed in zip(aliases, wanted, strict=True) if needed]
        found = iter(
            torch.autograd.grad(result, inputs, grad_out, create_graph=again, allow_unused=True)
        )
    return [next(found) if needed else None for needed in wanted]


def _alias(tensor: Any, needed: bool, *, connected: bool) -> Any:
    if tensor is None or not needed:
        return tensor
    return tensor.view_as(tensor) if connected else tensor.detach().requires_grad_()


def _is_ours(tensor: Any) -> bool:
    """Tell whether a tensor is a plain one, whose values can be read here and now."""
    return (
        type(tensor) in _PLAIN
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001
        and torch.autograd.forward_ad.unpack_dual(tensor).tangent is None
    )


def _is_traced() -> bool:
    """Tell whether somebody writes down what torch computes: our result would be a constant to them."""
    keys = torch._C._TorchDispatchModeKey  # noqa: SLF001
    return any(
        torch._C._get_dispatch_mode(key) is not None  # noqa: SLF001
        for key in (keys.FAKE, keys.FUNCTIONAL, keys.PROXY)
    )


def _cast(tensor: Any) -> Any:
    """Cast as autocast does it for attention: floating-point numbers, but no double precision."""
    if tensor is None or not torch.is_autocast_enabled("cpu"):
        return tensor
    if not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype("cpu"))


def _computed(tensors: tuple[Any, ...], options: dict[str, Any], *, logsumexp: bool) -> Any:
    """Return the dispatcher's result, if asked with each row's logarithm; None where nobody can."""
    query, key, value, mask = (None if each is None else each.detach() for each in tensors)
    try:
        return attend.scaled_dot_product_attention(
            query, key, value, mask, return_logsumexp=logsumexp, **options
        )
    except NoBackend:
        return None
    except (RuntimeError, ValueError, TypeError, IndexError):  # NotImplementedError is the first
        # torch's exception, if it has one
        functional.scaled_dot_product_attention(query, key, value, mask, **options)
        raise


def _laid_out(result: Any, tensors: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Give the result the strides that torch's would have: a view() that follows relies on them.

    torch's flash attention follows the layout of query, its plain formula is contiguous.
    """
    query = tensors[0]
    if query.is_contiguous() or query.shape != result.shape or not _is_flash(tensors, options):
        like = torch.empty(result.shape, dtype=result.dtype, device="meta")
    else:
        like = torch.empty_like(query, device="meta")
    if result.stride() == like.stride():
        return result
    return torch.empty_strided(like.shape, like.stride(), dtype=result.dtype).copy_(result)


def _is_flash(tensors: tuple[Any, ...], options: dict[str, Any]) -> bool:
    try:
        return bool(torch._fused_sdp_choice(*tensors, **options) == _FLASH)  # noqa: SLF001
    except RuntimeError:  # all of torch's own are switched off
        return False
