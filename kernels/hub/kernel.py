"""flash_cpu as a kernel of Hugging Face's `kernels`: attention on CPUs, forward and backward.

`attention` is for any program; `flash_attn_forward` is what transformers calls. Both raise ValueError for
what is not supported: dropout, softcap, sinks, gradients of masks.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

(_LIBRARY,) = Path(__file__).parent.glob("*.so")
torch.ops.load_library(str(_LIBRARY))
_SPACE = _LIBRARY.stem
#: By element type its number in the library, and the largest log-sum-exp that needs no refining.
_ELEMENTS = {
    torch.float32: (1, 12.0), torch.float16: (2, 256.0), torch.bfloat16: (3, 2048.0),
    torch.float64: (4, 12.0), torch.bool: (5, 0.0),
}  # fmt: skip
_EVERY_KEY = 1 << 60
#: With this transformers gives a mask of each row and key, as to `sdpa`, or none.
supports_flash_attn = True


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *,
    window: tuple[int, int] = (-1, -1), lower_right: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Return attention of (B, H, L, E), in memory (B, L, H, Ev).

    key, value: (B, Hkv, S, E or Ev), where Hkv divides H. mask: of booleans, True where a row sees a key, or
    numbers that are added; it broadcasts to (B, H, L, S). window: the keys to the left and right of its own
    that a row sees, -1 for all; causal is (-1, 0). lower_right: the last row is at the last key.
    """
    tensors = [query, key, value, *([] if mask is None else [mask])]
    (batch, heads, _, width), (_, groups, keys, _) = query.shape, key.shape
    front = batch, groups, keys
    is_alike = key.shape == (*front, width) and value.shape[:3] == front and not heads % groups
    is_alike &= {key.dtype, value.dtype} == {query.dtype} and {t.device.type for t in tensors} == {"cpu"}
    if not is_alike or query.dtype not in [*_ELEMENTS][:4]:
        raise ValueError(f"unsupported: {[(*t.shape, t.dtype, t.device) for t in tensors]}")
    is_differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if mask is not None:
        if mask.requires_grad and is_differentiated:
            raise ValueError("gradients of masks are not supported")
        mask = mask if mask.dtype == torch.bool else mask.to(query.dtype)
        mask = mask.expand(*query.shape[:3], key.shape[2])
    sides = [_EVERY_KEY if side < 0 else side for side in window]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    result: list[Tensor] = _OPERATOR(query, key, value, mask, *sides, lower_right, scale, is_differentiated)
    return result[0]


def flash_attn_forward(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    dropout: float = 0.0, scaling: float | None = None, is_causal: bool | None = None,
    sliding_window: int | None = None, **others: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Return attention as transformers expects it, (B, L, H, Ev), and no weights.

    attention_mask: of each row and key, which then decides alone; of each key (B, S), 0 for padding; or None.
    """
    refused = [name for name in ("softcap", "s_aux", "position_bias") if others.get(name) is not None]
    if dropout or refused:
        raise ValueError(f"this kernel does not support {', '.join(refused or ['dropout'])}")
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = (sliding_window - 1 if sliding_window else -1, 0) if is_causal else (-1, -1)
    if attention_mask is not None and attention_mask.dim() == 2:
        attention_mask = attention_mask[:, None, None, -key.shape[2] :].bool()
    elif attention_mask is not None:
        window = (-1, -1)
    out = attention(query, key, value, attention_mask, window=window, lower_right=True, scale=scaling)
    return out.transpose(1, 2), None


def _call(name: str, tensors: tuple[Any, ...], numbers: tuple[Any, ...], *more: Tensor) -> None:
    """Call an operator of the library. tensors: query, key, value, mask or None, output and log-sum-exp."""
    query, key, value, mask, out, sums = tensors
    rows = [t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous() for t in (query, key, value)]
    elements = [0 if tensor is None else _ELEMENTS[tensor.dtype][0] for tensor in (query, mask)]
    passes = 2 if more else 1
    # As in attention_cpu/threads.py: with less work than this for each, waking a thread takes longer.
    work = passes * 2 * query.shape[:3].numel() * key.shape[2] * (query.shape[3] + value.shape[3]) / 8e6
    most = int(max(work, passes * (key.numel() + value.numel()) * key.element_size() / (1 << 20)))
    threads = 1 if most < 2 else min(most, torch.get_num_threads())
    mask = query.new_empty(0) if mask is None else mask
    if (
        getattr(getattr(torch.ops, _SPACE), name)(*rows, mask, out, sums, *numbers, *elements, threads, *more)
        != -1
    ):
        raise MemoryError("attention could not allocate its memory")


def _room(tensor: Tensor, width: int) -> Tensor:
    """Return an empty tensor of (B, H, L, width) for one of (B, H, L, E), in memory (B, L, H, width)."""
    batch, heads, length, _ = tensor.shape
    return tensor.new_empty(batch, length, heads, width).transpose(1, 2)


def _forward(query: Tensor, key: Tensor, value: Tensor, mask: Any, *numbers: Any) -> tuple[Tensor, Tensor]:
    out, sums = _forward_shapes(query, key, value, mask, *numbers)
    if out.numel():
        _call("forward", (query, key, value, mask, out, sums.zero_()), numbers[:-1])
    return out, sums


def _forward_shapes(query: Tensor, _: Tensor, value: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    sums = query.new_empty(query.shape[:3] if more[-1] else (0,), dtype=wide)
    return _room(query, value.shape[3]), sums


def _backward(grad: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    gradients, sums = _backward_shapes(grad, *inputs), inputs[5]
    if not grad.numel() or not inputs[1].numel():
        return tuple(gradient.zero_() for gradient in gradients)
    largest = sums.nan_to_num(0.0, 0.0, 0.0).abs().max().item()
    refined = sums.new_empty(3 if largest > _ELEMENTS[grad.dtype][1] else 0, sums.numel())
    _call("backward", inputs[:6], inputs[6:], grad.contiguous(), refined, *gradients)
    return gradients


def _backward_shapes(_: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(_room(tensor, tensor.shape[3]) for tensor in inputs[:3])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:4], *output)
    ctx.numbers = inputs[4:-1]


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Any, ...]:
    return *_GRADIENTS(grad, *ctx.saved_tensors, *ctx.numbers), *[None] * 6


_INPUTS = "Tensor query, Tensor key, Tensor value, Tensor? mask"
_NUMBERS = "int left, int right, bool lower_right, float scale"
_FORWARD = f"({_INPUTS}, {_NUMBERS}, bool sums) -> (Tensor, Tensor)"
_BACKWARD = f"(Tensor grad, {_INPUTS}, Tensor out, Tensor sums, {_NUMBERS}) -> (Tensor, Tensor, Tensor)"
_defined: Any = partial(torch.library.custom_op, mutates_args=())
_OPERATOR = _defined(f"{_SPACE}::attention", _forward, schema=_FORWARD)
_GRADIENTS = _defined(f"{_SPACE}::gradients", _backward, schema=_BACKWARD)
_OPERATOR.register_fake(_forward_shapes)
_GRADIENTS.register_fake(_backward_shapes)
_OPERATOR.register_autograd(_differentiate, setup_context=_keep)
