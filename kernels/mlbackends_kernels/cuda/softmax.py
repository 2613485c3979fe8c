"""The formula of attention on a device: two products, and our masked softmax between them.

The products are `products.multiply`, so they obey every switch of `cuda.matmul`; the softmax is a kernel
that NVRTC compiles at first use. It has not run on a GPU yet.
"""

import ctypes
import math
from pathlib import Path
from typing import TYPE_CHECKING

from mlbackends_kernels.cuda.device_array import DeviceArray, empty_like, product
from mlbackends_kernels.cuda.devices import on_device
from mlbackends_kernels.cuda.launching import from_source
from mlbackends_kernels.cuda.products import multiply, precision_of

if TYPE_CHECKING:
    from mlbackends.model.problem import AttentionProblem

_MASK_KINDS = {"bool": 1, "float16": 2, "bfloat16": 3, "float32": 4, "float64": 5}
_SOURCE = Path(__file__).with_name("softmax.cu")
_THREADS, _LANES = 256, 32


class _Call(ctypes.Structure):
    """`Call` of softmax.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("scores", "weights", "logarithms", "mask")),
        *((name, ctypes.c_int64) for name in ("rows", "heads", "length", "keys")),
        *((f"mask_{name}", ctypes.c_int64) for name in ("batch", "head", "row", "column")),
        ("shift", ctypes.c_int64),
        ("scale", ctypes.c_double),
        *((name, ctypes.c_int32) for name in ("causal", "mask_kind")),
    )


def attend(
    problem: "AttentionProblem",
    query: DeviceArray,
    key: DeviceArray,
    value: DeviceArray,
    mask: DeviceArray | None = None,
) -> tuple[DeviceArray, DeviceArray]:
    """Return attention (B, H, L, Ev) and each row's logarithm (B, H, L), of float32 or float64.

    Shapes: query (B, H, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev); B and H may be 1 where the
    others' are not; mask broadcasts to (B, H, L, S). All lie on one device and stream. The scores of
    all rows are held at once. Raises CudaOutOfMemory where they do not fit.
    """
    batch, heads = problem.leading_shape
    rows, keys, wide = problem.query_length, problem.key_length, problem.head_dim
    shared = key.shape[1] if problem.enable_gqa and key.shape[1] != 1 else heads
    precision = precision_of(problem.dtype)._replace(accumulate_in_half=False)
    with on_device(query.device):
        b, h, row, column = query.steps((batch, heads, rows, wide))
        group = heads // max(shared, 1)
        split = query.viewed((batch, shared, group, rows, wide), (b, h * group, h, row, column))
        beside = _beside(key, batch, shared)
        turned = beside.permuted((0, 1, 2, 4, 3))
        inner = "float64" if problem.dtype == "float64" else "float32"
        scores = multiply(split, turned, (batch, shared, group, rows, keys), precision, inner)
        weights, logarithms = _softmax(problem, scores.viewed((batch, heads, rows, keys)), mask)
        weights = weights.viewed((batch, shared, group, rows, keys))
        shape = (batch, shared, group, rows, problem.value_dim)
        out = multiply(weights, _beside(value, batch, shared), shape, precision)
    return out.viewed(problem.output_shape), logarithms


def _beside(array: DeviceArray, batch: int, heads: int) -> DeviceArray:
    """Return key or value as (B, Hkv, 1, S, width), with what is broadcast repeated by strides of 0."""
    shape = (batch, heads, *array.shape[2:])
    b, h, *rest = array.steps(shape)
    return array.viewed((batch, heads, 1, *array.shape[2:]), (b, h, 0, *rest))


def _softmax(
    problem: "AttentionProblem", scores: DeviceArray, mask: DeviceArray | None
) -> tuple[DeviceArray, DeviceArray]:
    heads, length, keys = scores.shape[1:]
    is_same = scores.dtype == problem.dtype
    weights = scores if is_same else empty_like(scores, dtype=problem.dtype)
    logarithms = empty_like(scores, scores.shape[:3])
    rows = product(scores.shape[:3])
    call = _Call(
        scores=scores.pointer,
        weights=weights.pointer,
        logarithms=logarithms.pointer,
        mask=mask.pointer if mask else None,
        rows=rows,
        heads=heads,
        length=length,
        keys=keys,
        shift=keys - length if problem.lower_right else 0,
        scale=(problem.head_dim or 1) ** -0.5 if problem.scale is None else problem.scale,
        causal=problem.is_causal,
        mask_kind=_MASK_KINDS[mask.dtype] if mask else 0,
    )
    if mask is not None:
        call.mask_batch, call.mask_head, call.mask_row, call.mask_column = mask.steps(scores.shape)
    if rows:
        block = (_THREADS, 1, 1)
        kernel = from_source(_SOURCE, f"softmax_{problem.dtype}", scores.device, block)
        grid = (math.ceil(rows * _LANES / _THREADS), 1, 1)
        kernel(scores.device, scores.stream, grid, call)
    return weights, logarithms
