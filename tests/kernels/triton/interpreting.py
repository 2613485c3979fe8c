"""Run kernels in Triton's interpreter: cases come as JSON on stdin, a line of findings goes out for each.

A process of its own, since Triton reads TRITON_INTERPRET when it is imported. The interpreter computes
with the bit patterns of bfloat16 as if they were integers; `repair_bfloat16` gives it the real numbers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from mlbackends_kernels.cuda.device_array import DeviceArray
from mlbackends_kernels.triton import launching

Array = np.ndarray[Any, np.dtype[Any]]


class HostOperand(DeviceArray):
    """A numpy array as an operand, with what the interpreter asks of a tensor beside its address."""

    def untyped_storage(self) -> HostOperand:
        return self

    def cpu(self) -> HostOperand:
        return self

    def copy_(self, other: object) -> None:
        assert other is self

    def new_empty(self, *_: object, **__: object) -> HostOperand:
        return self

    def set_(self, *_: object) -> None:
        pass

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:  # type: ignore[override]  # Triton's meaning of it
        return self.shape

    def stride(self) -> tuple[int, ...]:
        return self.strides


def host(array: Array, dtype: str = "") -> HostOperand:
    strides = tuple(step // array.itemsize for step in array.strides)
    return HostOperand(array.ctypes.data, array.shape, strides, dtype or array.dtype.name, 0, array)


def encoded(array: Array, dtype: str) -> Array:
    """Return numbers as the kernel reads them; bfloat16 as the bits, rounded to nearest even."""
    if dtype != "bfloat16":
        return array.astype(dtype)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)


def decoded(array: Array, dtype: str) -> Array:
    if dtype == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def repair_bfloat16() -> None:
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from triton.runtime import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        interpreter,
    )

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    plain_dot, plain_cast = builder.create_dot, builder.cast_impl

    def is_bfloat16(tensor: Any) -> bool:
        return bool(tensor.dtype.scalar == tl.bfloat16)

    def numbers(tensor: Any) -> Array:
        bits: Array = tensor.data.astype(np.uint32) << 16
        return bits.view(np.float32)

    def dot(self: Any, a: Any, b: Any, total: Any, *rest: Any) -> Any:
        if not is_bfloat16(a):
            return plain_dot(self, a, b, total, *rest)
        return handle(np.matmul(numbers(a), numbers(b)) + total.data, total.dtype.scalar)

    def cast(self: Any, source: Any, target: Any) -> Any:
        wanted = target.scalar
        if is_bfloat16(source) and wanted != tl.bfloat16:
            return handle(numbers(source).astype(interpreter._get_np_dtype(wanted)), wanted)
        if wanted == tl.bfloat16 and not is_bfloat16(source):
            return handle(encoded(np.asarray(source.data, np.float32), "bfloat16"), wanted)
        return plain_cast(self, source, target)

    builder.create_dot, builder.cast_impl = dot, cast


def largest(array: Array) -> float:
    return float(np.max(np.abs(array), initial=0)) if np.isfinite(array).all() else float("inf")


def bmm(case: dict[str, Any]) -> dict[str, Any]:
    from mlbackends_kernels.triton.batched_matmul import batched_matmul

    rng, dtype = np.random.default_rng(1), case["dtype"]
    left, right = (encoded(rng.standard_normal(case[each]), dtype) for each in ("left", "right"))
    if case.get("transposed"):
        left, right = left.swapaxes(1, 2), right.swapaxes(1, 2)
    result = np.full((*left.shape[:2], right.shape[2]), 77, left.dtype)
    what = launching.product(
        host(left, dtype), host(right, dtype), host(result, dtype),
        precision="ieee", capability=(8, 6),
    )  # fmt: skip
    batched_matmul[what.grid](**what.arguments, **what.constants, **what.options)
    a, b = decoded(left, dtype), decoded(right, dtype)
    plain = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float32)
    return {
        "error": largest(decoded(result, dtype) - a @ b),
        "plain": largest(decoded(encoded(plain, dtype), dtype) - a @ b),
    }


def main() -> None:
    repair_bfloat16()
    np.seterr(all="ignore")
    for case in json.load(sys.stdin):
        print(json.dumps(bmm(case)), flush=True)


if __name__ == "__main__":
    main()
