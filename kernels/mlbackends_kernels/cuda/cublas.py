"""cuBLAS: products of matrices, and vectors times a number.

One handle a device, used by one thread at a time: math mode and workspace belong to the handle.
Handles are never destroyed: at the end of a process the context may be gone before us.

Source: cuBLAS documentation, cublasGemmStridedBatchedEx, cublasSetMathMode, cublasSetWorkspace.
"""

import ctypes
import threading
from typing import Any

from mlbackends_kernels.cuda import runtime
from mlbackends_kernels.cuda.dtypes import ELEMENT_TYPES
from mlbackends_kernels.cuda.gemm import Gemm, Precision, compute_type, factors
from mlbackends_kernels.cuda.libraries import open_library

_DEFAULT_MATH, _TF32_MATH, _NO_REDUCED_REDUCTION = 0, 3, 16
_DEFAULT_ALGORITHM = -1
_LARGEST_INT = 2**31 - 1
_SCALING = {
    "float32": ("cublasSscal_v2", ctypes.c_float),
    "float64": ("cublasDscal_v2", ctypes.c_double),
    "complex64": ("cublasCsscal_v2", ctypes.c_float),
    "complex128": ("cublasZdscal_v2", ctypes.c_double),
}

_TRANSPOSING: dict[str, tuple[str, Any]] = {
    "float32": ("cublasSgeam", ctypes.c_float * 1),
    "float64": ("cublasDgeam", ctypes.c_double * 1),
    "complex64": ("cublasCgeam", ctypes.c_float * 2),
    "complex128": ("cublasZgeam", ctypes.c_double * 2),
}
CAN_TRANSPOSE = frozenset(_TRANSPOSING)


class Handle:
    """cuBLAS on one device."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.lock = threading.RLock()
        self._library = open_library("cublas", "cublas")
        self._handle = ctypes.c_void_p()
        self._workspace: runtime.Memory | None = None
        self._lt_workspace: runtime.Memory | None = None
        with runtime.on_device(device):
            self._library("cublasCreate_v2", ctypes.byref(self._handle))

    def multiply(self, gemm: Gemm, precision: Precision, workspace_bytes: int) -> None:
        """Compute a batch of products. workspace_bytes: what cuBLAS may use beside its operands."""
        compute = compute_type(gemm.dtype, precision)
        _, one, zero = factors(gemm.dtype, compute)
        kind = ctypes.c_int(ELEMENT_TYPES[gemm.dtype].cuda)
        large = max(gemm.m, gemm.n, gemm.k, gemm.left.leading, gemm.right.leading, gemm.batch)
        suffix, integer = ("_64", ctypes.c_int64) if large > _LARGEST_INT else ("", ctypes.c_int)
        left, right = gemm.left, gemm.right
        with self.lock, runtime.on_device(self.device):
            self.workspace(workspace_bytes)
            mode = ctypes.c_int(_math_mode(gemm.dtype, precision))
            self._library("cublasSetMathMode", self._handle, mode)
            self._library(
                f"cublasGemmStridedBatchedEx{suffix}",
                *(self._handle, ctypes.c_int(left.transposed), ctypes.c_int(right.transposed)),
                *(integer(gemm.m), integer(gemm.n), integer(gemm.k), one),
                *(ctypes.c_void_p(left.pointer), kind, integer(left.leading)),
                *(ctypes.c_int64(left.step),),
                *(ctypes.c_void_p(right.pointer), kind, integer(right.leading)),
                *(ctypes.c_int64(right.step), zero),
                *(ctypes.c_void_p(gemm.result), kind, integer(gemm.m)),
                *(ctypes.c_int64(gemm.m * gemm.n), integer(gemm.batch)),
                *(ctypes.c_int(compute), ctypes.c_int(_DEFAULT_ALGORITHM)),
            )

    def workspace(self, size: int) -> runtime.Memory:
        """Give cuBLAS a workspace of `size` bytes, if it has another, and return it."""
        if self._workspace is None or self._workspace.size != size:
            memory = runtime.Memory(size, self.device)
            pointer = ctypes.c_void_p(memory.pointer or None)
            self._library("cublasSetWorkspace_v2", self._handle, pointer, ctypes.c_size_t(size))
            self._workspace = memory
        return self._workspace

    def workspace_for_lt(self, size: int, cublas_size: int) -> runtime.Memory:
        """Return memory of at least `size` bytes for cuBLASLt: cuBLAS's own where that is enough."""
        if size <= cublas_size:
            return self.workspace(cublas_size)
        if self._lt_workspace is None or self._lt_workspace.size != size:
            self._lt_workspace = runtime.Memory(size, self.device)
        return self._lt_workspace

    def scale(self, pointer: int, count: int, dtype: str, factor: float) -> None:
        """Multiply numbers that lie one behind the other by a real number, where they are."""
        function, real = _SCALING[dtype]
        itemsize = ELEMENT_TYPES[dtype].itemsize
        with self.lock, runtime.on_device(self.device):
            for start in range(0, count, _LARGEST_INT):
                part = ctypes.c_int(min(count - start, _LARGEST_INT))
                at = ctypes.c_void_p(pointer + start * itemsize)
                value = ctypes.byref(real(factor))
                self._library(function, self._handle, part, value, at, ctypes.c_int(1))

    def transpose(
        self,
        dtype: str,
        rows: int,
        columns: int,
        target: tuple[int, int],
        source: tuple[int, int],
    ) -> None:
        """Write the transpose of a matrix that is stored by columns, (columns, rows), to another place.

        target, source: the address, and the elements from one column to the next.
        """
        function, number = _TRANSPOSING[dtype]
        one, zero, no = number(1), number(0), ctypes.c_int(0)
        (to, to_leading), (of, of_leading) = target, source
        with self.lock, runtime.on_device(self.device):
            self._library(
                function,
                *(self._handle, ctypes.c_int(1), no, ctypes.c_int(rows), ctypes.c_int(columns)),
                *(one, ctypes.c_void_p(of), ctypes.c_int(of_leading)),
                *(zero, ctypes.c_void_p(to), ctypes.c_int(to_leading)),
                *(ctypes.c_void_p(to), ctypes.c_int(to_leading)),
            )


def _math_mode(dtype: str, precision: Precision) -> int:
    mode = _DEFAULT_MATH
    if precision.tf32 and dtype in ("float32", "complex64"):
        mode = _TF32_MATH
    if not precision.reduced_reduction and dtype in ("float16", "bfloat16"):
        mode |= _NO_REDUCED_REDUCTION
    return mode


_handles: dict[int, Handle] = {}
_making = threading.Lock()


def handle(device: int) -> Handle:
    """Return the handle of a device, made when it is first asked for."""
    with _making:
        if device not in _handles:
            _handles[device] = Handle(device)
        return _handles[device]
