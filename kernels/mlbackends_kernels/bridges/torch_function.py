"""Our attention in the place of torch.nn.functional.scaled_dot_product_attention.

Our backends compute dense floating-point tensors on the CPU, also with dropout, and their gradients; torch
computes the rest. The scopes of both sdpa_kernel functions, torch's and ours, restrict the kinds of backends,
ours and torch's.
"""

import contextlib
from typing import Any

import torch
from torch.nn.attention import SDPBackend as TorchKind
from torch.nn.attention import sdpa_kernel

from mlbackends.base.errors import NoBackend
from mlbackends.sdpa import attend, calls, switches
from mlbackends.sdpa.describe import is_transformed
from mlbackends.sdpa.switches import SDPBackend
from mlbackends.switches import store
from mlbackends_kernels.bridges import torch_operator

#: torch's own function, whatever has taken its place.
TORCHS: Any = torch._C._nn.scaled_dot_product_attention  # noqa: SLF001
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool)
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

    Calls without a backend of ours go to torch. So does misuse, for torch's exception; where torch would
    compute something that we refuse, our exception is raised. In a graph that torch traces, the layout is
    that of our operator.
    """
    options: dict[str, Any] = {
        "dropout_p": dropout_p,
        "is_causal": is_causal,
        "scale": scale,
        "enable_gqa": enable_gqa,
    }
    tensors: tuple[Any, ...] = (query, key, value, attn_mask)
    why = ""
    for tensor in tensors:
        why = why or ("" if tensor is None else _why_not_ours(tensor))
    if torch.compiler.is_compiling():
        if why:
            return TORCHS(*tensors, **options)
        return torch_operator.call(*tensors, **options)
    if why:
        calls.note("torch", query, why)
        return _by_torch(*tensors, **options)
    kinds = _kinds()
    scope = contextlib.nullcontext() if kinds is None else switches.sdpa_kernel(kinds)
    try:
        with scope:
            result = attend.scaled_dot_product_attention(*tensors, **options)
        return result if is_transformed(result) else _laid_out(result, tensors, options)
    except NoBackend as error:
        here = (reason.message for reason in error.reasons if reason.code != "wrong-device")
        calls.note("torch", query, "; ".join(dict.fromkeys(here)))
        return _by_torch(*tensors, **options)
    except (RuntimeError, ValueError, TypeError, IndexError):  # NotImplementedError is the first
        _by_torch(*tensors, **options)  # torch's exception, if it has one
        raise


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
        return TORCHS(*tensors, **options)
    with sdpa_kernel([getattr(TorchKind, kind.name) for kind in kinds]):
        return TORCHS(*tensors, **options)


def _why_not_ours(tensor: Any) -> str:
    """Return why our backends do not compute with a tensor, "" if they do."""
    if tensor.is_nested:
        return "nested tensors"
    if tensor.device.type != "cpu":
        return f"tensors on {tensor.device.type}: only those on the CPU are ours here"
    if tensor.layout is not torch.strided:
        return f"tensors of the layout {tensor.layout}"
    if tensor.dtype not in _DTYPES:
        return f"elements of the type {tensor.dtype}"
    return ""


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
