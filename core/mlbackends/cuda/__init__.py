"""CUDA: the switches of matrix products, attention and FFT plans, as torch.backends.cuda has them."""

from mlbackends.base import registry
from mlbackends.cuda.cublas import cuBLASModule
from mlbackends.switches import availability
from mlbackends.switches.modules import install

#: The public names that are defined in other modules, by module.
_ELSEWHERE = {
    "sdpa.cuda_surface": (
        "allow_fp16_bf16_reduction_math_sdp", "can_use_cudnn_attention",
        "can_use_efficient_attention", "can_use_flash_attention", "cudnn_sdp_enabled", "enable_cudnn_sdp",
        "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "flash_sdp_enabled",
        "fp16_bf16_reduction_math_sdp_allowed", "is_flash_attention_available", "math_sdp_enabled",
        "mem_efficient_sdp_enabled", "SDPAParams", "sdp_kernel",
    ),
    "cuda.preferences": (
        "blas_workspace_size", "cublas_workspace_size", "cublaslt_workspace_size",
        "preferred_blas_library", "preferred_linalg_library", "preferred_rocm_fa_library",
    ),
    "cuda.plan_cache": (
        "cuFFTPlanCache", "cuFFTPlanCacheAttrContextProp", "cuFFTPlanCacheManager", "cufft_plan_cache",
    ),
}  # fmt: skip
_LAZY = {name: f"mlbackends.{module}:{name}" for module, names in _ELSEWHERE.items() for name in names}
_LAZY["on_stream"] = f"{registry.KERNELS}.cuda.streams:on_stream"
__all__ = [*_LAZY, "cuBLASModule", "is_built", "is_ck_sdpa_available", "matmul"]  # noqa: PLE0604  of _LAZY
_LAZY["SDPBackend"] = "mlbackends.sdpa:SDPBackend"

matmul = cuBLASModule()

#: Libraries with which attention on CUDA computes; one of them is enough.
_PARTS = ("nvrtc", "cudnn")


def is_built() -> bool:
    """Return whether a library for attention on CUDA is installed, with or without a GPU."""
    return any(availability.is_found(name) for name in _PARTS)


def is_ck_sdpa_available() -> bool:
    """Return whether attention by Composable Kernel is available; this library does not have it."""
    return False


install(__name__, "_CudaModule")
