"""One product of matrices, as every BLAS is asked for it: by columns.

C = left @ right, where `left` is (m, k) and `right` (k, n). An array whose last index runs fastest
is, read by columns, its transpose; so A @ B is asked for as C^T = B^T @ A^T, and nothing is moved.
"""

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from mlbackends_kernels.cuda.dtypes import ELEMENT_TYPES

if TYPE_CHECKING:
    from mlbackends_kernels.cuda.device_array import DeviceArray

COMPUTE_16F, COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F = 64, 68, 77, 70

_HALF_ONE = 0x3C00


class Matrix(NamedTuple):
    """leading: elements from one column to the next. step: elements from one batch to the next."""

    pointer: int
    transposed: bool
    leading: int
    step: int


class Gemm(NamedTuple):
    """`batch` products of equal shape; their results lie packed, one behind the other."""

    m: int
    n: int
    k: int
    batch: int
    left: Matrix
    right: Matrix
    result: int
    dtype: str


class Precision(NamedTuple):
    """What the switches allow. The middle two concern 16-bit elements, the last float16 alone."""

    tf32: bool = False
    reduced_reduction: bool = True
    split_k: bool = True
    accumulate_in_half: bool = False


def column_layout(matrix: "DeviceArray") -> tuple[bool, int] | None:
    """Return whether a matrix must be transposed to be its own transpose by columns, and its leading.

    None where neither index runs over neighbours: it must be copied first.
    """
    (rows, columns), (down, across) = matrix.shape[-2:], matrix.strides[-2:]
    if (across == 1 or columns == 1) and (down >= max(columns, 1) or rows == 1):
        return False, max(down if rows > 1 else columns, 1)
    if (down == 1 or rows == 1) and (across >= max(rows, 1) or columns == 1):
        return True, max(across if columns > 1 else rows, 1)
    return None


def compute_type(dtype: str, precision: Precision) -> int:
    """Return the cublasComputeType_t for elements of a type."""
    if dtype in ("float64", "complex128"):
        return COMPUTE_64F
    if dtype == "float16" and precision.accumulate_in_half:
        return COMPUTE_16F
    if dtype in ("float32", "complex64") and precision.tf32:
        return COMPUTE_32F_FAST_TF32
    return COMPUTE_32F


def factors(
    dtype: str, compute: int
) -> "tuple[int, ctypes.Array[ctypes.c_byte], ctypes.Array[ctypes.c_byte]]":
    """Return the cudaDataType of alpha and beta, and the two in that type: 1 and 0."""
    if compute == COMPUTE_16F:
        kind, one = ELEMENT_TYPES["float16"], bytes(ctypes.c_uint16(_HALF_ONE))
    elif dtype in ("float64", "complex128"):
        kind, one = ELEMENT_TYPES[dtype], bytes(ctypes.c_double(1))
    else:
        name = "complex64" if dtype == "complex64" else "float32"
        kind, one = ELEMENT_TYPES[name], bytes(ctypes.c_float(1))
    value = (ctypes.c_byte * 16).from_buffer_copy(one.ljust(16, b"\0"))
    return kind.cuda, value, (ctypes.c_byte * 16)()
