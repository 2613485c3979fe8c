"""Our attention in the place of torch.nn.functional.scaled_dot_product_attention.

Our backends compute dense floating-point tensors on the CPU, also with dropout, and their gradients; torch
computes the rest. The scopes of both sdpa_kernel functions, torch's and ours, restrict the kinds of backends,
ours and torch's.
"""

import contextlib
import sys
from typing import Any

import torch
from torch.nn import functional
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

    Calls without a backend of ours go to torch, and so does what ours refuse: torch computes it, or raises
    its own exception. In a graph that torch traces, the layout is that of our operator.
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
    except (RuntimeError, ValueError, TypeError, IndexError) as error:  # NotImplementedError is the first
        calls.note("torch", query, str(error))
        return _by_torch(*tensors, **options)


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


# ---- other programs' calls ----------------------------------------------------------


class Replacement(contextlib.AbstractContextManager[None]):
    """Ours in the place of torch's function, or in one model of transformers, until the end of a block."""

    def __init__(self, model: Any) -> None:
        self.model = model
        if "transformers" in sys.modules:
            from transformers import AttentionInterface, AttentionMaskInterface
            from transformers.masking_utils import sdpa_mask

            AttentionInterface.register("mlbackends", of_transformers)
            AttentionMaskInterface.register("mlbackends", sdpa_mask)
        if model is None:
            self.before: Any = functional.scaled_dot_product_attention
            functional.scaled_dot_product_attention = attention
        elif hasattr(model, "set_attn_implementation"):
            self.before = model.config._attn_implementation  # noqa: SLF001
            model.set_attn_implementation("mlbackends")
        else:
            kind = type(model).__qualname__
            raise TypeError(f"{kind} is not a model of transformers: call replace_attention() without it")

    def __exit__(self, *_: object) -> None:
        if self.model is None:
            functional.scaled_dot_product_attention = self.before
        else:
            self.model.set_attn_implementation(self.before)


def of_transformers(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return what an attention function of transformers returns: (B, L, H, Ev), and no weights."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    named: dict[str, Any] = {
        "attn_mask": attention_mask,
        "dropout_p": dropout,
        "scale": scaling,
        "is_causal": bool(causal) and attention_mask is None and query.shape[2] > 1,
        "enable_gqa": key.shape[1] != query.shape[1],
    }
    more: dict[str, Any] = {"softcap": options.get("softcap") or 0.0, "sinks": options.get("s_aux")}
    if more["softcap"] or more["sinks"] is not None:
        out = attend.scaled_dot_product_attention(query, key, value, **named, **more)
    else:
        out = attention(query, key, value, **named)
    return out.transpose(1, 2).contiguous(), None
