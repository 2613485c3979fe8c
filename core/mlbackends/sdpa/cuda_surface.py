"""The functions about attention that torch has in torch.backends.cuda, by torch's names.

They are called cuda's, and the switches hold for every device.
"""

from __future__ import annotations

from mlbackends.sdpa.sdp_backend import SDPBackend
from mlbackends.switches import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mlbackends.sdpa.params import SDPAParams


def flash_sdp_enabled() -> bool:
    """Tell whether flash attention may be chosen."""
    return bool(store.read("cuda.flash_sdp"))


def enable_flash_sdp(enabled: bool) -> None:
    """Let flash attention be chosen, or not. Raises RuntimeError for anything but a bool."""
    store.write("cuda.flash_sdp", enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Tell whether memory-efficient attention may be chosen."""
    return bool(store.read("cuda.mem_efficient_sdp"))


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Let memory-efficient attention be chosen, or not. Raises RuntimeError for anything but a bool."""
    store.write("cuda.mem_efficient_sdp", enabled)


def math_sdp_enabled() -> bool:
    """Tell whether the plain formula may be chosen."""
    return bool(store.read("cuda.math_sdp"))


def enable_math_sdp(enabled: bool) -> None:
    """Let the plain formula be chosen, or not. Raises RuntimeError for anything but a bool."""
    store.write("cuda.math_sdp", enabled)


def cudnn_sdp_enabled() -> bool:
    """Tell whether cuDNN's attention may be chosen."""
    return bool(store.read("cuda.cudnn_sdp"))


def enable_cudnn_sdp(enabled: bool) -> None:
    """Let cuDNN's attention be chosen, or not. Raises RuntimeError for anything but a bool."""
    store.write("cuda.cudnn_sdp", enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Tell whether the plain formula may keep float16 and bfloat16 between its steps."""
    return bool(store.read("cuda.fp16_bf16_reduction_math_sdp"))


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Let the plain formula keep float16 and bfloat16 between its steps, or not."""
    store.write("cuda.fp16_bf16_reduction_math_sdp", enabled)


def is_flash_attention_available() -> bool:
    """Tell whether a backend is installed here that is flash attention on some CUDA device."""
    from mlbackends.sdpa.params import computes_on_cuda

    return computes_on_cuda(SDPBackend.FLASH_ATTENTION)


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Tell whether torch's flash attention on CUDA takes it. debug: warn with every reason why not."""
    return _can_use(SDPBackend.FLASH_ATTENTION, params, debug)


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Tell whether torch's memory-efficient attention on CUDA takes it. debug: warn with every reason."""
    return _can_use(SDPBackend.EFFICIENT_ATTENTION, params, debug)


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Tell whether torch gives it to cuDNN's attention. debug: warn with every reason why not."""
    return _can_use(SDPBackend.CUDNN_ATTENTION, params, debug)


def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> AbstractContextManager[dict[object, object]]:
    """Let only some kinds of attention backends run inside the block. Deprecated: see sdpa_kernel."""
    import warnings

    from mlbackends.sdpa.switches import sdpa_kernel
    from mlbackends.switches.dynamo import is_compiling

    if not is_compiling():  # a warning would break the graph
        warnings.warn(
            "sdp_kernel() is deprecated: use mlbackends.sdpa_kernel()", FutureWarning, stacklevel=2
        )
    required = {
        SDPBackend.FLASH_ATTENTION: enable_flash,
        SDPBackend.MATH: enable_math,
        SDPBackend.EFFICIENT_ATTENTION: enable_mem_efficient,
        SDPBackend.CUDNN_ATTENTION: enable_cudnn,
    }
    return sdpa_kernel([kind for kind, enabled in required.items() if enabled])


def _can_use(kind: SDPBackend, params: SDPAParams, debug: bool) -> bool:
    from mlbackends.sdpa.params import SDPAParams, why_not_on_cuda

    if not isinstance(params, SDPAParams):
        raise TypeError(f"params must be SDPAParams, not {type(params).__name__}")
    reasons = why_not_on_cuda(kind, params)
    if debug and reasons:
        import warnings

        for reason in reasons:
            warnings.warn(
                f"{kind.name} cannot be used: {reason.message}", UserWarning, stacklevel=3
            )
    return not reasons
