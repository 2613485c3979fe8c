"""`a @ b` of arrays on a device, by cuBLAS or cuBLASLt through nvmath, under the switches of `cuda.matmul`.

Operands are read where they lie, transposed or not, if one index runs over neighbours; others are
copied first. A broadcast batch is read again and again, not copied. Every BLAS is asked by columns: an
array whose last index runs fastest is, read so, its transpose, and A @ B is asked for as C^T = B^T @ A^T.
The workspace is allocated for each call in the order of its stream, so streams never share one.

Source: cuBLAS documentation, cublasGemmStridedBatchedEx, cublasSetMathMode, cublasSetWorkspace;
cublasLtMatmul, cublasLtMatmulAlgoGetHeuristic and the tables of attributes.
"""

import itertools
import threading
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends.cuda.preferences import cublas_workspace_size, cublaslt_workspace_size
from mlbackends.switches import store
from mlbackends_kernels.cuda.copies import packed
from mlbackends_kernels.cuda.device_array import DeviceArray, empty_like, product, zeros_like
from mlbackends_kernels.cuda.devices import driver, on_device
from mlbackends_kernels.cuda.dtypes import CUDA_TYPES, known
from mlbackends_kernels.cuda.errors import CudaError, our_errors
from mlbackends_kernels.cuda.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHORT = {"float16": "fp16", "bfloat16": "bf16"}
_WIDE, _SINGLE = ("float64", "complex128"), ("float32", "complex64")
_16F, _32F, _64F, _32F_FAST_TF32 = 64, 68, 70, 77  # cublasComputeType_t
_DEFAULT_MATH, _TF32_MATH, _NO_REDUCED_REDUCTION = 0, 3, 16
_NO_SPLIT_K, _REDUCE_IN_COMPUTE_TYPE, _ANY_SCHEME = 0, 2, 7
_DEFAULT_ALGORITHM = -1
_LARGEST_INT, _LARGEST_ALIGNMENT = 2**31 - 1, 256


class Precision(NamedTuple):
    """What the switches allow. The middle two concern 16-bit elements, the last float16 alone."""

    tf32: bool = False
    reduced_reduction: bool = True
    split_k: bool = True
    accumulate_in_half: bool = False


EXACT = Precision(reduced_reduction=False)


class _Side(NamedTuple):
    """An operand by columns. leading, step: elements from one column, one batch, to the next."""

    transposed: bool
    leading: int
    step: int


class _Shape(NamedTuple):
    """`batch` products (m, k) @ (k, n) by columns; results lie packed, one behind the other."""

    m: int
    n: int
    k: int
    batch: int
    left: _Side
    right: _Side
    dtype: str
    out: str


def multiply(
    a: DeviceArray,
    b: DeviceArray,
    shape: tuple[int, ...],
    precision: Precision | None = None,
    out: str = "",
) -> DeviceArray:
    """Return the product of two arrays of one type on one device and stream.

    Shapes: a (..., m, k), b (..., k, n), batches broadcast; a vector counts as one row, or one
    column. shape: that of the result, (..., m, n) without the row or column of a vector.
    precision: None for what the switches allow. out: the result's type, a's unless given.
    Raises CudaError where the library refuses, CudaUnavailable where it is not there.
    """
    if a.dtype not in CUDA_TYPES:
        raise TypeError(f"products take {', '.join(CUDA_TYPES)}, not {a.dtype}")
    if a.ndim == 1:
        a = a.viewed((1, *a.shape), (0, *a.strides))
    if b.ndim == 1:
        b = b.viewed((*b.shape, 1), (*b.strides, 0))
    m, k, n = *a.shape[-2:], b.shape[-1]
    out = known(out or a.dtype)
    if not product(shape) or not k:
        return zeros_like(a, shape, out)
    batch = tuple(
        max(of_a, of_b) for of_a, of_b in itertools.zip_longest(
            a.shape[-3::-1], b.shape[-3::-1], fillvalue=1
        )
    )[::-1]  # fmt: skip
    precision = precision or precision_of(a.dtype)
    prefers_lt = store.read("cuda.preferred_blas_library") == "cublaslt"
    # Only cuBLASLt can be forbidden to split k over several blocks.
    by = _by_cublaslt if prefers_lt or not precision.split_k else _by_cublas
    with on_device(a.device):
        result = empty_like(a, shape, out)
        left, right = _over_batches(a, m, k, batch), _over_batches(b, k, n, batch)
        for what, pointers in _calls(left, right, result, batch):
            by(what, pointers, precision, a)
    return result


def precision_of(dtype: str) -> Precision:
    """Return what the switches allow for elements of a type."""
    prefix = "cuda.matmul."
    tf32 = store.read(f"{prefix}fp32_precision") == "tf32"
    if dtype not in _SHORT:
        return Precision(tf32=tf32)
    switch = f"{prefix}allow_{_SHORT[dtype]}_reduced_precision_reduction"
    return Precision(
        tf32=tf32,
        reduced_reduction=bool(store.read(switch)),
        split_k=bool(store.read(f"{switch}_split_k")),
        accumulate_in_half=bool(store.read(f"{prefix}allow_fp16_accumulation")),
    )


# ---- what is asked for -----------------------------------------------------------


def _by_columns(matrix: DeviceArray) -> tuple[bool, int] | None:
    """Return whether a matrix must be transposed to be its own transpose by columns, and its leading.

    None where neither index runs over neighbours: it must be copied first.
    """
    (rows, columns), (down, across) = matrix.shape[-2:], matrix.strides[-2:]
    if (across == 1 or columns == 1) and (down >= max(columns, 1) or rows == 1):
        return False, max(down if rows > 1 else columns, 1)
    if (down == 1 or rows == 1) and (across >= max(rows, 1) or columns == 1):
        return True, max(across if columns > 1 else rows, 1)
    return None


def _over_batches(
    array: DeviceArray, rows: int, columns: int, batch: tuple[int, ...]
) -> DeviceArray:
    """Return an array that a BLAS can read, its batch broadcast by strides of 0."""
    if _by_columns(array) is None:
        array = packed(array)
    return array.viewed(
        (*batch, rows, columns),
        (*array.steps((*batch, rows, columns))[:-2], *array.strides[-2:]),
    )


def _calls(
    a: DeviceArray, b: DeviceArray, result: DeviceArray, batch: tuple[int, ...]
) -> "Iterator[tuple[_Shape, tuple[int, int, int]]]":
    """Yield the calls that it takes: one for each index of the batch that no single stride covers.

    Each is a shape, and the addresses of the left operand by columns, the right one and the result.
    """
    outer, count, a_step, b_step = _merged(batch, a.strides[:-2], b.strides[:-2])
    m, k, n = *a.shape[-2:], b.shape[-1]
    of_a, of_b = _by_columns(a), _by_columns(b)
    assert of_a is not None
    assert of_b is not None
    sides = _Side(*of_b, b_step), _Side(*of_a, a_step)
    what = _Shape(n, m, k, count, *sides, a.dtype, result.dtype)
    for number, index in enumerate(itertools.product(*map(range, outer))):
        left, right = (
            array.pointer
            + sum(i * by for i, by in zip(index, array.strides, strict=False)) * array.itemsize
            for array in (b, a)
        )
        yield what, (left, right, result.pointer + number * count * m * n * result.itemsize)


def _merged(
    batch: tuple[int, ...], a_steps: tuple[int, ...], b_steps: tuple[int, ...]
) -> tuple[tuple[int, ...], int, int, int]:
    """Return the outer batch that must be walked, and count and steps of the inner one."""
    if not batch:
        return (), 1, 0, 0
    count, a_step, b_step = batch[-1], a_steps[-1], b_steps[-1]
    outer = len(batch) - 1
    while outer:
        size = batch[outer - 1]
        fits = a_steps[outer - 1] == a_step * count and b_steps[outer - 1] == b_step * count
        if size != 1 and count != 1 and not fits:
            break
        if count == 1:
            a_step, b_step = a_steps[outer - 1], b_steps[outer - 1]
        count *= size
        outer -= 1
    return batch[:outer], count, a_step, b_step


def _compute_type(dtype: str, precision: Precision) -> int:
    if dtype in _WIDE:
        return _64F
    if dtype == "float16" and precision.accumulate_in_half:
        return _16F
    return _32F_FAST_TF32 if dtype in _SINGLE and precision.tf32 else _32F


@cache
def _factors(dtype: str, compute: int) -> tuple[int, int, int, Any]:
    """Return the cudaDataType of alpha and beta, the addresses of 1 and 0, and what keeps them."""
    import numpy as np

    name = "float16" if compute == _16F else dtype
    name = "float32" if name in _SHORT and compute != _16F else name
    numbers = np.array([1, 0], name)
    address = int(numbers.ctypes.data)
    return CUDA_TYPES[name], address, address + numbers.itemsize, numbers


# ---- cuBLAS ------------------------------------------------------------------------


class _Handle:
    """cuBLAS on one device, for one thread at a time: stream, math mode and workspace belong to it.

    It is never destroyed: at the end of a process the context may be gone before us.
    """

    def __init__(self, index: int) -> None:
        with our_errors("cublasCreate_v2"):
            from nvmath.bindings import cublas

            driver()
            with on_device(index):
                self.handle = cublas.create()
        self.library, self.lock = cublas, threading.Lock()


_handles: dict[int, _Handle] = {}
_making = threading.Lock()


def _handle(index: int) -> _Handle:
    with _making:
        return _handles.get(index) or _handles.setdefault(index, _Handle(index))


def _by_cublas(
    what: _Shape, pointers: tuple[int, int, int], precision: Precision, like: DeviceArray
) -> None:
    blas, size = _handle(like.device), cublas_workspace_size()
    compute = _compute_type(what.dtype, precision)
    _, one, zero, _ = _factors(what.dtype, compute)
    kind, out = CUDA_TYPES[what.dtype], CUDA_TYPES[what.out]
    largest = max(what.m, what.n, what.k, what.left.leading, what.right.leading, what.batch)
    ending = "_64" if largest > _LARGEST_INT else ""
    multiply = getattr(blas.library, f"gemm_strided_batched_ex{ending}")
    workspace = Memory(size, like.device, like.stream)
    with blas.lock, our_errors(f"cublasGemmStridedBatchedEx{ending}"):
        blas.library.set_stream(blas.handle, like.stream)
        # A new stream takes the workspace away, so it is given each time.
        blas.library.set_workspace(blas.handle, workspace.pointer, size)
        blas.library.set_math_mode(blas.handle, _math_mode(what.dtype, precision))
        multiply(
            *(blas.handle, int(what.left.transposed), int(what.right.transposed)),
            *(what.m, what.n, what.k, one),
            *(pointers[0], kind, what.left.leading, what.left.step),
            *(pointers[1], kind, what.right.leading, what.right.step),
            *(zero, pointers[2], out, what.m, what.m * what.n),
            *(what.batch, compute, _DEFAULT_ALGORITHM),
        )


def _math_mode(dtype: str, precision: Precision) -> int:
    mode = _TF32_MATH if precision.tf32 and dtype in _SINGLE else _DEFAULT_MATH
    is_exact = not precision.reduced_reduction and dtype in _SHORT
    return mode | _NO_REDUCED_REDUCTION if is_exact else mode


def scale(array: DeviceArray, factor: float) -> None:
    """Multiply a packed array of real or complex numbers by a real number, where it lies."""
    import numpy as np

    is_wide = array.dtype in _WIDE
    blas, real = _handle(array.device), np.array([factor], "f8" if is_wide else "f4")
    count = array.nbytes // real.itemsize  # a complex number is two real ones
    with (
        on_device(array.device),
        blas.lock,
        our_errors("cublasDscal_v2" if is_wide else "cublasSscal_v2"),
    ):
        run = blas.library.dscal if is_wide else blas.library.sscal
        blas.library.set_stream(blas.handle, array.stream)
        for start in range(0, count, _LARGEST_INT):
            part, at = min(count - start, _LARGEST_INT), array.pointer + start * real.itemsize
            run(blas.handle, part, int(real.ctypes.data), at, 1)


# ---- cuBLASLt ----------------------------------------------------------------------


def _by_cublaslt(
    what: _Shape, pointers: tuple[int, int, int], precision: Precision, like: DeviceArray
) -> None:
    size = cublaslt_workspace_size()
    conditions = _compute_type(what.dtype, precision), _schemes(what.dtype, precision), size
    plan = _plan(like.device, what, *conditions, *map(_alignment, pointers))
    workspace = Memory(size, like.device, like.stream)
    left, right, target = pointers
    of_left, of_right, of_target = plan.layouts
    with our_errors("cublasLtMatmul"):
        plan.library.matmul(
            *(plan.handle, plan.description, plan.one, left, of_left, right, of_right),
            *(plan.zero, target, of_target, target, of_target, plan.algorithm),
            *(workspace.pointer, size, like.stream),
        )


class _Plan:
    """How cuBLASLt computes products of one shape: descriptors, and the algorithm of its heuristic."""

    def __init__(
        self, index: int, what: _Shape, compute: int, schemes: int, size: int, alignments: Any
    ) -> None:
        self._descriptors: list[tuple[Any, int]] = []
        self.library, self.handle = _lt_handle(index)
        kind, self.one, self.zero, self._factors = _factors(what.dtype, compute)
        with our_errors("cublasLtMatmulDescCreate"):
            self.description = self._make("matmul_desc", compute, kind)
        self._set("matmul_desc", self.description, "TRANSA", what.left.transposed)
        self._set("matmul_desc", self.description, "TRANSB", what.right.transposed)
        self.layouts = [
            self._layout(what, dtype, *self._stored(side, rows, columns), side)
            for rows, columns, side, dtype in (
                (what.m, what.k, what.left, what.dtype),
                (what.k, what.n, what.right, what.dtype),
                (what.m, what.n, _Side(False, what.m, what.m * what.n), what.out),
            )
        ]
        self.algorithm = self._found(schemes, size, alignments)

    @staticmethod
    def _stored(side: _Side, rows: int, columns: int) -> tuple[int, int]:
        """Return rows and columns as they lie in memory."""
        return (columns, rows) if side.transposed else (rows, columns)

    def _make(self, kind: str, *arguments: object) -> int:
        made = int(getattr(self.library, f"{kind}_create")(*arguments))
        self._descriptors.append((getattr(self.library, f"{kind}_destroy"), made))
        return made

    def _set(self, kind: str, thing: int, attribute: str, value: int) -> None:
        import numpy as np

        names = {
            "matmul_desc": "MatmulDescAttribute",
            "matrix_layout": "MatrixLayoutAttribute",
            "matmul_preference": "MatmulPreferenceAttribute",
        }
        number = getattr(getattr(self.library, names[kind]), attribute)
        word = np.array([value], getattr(self.library, f"get_{kind}_attribute_dtype")(number))
        with our_errors(f"setting {attribute} of cuBLASLt"):
            setter = getattr(self.library, f"{kind}_set_attribute")
            setter(thing, number, word.ctypes.data, word.nbytes)

    def _layout(self, what: _Shape, dtype: str, rows: int, columns: int, side: _Side) -> int:
        with our_errors("cublasLtMatrixLayoutCreate"):
            made = self._make("matrix_layout", CUDA_TYPES[dtype], rows, columns, side.leading)
        self._set("matrix_layout", made, "BATCH_COUNT", what.batch)
        self._set("matrix_layout", made, "STRIDED_BATCH_OFFSET", side.step)
        return made

    def _found(self, schemes: int, size: int, alignments: Any) -> int:
        """Return the address of the algorithm that the heuristic finds under our conditions."""
        import numpy as np

        with our_errors("cublasLtMatmulPreferenceCreate"):
            preference = self._make("matmul_preference")
        conditions = {"MAX_WORKSPACE_BYTES": size, "REDUCTION_SCHEME_MASK": schemes}
        for letter, alignment in zip("ABCD", (*alignments, alignments[-1]), strict=True):
            conditions[f"MIN_ALIGNMENT_{letter}_BYTES"] = alignment
        for attribute, value in conditions.items():
            self._set("matmul_preference", preference, attribute, value)
        self._result = np.zeros(1, self.library.matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        name = "cublasLtMatmulAlgoGetHeuristic"
        with our_errors(name):
            self.library.matmul_algo_get_heuristic(
                *(self.handle, self.description, *self.layouts, self.layouts[-1], preference),
                *(1, self._result.ctypes.data, count.ctypes.data),
            )
        state = int(self._result["state"][0])
        if not count[0] or state:
            why = "CUBLAS_STATUS_NOT_SUPPORTED: no algorithm under these switches"
            raise CudaError(name, state or 15, why)
        return int(self._result.ctypes.data)

    def __del__(self) -> None:
        for destroy, made in reversed(self._descriptors):
            destroy(made)


@lru_cache(maxsize=1024)
def _plan(
    index: int, what: _Shape, compute: int, schemes: int, size: int, *alignments: int
) -> _Plan:
    """Return a plan; the heuristic is asked once for each shape under each condition."""
    return _Plan(index, what, compute, schemes, size, alignments)


@cache
def _lt_handle(index: int) -> tuple[Any, int]:
    with our_errors("cublasLtCreate"):
        from nvmath.bindings import cublasLt

        driver()
        with on_device(index):
            return cublasLt, int(cublasLt.create())


def _alignment(pointer: int) -> int:
    return min(pointer & -pointer, _LARGEST_ALIGNMENT) or _LARGEST_ALIGNMENT


def _schemes(dtype: str, precision: Precision) -> int:
    """Return the mask of ways in which parts of a sum may be put together."""
    if dtype not in _SHORT or precision.reduced_reduction:
        return _ANY_SCHEME
    return _REDUCE_IN_COMPUTE_TYPE if precision.split_k else _NO_SPLIT_K
