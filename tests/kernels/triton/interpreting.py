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


def random(shape: Any, dtype: str, rng: np.random.Generator, layout: str = "") -> Array:
    """Return numbers in a layout: contiguous; "sequence first" is (B, L, H, E) seen as (B, H, L, E)."""
    if layout == "sequence first":
        batch, heads, rows, width = shape
        inner = encoded(rng.standard_normal((batch, rows, heads, width)), dtype)
        return inner.transpose(0, 2, 1, 3)
    if layout == "padded":
        return encoded(rng.standard_normal((*shape[:-1], shape[-1] + 8)), dtype)[..., : shape[-1]]
    return encoded(rng.standard_normal(shape), dtype)


def attention(case: dict[str, Any]) -> dict[str, Any]:
    """Return the largest errors against float64, and that of the plain formula in the same type."""
    from mlbackends_kernels.triton.flash_forward import flash_forward

    rng, dtype = np.random.default_rng(case.get("seed", 1)), case["dtype"]
    layout = case.get("layout", "")
    query, key, value = (
        random(case[each], dtype, rng, layout) for each in ("query", "key", "value")
    )
    if "spoil" in case:  # what lies past the end must not be read
        key[..., case["spoil"] :, :] = value[..., case["spoil"] :, :] = encoded(
            np.array(np.nan), dtype
        )
        key, value = key[..., : case["spoil"], :], value[..., : case["spoil"], :]
    mask, mask_type = None, case.get("mask_dtype", "")
    if mask_type:
        drawn = rng.standard_normal(case["mask"])
        mask = drawn > 0 if mask_type == "bool" else encoded(drawn, mask_type)
        if case.get("hide_rows"):
            mask[..., :3, :] = (
                False if mask_type == "bool" else encoded(np.array(-np.inf), mask_type)
            )
    shape = (*np.broadcast_shapes(query.shape[:1], key.shape[:1]),)
    shape = (
        *shape,
        max(query.shape[1], key.shape[1], value.shape[1]),
        query.shape[2],
        value.shape[3],
    )
    output = np.full(shape, 77, query.dtype)
    sums = np.full(shape[:3], 77, np.float32)
    major, minor = case.get("capability", (8, 6))
    scale = case.get("scale", query.shape[3] ** -0.5)
    what = launching.attention(
        host(query, dtype),
        host(key, dtype),
        host(value, dtype),
        None if mask is None else host(mask, mask_type),
        host(output, dtype),
        host(sums) if case.get("logsumexp", True) else None,
        scale=scale,
        causal=case.get("causal", False),
        lower_right=case.get("lower_right", False),
        precision="ieee",
        capability=(major, minor),
    )
    flash_forward[what.grid](**what.arguments, **what.constants, **what.options)
    exact, logs = reference(case, query, key, value, mask, scale, np.float64)
    rounded, _ = reference(case, query, key, value, mask, scale, np.float32)
    plain = decoded(encoded(rounded, dtype), dtype)
    found = decoded(output, dtype)
    return {
        "error": largest(found - exact),
        "plain": largest(plain - exact),
        "sums": largest(np.where(np.isinf(logs), 0, sums - logs))
        if case.get("logsumexp", True)
        else 0,
        "same_infinities": bool(np.array_equal(np.isinf(logs), np.isinf(sums))),
        "dead_rows": int(np.isinf(logs).sum()),
        "dead_output": largest(np.where(np.isinf(logs)[..., None], found, 0)),
        "scores_untouched": bool((sums == 77).all()),
    }


def largest(array: Array) -> float:
    return float(np.max(np.abs(array), initial=0)) if np.isfinite(array).all() else float("inf")


def reference(
    case: dict[str, Any],
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    scale: float,
    inner: Any,
) -> tuple[Array, Array]:
    """Return the plain formula and the logarithms of the sums; 16-bit weights are rounded as flash does."""
    dtype = case["dtype"]
    q, k, v = (decoded(each, dtype).astype(inner) for each in (query, key, value))
    heads = max(q.shape[1], k.shape[1], v.shape[1])
    q, k, v = (np.repeat(each, heads // each.shape[1], axis=1) for each in (q, k, v))
    scores = (q @ k.swapaxes(-1, -2)) * inner(scale)
    if mask is not None and mask.dtype == np.bool_:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + decoded(mask, case["mask_dtype"]).astype(inner)
    if case.get("causal"):
        rows, columns = scores.shape[-2:]
        shift = columns - rows if case.get("lower_right") else 0
        scores = np.where(np.tri(rows, columns, shift, dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isinf(top), 0, top)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if inner is np.float32 and dtype != "float32":
        weights = decoded(encoded(weights, dtype), dtype)
    with np.errstate(divide="ignore"):
        logs = (np.log(total) + top)[..., 0]
    return (weights @ v) / np.where(total == 0, 1, total), logs


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
        run = bmm if "left" in case else attention
        print(json.dumps(run(case)), flush=True)


if __name__ == "__main__":
    main()
