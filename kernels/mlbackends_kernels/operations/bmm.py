"""`torch.bmm`: a batch of matrix products; and Triton's kernel for it, which `mlbackends.matmul` takes too.

The kernel has been run by Triton's interpreter, and compiled for sm80 to sm120; it has not run on a GPU
yet. What it does not take goes to cuBLAS.
"""

from typing import TYPE_CHECKING, Any

from mlbackends.base import registry
from mlbackends.python_native.overrides import Override

if TYPE_CHECKING:
    from mlbackends_kernels.cuda.device_array import DeviceArray

_TYPES = ("float16", "bfloat16", "float32")


def run(left: Any, right: Any) -> Any:
    """Return the products of two batches of matrices, of one type on one device.

    Shapes: left (B, m, k), right (B, k, n); returns (B, m, n). Raises RuntimeError where they do not fit.
    """
    _refuse_misfits(*[tuple(map(int, each.shape)) for each in (left, right)])
    return registry.load("mlbackends_kernels.operations", "matmul").run(left, right)


def fits_triton(left: Any, right: Any) -> bool:
    """Tell whether the Triton kernel serves a call: its types and devices, and matrices that are there."""
    from mlbackends_kernels.cuda.device_array import as_device_array
    from mlbackends_kernels.triton.launching import capability_of

    try:
        a, b = as_device_array(left), as_device_array(right)
    except TypeError:  # an element type that nothing computes with: cuBLAS says so
        return False
    if a.dtype not in _TYPES or (a.dtype, a.device) != (b.dtype, b.device):
        return False
    if 0 in (*a.shape, *b.shape) or getattr(left, "requires_grad", False):
        return False
    return (8, 0) <= capability_of(a) <= (12, 1)


def by_triton(left: Any, right: Any) -> "DeviceArray":
    """Return the products as the Triton kernel computes them: in float32, or TF32 if that is allowed."""
    from mlbackends_kernels.cuda.device_array import as_device_array, output_like
    from mlbackends_kernels.triton import launching
    from mlbackends_kernels.triton.batched_matmul import batched_matmul

    a, b = as_device_array(left), as_device_array(right)
    result = output_like(left, (*a.shape[:2], b.shape[2]), a.dtype)
    product = launching.product(
        a,
        b,
        as_device_array(result),
        precision=launching.fp32_precision(),
        capability=launching.capability_of(a),
    )
    launching.launch(batched_matmul, product)
    return as_device_array(result)


def _refuse_misfits(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    if len(left) != 3 or len(right) != 3:
        raise RuntimeError(
            f"bmm needs two batches of matrices: {left} and {right} have no 3 dimensions"
        )
    if left[0] != right[0] or left[2] != right[1]:
        raise RuntimeError(
            f"{left} and {right} do not fit: bmm needs (B, m, k) and (B, k, n), and never broadcasts"
        )


OVERRIDES = (
    Override(
        dsl_name="triton",
        op_symbol="bmm",
        dispatch_key="CUDA",
        cond_fn=fits_triton,
        impl_fn=by_triton,
    ),
)
