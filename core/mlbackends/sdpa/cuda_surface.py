"""The attention functions of torch.backends.cuda, by torch's names, and SDPAParams.

torch has them in its cuda module, but the switches apply to every device.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from mlbackends.base.errors import InvalidProblem
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa.constraints import unmet
from mlbackends.sdpa.describe import describe, device_of, is_tensor
from mlbackends.sdpa.dispatch import backends, switch_reasons
from mlbackends.sdpa.rules import rules
from mlbackends.sdpa.rules.environment import environment_here
from mlbackends.sdpa.switches import SDPBackend, sdpa_kernel
from mlbackends.switches import store
from mlbackends.switches.dynamo import is_compiling

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_GENERATIONS = ("7.5", "8.0", "8.9", "9.0", "10.0", "12.0")


def flash_sdp_enabled() -> bool:
    """Return whether flash attention may be chosen."""
    return bool(store.read("cuda.flash_sdp"))


def enable_flash_sdp(enabled: bool) -> None:
    """Allow or forbid flash attention. Raises RuntimeError for anything but a bool."""
    store.write("cuda.flash_sdp", enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Return whether memory-efficient attention may be chosen."""
    return bool(store.read("cuda.mem_efficient_sdp"))


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Allow or forbid memory-efficient attention. Raises RuntimeError for anything but a bool."""
    store.write("cuda.mem_efficient_sdp", enabled)


def math_sdp_enabled() -> bool:
    """Return whether the plain formula may be chosen."""
    return bool(store.read("cuda.math_sdp"))


def enable_math_sdp(enabled: bool) -> None:
    """Allow or forbid the plain formula. Raises RuntimeError for anything but a bool."""
    store.write("cuda.math_sdp", enabled)


def cudnn_sdp_enabled() -> bool:
    """Return whether cuDNN's attention may be chosen."""
    return bool(store.read("cuda.cudnn_sdp"))


def enable_cudnn_sdp(enabled: bool) -> None:
    """Allow or forbid cuDNN's attention. Raises RuntimeError for anything but a bool."""
    store.write("cuda.cudnn_sdp", enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Return whether the plain formula may keep intermediate results in float16 or bfloat16."""
    return bool(store.read("cuda.fp16_bf16_reduction_math_sdp"))


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Allow or forbid the plain formula to keep intermediate results in float16 or bfloat16."""
    store.write("cuda.fp16_bf16_reduction_math_sdp", enabled)


def is_flash_attention_available() -> bool:
    """Return whether an installed backend computes flash attention on some CUDA device."""
    spec = TensorSpec((2, 4, 128, 64), "float16")
    problems = [
        AttentionProblem(query=spec, key=spec, value=spec, device=Device("cuda", 0, capability=capability))
        for capability in _GENERATIONS
    ]
    return any(
        not backend.unsupported_reasons(problem) and not backend.missing_parts()
        for backend in backends()
        if backend.answers_to is SDPBackend.FLASH_ATTENTION
        for problem in problems
    )


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Return whether torch's flash attention on CUDA supports a call. debug: warn with every reason."""
    return _can_use(SDPBackend.FLASH_ATTENTION, params, debug)


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Return whether torch's memory-efficient attention on CUDA supports a call. debug: as above."""
    return _can_use(SDPBackend.EFFICIENT_ATTENTION, params, debug)


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Return whether torch passes a call to cuDNN's attention. debug: as above."""
    return _can_use(SDPBackend.CUDNN_ATTENTION, params, debug)


def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> AbstractContextManager[dict[object, object]]:
    """Allow only some kinds of attention backends inside the block. Deprecated: see sdpa_kernel."""
    if not is_compiling():  # a warning would break the graph
        warnings.warn("sdp_kernel() is deprecated: use mlbackends.sdpa_kernel()", FutureWarning, stacklevel=2)
    required = {
        SDPBackend.FLASH_ATTENTION: enable_flash,
        SDPBackend.MATH: enable_math,
        SDPBackend.EFFICIENT_ATTENTION: enable_mem_efficient,
        SDPBackend.CUDNN_ATTENTION: enable_cudnn,
    }
    return sdpa_kernel([kind for kind, enabled in required.items() if enabled])


class SDPAParams:
    """The seven arguments of an attention call, by position. Read-only.

    Only the types of the arguments are checked; `can_use_*` checks whether they make sense together.
    """

    __module__ = "mlbackends.cuda"
    __slots__ = ("_parts",)

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any,
        dropout: float,
        is_causal: bool,
        enable_gqa: bool,
        /,
    ) -> None:
        numeric = hasattr(type(dropout), "__float__") or hasattr(type(dropout), "__index__")
        for name, argument, fits, expected in (
            ("query", query, is_tensor(query), "a tensor"),
            ("key", key, is_tensor(key), "a tensor"),
            ("value", value, is_tensor(value), "a tensor"),
            ("attn_mask", attn_mask, attn_mask is None or is_tensor(attn_mask), "a tensor"),
            ("dropout", dropout, numeric, "a number"),
            ("is_causal", is_causal, hasattr(type(is_causal), "__bool__"), "a bool"),
            ("enable_gqa", enable_gqa, hasattr(type(enable_gqa), "__bool__"), "a bool"),
        ):
            if not fits:
                kind = type(argument).__name__
                raise TypeError(f"SDPAParams: {name} must be {expected}, not {kind}")
        self._parts = (
            *(query, key, value, attn_mask),
            *(float(dropout), bool(is_causal), bool(enable_gqa)),
        )

    query = property(lambda self: self._parts[0], doc="The query.")
    key = property(lambda self: self._parts[1], doc="The key.")
    value = property(lambda self: self._parts[2], doc="The value.")
    attn_mask = property(lambda self: self._parts[3], doc="The mask, or None.")
    dropout = property(lambda self: self._parts[4], doc="The probability that a weight is dropped.")
    is_causal = property(lambda self: self._parts[5], doc="Whether row i sees the keys up to i.")
    enable_gqa = property(lambda self: self._parts[6], doc="Whether query heads may share a key head.")


def problem_of(params: SDPAParams) -> AttentionProblem:
    """Return the problem that the arguments describe. Raises InvalidProblem where they fit no problem."""
    query = describe(params.query)
    return AttentionProblem(
        query=query,
        key=describe(params.key),
        value=describe(params.value),
        mask=None if params.attn_mask is None else describe(params.attn_mask),
        dropout=params.dropout,
        is_causal=params.is_causal,
        enable_gqa=params.enable_gqa,
        device=device_of(params.query, query),
    )


def _can_use(kind: SDPBackend, params: SDPAParams, debug: bool) -> bool:
    if not isinstance(params, SDPAParams):
        raise TypeError(f"params must be SDPAParams, not {type(params).__name__}")
    reasons = switch_reasons(kind)
    try:
        problem = problem_of(params)
        reasons += unmet(rules(kind, "cuda", environment_here(problem)) or (), problem)
    except InvalidProblem as error:
        reasons += (Reason("invalid-problem", str(error), error.hint),)
    for reason in reasons if debug else ():
        warnings.warn(f"{kind.name} cannot be used: {reason.message}", UserWarning, stacklevel=3)
    return not reasons
