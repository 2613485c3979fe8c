"""`a @ b` of arrays on a device, by cuBLAS or cuBLASLt, under the switches of `cuda.matmul`.

Operands are read where they lie, transposed or not, if one index runs over neighbours; others are
copied first. A broadcast batch is read again and again, not copied.
"""

import itertools
from collections.abc import Iterator

from mlbackends.cuda.preferences import cublas_workspace_size, cublaslt_workspace_size
from mlbackends.switches import store
from mlbackends_kernels.cuda import cublas, cublaslt, runtime
from mlbackends_kernels.cuda.device_array import DeviceArray, empty, product, zeros
from mlbackends_kernels.cuda.gemm import Gemm, Matrix, Precision, column_layout
from mlbackends_kernels.cuda.strided_copy import packed

_SHORT = {"float16": "fp16", "bfloat16": "bf16"}


def multiply(
    a: DeviceArray, b: DeviceArray, shape: tuple[int, ...], precision: Precision | None = None
) -> DeviceArray:
    """Return the product of two arrays of one type on one device, each of one or more dimensions.

    Shapes: a (..., m, k), b (..., k, n), batches broadcast; a vector counts as one row, or one
    column. shape: that of the result, (..., m, n) without the row or column of a vector.
    precision: None for what the switches allow.
    """
    if a.ndim == 1:
        a = a.viewed((1, *a.shape), (0, *a.strides))
    if b.ndim == 1:
        b = b.viewed((*b.shape, 1), (*b.strides, 0))
    m, k, n = *a.shape[-2:], b.shape[-1]
    if not product(shape) or not k:
        return zeros(shape, a.dtype, a.device)
    result = empty(shape, a.dtype, a.device)
    batch = tuple(
        max(of_a, of_b) for of_a, of_b in itertools.zip_longest(
            a.shape[-3::-1], b.shape[-3::-1], fillvalue=1
        )
    )[::-1]  # fmt: skip
    sides = _over_batches(a, m, k, batch), _over_batches(b, k, n, batch)
    _run(*sides, result, batch, precision or precision_of(a.dtype))
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


def _over_batches(
    array: DeviceArray, rows: int, columns: int, batch: tuple[int, ...]
) -> DeviceArray:
    """Return an array that cuBLAS can read, its batch broadcast by strides of 0."""
    if column_layout(array) is None:
        array = packed(array)
    missing = len(batch) + 2 - array.ndim
    own = array.shape[:-2]
    strides = [0] * missing + [
        0 if size == 1 else step for size, step in zip(own, array.strides[:-2], strict=True)
    ]
    return array.viewed((*batch, rows, columns), (*strides, *array.strides[-2:]))


def _run(
    a: DeviceArray,
    b: DeviceArray,
    result: DeviceArray,
    batch: tuple[int, ...],
    precision: Precision,
) -> None:
    prefers_lt = store.read("cuda.preferred_blas_library") == "cublaslt"
    with_lt = prefers_lt or not precision.split_k
    with runtime.on_device(a.device):
        handle = cublas.handle(a.device)
        for gemm in _products(a, b, result, batch):
            if with_lt:
                with handle.lock:
                    size = cublaslt_workspace_size()
                    workspace = handle.workspace_for_lt(size, cublas_workspace_size())
                    cublaslt.handle(a.device).multiply(gemm, precision, workspace.pointer, size)
            else:
                handle.multiply(gemm, precision, cublas_workspace_size())


def _products(
    a: DeviceArray, b: DeviceArray, result: DeviceArray, batch: tuple[int, ...]
) -> Iterator[Gemm]:
    """Yield the calls that it takes: one for each index of the batch that no single stride covers."""
    outer, count, a_step, b_step = _merged(batch, a.strides[:-2], b.strides[:-2])
    m, k, n = *a.shape[-2:], b.shape[-1]
    for number, index in enumerate(itertools.product(*map(range, outer))):
        sides = []
        # By columns the last operand comes first: C^T = B^T @ A^T.
        for array, step in ((b, b_step), (a, a_step)):
            layout = column_layout(array)
            assert layout is not None
            transposed, leading = layout
            offset = sum(i * by for i, by in zip(index, array.strides, strict=False))
            pointer = array.pointer + offset * array.itemsize
            sides.append(Matrix(pointer, transposed, leading, step))
        target = result.pointer + number * count * m * n * result.itemsize
        yield Gemm(n, m, k, count, sides[0], sides[1], target, a.dtype)


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
