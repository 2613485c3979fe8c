"""The product of two arrays: NumPy's BLAS for arrays in memory, cuBLAS for arrays on a device.

Switches: `mkldnn.matmul.fp32_precision` in memory; on a device those of `cuda.matmul`,
`cuda.preferred_blas_library`, `cuda.cublas_workspace_size` and `cuda.cublaslt_workspace_size`. A batch
of matrices on a device goes to cuBLAS.
"""

from typing import Any

from mlbackends.sdpa.describe import refuse_unreadable
from mlbackends_kernels.cuda.device_array import as_device_array, is_on_device
from mlbackends_kernels.cuda.streams import callers
from mlbackends_kernels.operations._arrays import common_dtype, operand, quiet, returned
from mlbackends_kernels.operations._precision import Product
from mlbackends_kernels.operations._shapes import product_shape


def run(a: Any, b: Any) -> Any:
    """Return `a @ b`; see `mlbackends_kernels.operations._call.matmul`."""
    refuse_unreadable({"a": a, "b": b}, "matmul(): ")
    places = [is_on_device(a), is_on_device(b)]
    if all(places):
        stream = callers(a, b)
        return _on_device(as_device_array(a, stream), as_device_array(b, stream))
    if any(places):
        raise RuntimeError("both must lie on one device: one is on CUDA, the other in memory")
    return _in_memory(a, b)


@quiet
def _in_memory(a: Any, b: Any) -> Any:
    left, right = operand("matmul", "a", a), operand("matmul", "b", b)
    dtype = common_dtype({"a": left.dtype, "b": right.dtype})
    product_shape(left.array.shape, right.array.shape)
    return returned(a, Product(dtype)(left.array, right.array), dtype)


def _on_device(a: Any, b: Any) -> Any:
    from mlbackends_kernels.cuda.products import multiply

    common_dtype({"a": a.dtype, "b": b.dtype})
    if a.device != b.device:
        raise RuntimeError(f"both must lie on one device: cuda:{a.device} and cuda:{b.device}")
    shape = product_shape(a.shape, b.shape)
    return multiply(a, b, shape)
