"""cuBLASLt: products of matrices by an algorithm that its heuristic picks under our conditions.

Only here can splitting k over several blocks be forbidden: cuBLAS has no switch for it.

Source: cuBLASLt documentation, cublasLtMatmul, cublasLtMatmulAlgoGetHeuristic and the tables of
attributes of descriptors, layouts and preferences.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mlbackends_kernels.cuda import runtime
from mlbackends_kernels.cuda.dtypes import ELEMENT_TYPES
from mlbackends_kernels.cuda.errors import CudaError
from mlbackends_kernels.cuda.gemm import Gemm, Precision, compute_type, factors
from mlbackends_kernels.cuda.libraries import Opened, open_library

_TRANSPOSE_LEFT, _TRANSPOSE_RIGHT = 3, 4  # cublasLtMatmulDescAttributes_t
_BATCH_COUNT, _BATCH_STEP = 5, 6  # cublasLtMatrixLayoutAttribute_t
_WORKSPACE_BYTES, _REDUCTION_SCHEMES = 1, 3  # cublasLtMatmulPreferenceAttributes_t
_ALIGNMENTS = (5, 6, 7, 8)  # of A, B, C and D, likewise
_LARGEST_ALIGNMENT = 256
_NO_SPLIT_K, _REDUCE_IN_COMPUTE_TYPE, _ANY_SCHEME = 0, 2, 7
_NOT_SUPPORTED = 15


class _Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class LtHandle:
    """cuBLASLt on one device."""

    def __init__(self, device: int) -> None:
        self.device = device
        self._library = open_library("cublas", "cublasLt")
        self._handle = ctypes.c_void_p()
        with runtime.on_device(device):
            self._library("cublasLtCreate", ctypes.byref(self._handle))

    def multiply(self, gemm: Gemm, precision: Precision, workspace: int, size: int) -> None:
        """Compute a batch of products, in a workspace of `size` bytes at an address.

        Raises CudaError (CUBLAS_STATUS_NOT_SUPPORTED) where no algorithm meets the conditions.
        """
        with runtime.on_device(self.device), _made(self._library, gemm, precision) as made:
            description, layouts, one, zero = made
            found = self._algorithm(gemm, precision, size, description, layouts)
            left, right, result = layouts
            target = ctypes.c_void_p(gemm.result)
            self._library(
                "cublasLtMatmul",
                *(self._handle, description, one),
                *(ctypes.c_void_p(gemm.left.pointer), left),
                *(ctypes.c_void_p(gemm.right.pointer), right),
                *(zero, target, result, target, result),
                *(ctypes.byref(found.algorithm), ctypes.c_void_p(workspace or None)),
                *(ctypes.c_size_t(size), ctypes.c_void_p()),
            )

    def _algorithm(
        self,
        gemm: Gemm,
        precision: Precision,
        workspace_bytes: int,
        description: ctypes.c_void_p,
        layouts: list[ctypes.c_void_p],
    ) -> _Found:
        call, preference = self._library, ctypes.c_void_p()
        call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        try:
            settings: dict[int, ctypes.c_uint64 | ctypes.c_uint32] = {
                _WORKSPACE_BYTES: ctypes.c_uint64(workspace_bytes),
                _REDUCTION_SCHEMES: ctypes.c_uint32(_schemes(gemm.dtype, precision)),
            }
            pointers = (gemm.left.pointer, gemm.right.pointer, gemm.result, gemm.result)
            for attribute, pointer in zip(_ALIGNMENTS, pointers, strict=True):
                settings[attribute] = ctypes.c_uint32(_alignment(pointer))
            for attribute, value in settings.items():
                _set(call, "cublasLtMatmulPreferenceSetAttribute", preference, attribute, value)
            found, count = _Found(), ctypes.c_int(0)
            left, right, result = layouts
            call(
                "cublasLtMatmulAlgoGetHeuristic",
                *(self._handle, description, left, right, result, result, preference),
                *(ctypes.c_int(1), ctypes.byref(found), ctypes.byref(count)),
            )
        finally:
            call.status("cublasLtMatmulPreferenceDestroy", preference)
        if count.value < 1 or found.status:
            name = "CUBLAS_STATUS_NOT_SUPPORTED: no algorithm under these switches"
            raise CudaError("cublasLtMatmulAlgoGetHeuristic", found.status or _NOT_SUPPORTED, name)
        return found


@contextmanager
def _made(
    call: Opened, gemm: Gemm, precision: Precision
) -> Iterator[tuple[ctypes.c_void_p, list[ctypes.c_void_p], object, object]]:
    """Give the description of the operation, the layouts of both operands and result, 1 and 0."""
    compute = compute_type(gemm.dtype, precision)
    scale_type, one, zero = factors(gemm.dtype, compute)
    description = ctypes.c_void_p()
    layouts: list[ctypes.c_void_p] = []
    types = (ctypes.c_int(compute), ctypes.c_int(scale_type))
    call("cublasLtMatmulDescCreate", ctypes.byref(description), *types)
    try:
        for attribute, matrix in ((_TRANSPOSE_LEFT, gemm.left), (_TRANSPOSE_RIGHT, gemm.right)):
            value = ctypes.c_int32(matrix.transposed)
            _set(call, "cublasLtMatmulDescSetAttribute", description, attribute, value)
        for rows, columns, leading, step in (
            (*_stored(gemm.m, gemm.k, gemm.left.transposed), gemm.left.leading, gemm.left.step),
            (*_stored(gemm.k, gemm.n, gemm.right.transposed), gemm.right.leading, gemm.right.step),
            (gemm.m, gemm.n, gemm.m, gemm.m * gemm.n),
        ):
            layout = ctypes.c_void_p()
            kind = ctypes.c_int(ELEMENT_TYPES[gemm.dtype].cuda)
            sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(leading))
            call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), kind, *sizes)
            layouts.append(layout)
            _set(
                call,
                "cublasLtMatrixLayoutSetAttribute",
                layout,
                _BATCH_COUNT,
                ctypes.c_int32(gemm.batch),
            )
            _set(
                call, "cublasLtMatrixLayoutSetAttribute", layout, _BATCH_STEP, ctypes.c_int64(step)
            )
        yield description, layouts, one, zero
    finally:
        for layout in layouts:
            call.status("cublasLtMatrixLayoutDestroy", layout)
        call.status("cublasLtMatmulDescDestroy", description)


def _stored(rows: int, columns: int, transposed: bool) -> tuple[int, int]:
    """Return rows and columns as they lie in memory."""
    return (columns, rows) if transposed else (rows, columns)


def _set(
    call: Opened,
    function: str,
    thing: ctypes.c_void_p,
    attribute: int,
    value: "ctypes._SimpleCData[int]",
) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(value))
    call(function, thing, ctypes.c_int(attribute), ctypes.byref(value), size)


def _alignment(pointer: int) -> int:
    return min(pointer & -pointer, _LARGEST_ALIGNMENT) or _LARGEST_ALIGNMENT


def _schemes(dtype: str, precision: Precision) -> int:
    """Return the mask of ways in which parts of a sum may be put together."""
    if dtype not in ("float16", "bfloat16") or precision.reduced_reduction:
        return _ANY_SCHEME
    return _REDUCE_IN_COMPUTE_TYPE if precision.split_k else _NO_SPLIT_K


_handles: dict[int, LtHandle] = {}
_making = threading.Lock()


def handle(device: int) -> LtHandle:
    """Return the handle of a device, made when it is first asked for."""
    with _making:
        if device not in _handles:
            _handles[device] = LtHandle(device)
        return _handles[device]
