# Made by man/generate.py from the table of switches and the source beside this file; change those.

from mlbackends.cuda.cublas import cuBLASModule as cuBLASModule
from mlbackends.cuda.plan_cache import cuFFTPlanCache as cuFFTPlanCache
from mlbackends.cuda.plan_cache import cuFFTPlanCacheAttrContextProp as cuFFTPlanCacheAttrContextProp
from mlbackends.cuda.plan_cache import cuFFTPlanCacheManager as cuFFTPlanCacheManager
from mlbackends.cuda.plan_cache import cufft_plan_cache as cufft_plan_cache
from mlbackends.cuda.preferences import blas_workspace_size as blas_workspace_size
from mlbackends.cuda.preferences import cublas_workspace_size as cublas_workspace_size
from mlbackends.cuda.preferences import cublaslt_workspace_size as cublaslt_workspace_size
from mlbackends.cuda.preferences import preferred_blas_library as preferred_blas_library
from mlbackends.cuda.preferences import preferred_linalg_library as preferred_linalg_library
from mlbackends.cuda.preferences import preferred_rocm_fa_library as preferred_rocm_fa_library
from mlbackends.sdpa import SDPBackend as SDPBackend
from mlbackends.sdpa.cuda_surface import SDPAParams as SDPAParams
from mlbackends.sdpa.cuda_surface import allow_fp16_bf16_reduction_math_sdp as allow_fp16_bf16_reduction_math_sdp
from mlbackends.sdpa.cuda_surface import can_use_cudnn_attention as can_use_cudnn_attention
from mlbackends.sdpa.cuda_surface import can_use_efficient_attention as can_use_efficient_attention
from mlbackends.sdpa.cuda_surface import can_use_flash_attention as can_use_flash_attention
from mlbackends.sdpa.cuda_surface import cudnn_sdp_enabled as cudnn_sdp_enabled
from mlbackends.sdpa.cuda_surface import enable_cudnn_sdp as enable_cudnn_sdp
from mlbackends.sdpa.cuda_surface import enable_flash_sdp as enable_flash_sdp
from mlbackends.sdpa.cuda_surface import enable_math_sdp as enable_math_sdp
from mlbackends.sdpa.cuda_surface import enable_mem_efficient_sdp as enable_mem_efficient_sdp
from mlbackends.sdpa.cuda_surface import flash_sdp_enabled as flash_sdp_enabled
from mlbackends.sdpa.cuda_surface import fp16_bf16_reduction_math_sdp_allowed as fp16_bf16_reduction_math_sdp_allowed
from mlbackends.sdpa.cuda_surface import is_flash_attention_available as is_flash_attention_available
from mlbackends.sdpa.cuda_surface import math_sdp_enabled as math_sdp_enabled
from mlbackends.sdpa.cuda_surface import mem_efficient_sdp_enabled as mem_efficient_sdp_enabled
from mlbackends.sdpa.cuda_surface import sdp_kernel as sdp_kernel
from mlbackends_kernels.cuda.streams import on_stream as on_stream

matmul: cuBLASModule
def is_built() -> bool: ...
def is_ck_sdpa_available() -> bool: ...
