"""The formula of attention on a device, and its gradients: products, and our masked softmax between them.

The products are `products.multiply`, so they obey every switch of `cuda.matmul`; the softmax is a kernel
that NVRTC compiles at first use. It has not run on a GPU yet.
"""

import ctypes
import math
from pathlib import Path
from typing import TYPE_CHECKING

from mlbackends_kernels.cuda.copies import packed
from mlbackends_kernels.cuda.device_array import DeviceArray, empty_like, product
from mlbackends_kernels.cuda.devices import on_device
from mlbackends_kernels.cuda.launching import from_source
from mlbackends_kernels.cuda.products import Precision, multiply, precision_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlbackends.model.problem import AttentionProblem

_MASK_KINDS = {"bool": 1, "float16": 2, "bfloat16": 3, "float32": 4, "float64": 5}
_SOURCE = Path(__file__).with_name("softmax.cu")
_THREADS, _LANES = 256, 32


class _Call(ctypes.Structure):
    """`Call` of softmax.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("scores", "weights", "logarithms", "mask")),
        *((name, ctypes.c_void_p) for name in ("products", "out", "grad_out", "slopes")),
        *((name, ctypes.c_int64) for name in ("rows", "heads", "length", "keys")),
        *((f"mask_{name}", ctypes.c_int64) for name in ("batch", "head", "row", "column")),
        ("shift", ctypes.c_int64),
        ("scale", ctypes.c_double),
        *(
            (name, ctypes.c_int32)
            for name in ("causal", "mask_kind", "value_dim", "keeps_products")
        ),
    )


class _Sum(ctypes.Structure):
    """`Sum` of softmax.cu."""

    _fields_ = (
        ("of", ctypes.c_void_p),
        ("to", ctypes.c_void_p),
        ("own", ctypes.c_int64 * 4),
        ("shared", ctypes.c_int64 * 4),
        ("is_wide", ctypes.c_int32),
        ("lanes", ctypes.c_int32),
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
    with on_device(query.device):
        groups, precision = _Groups(problem, key), _precision(problem)
        scores = groups.across(query, key, precision)
        is_same = scores.dtype == problem.dtype
        weights = scores if is_same else empty_like(scores, dtype=problem.dtype)
        logarithms = empty_like(scores, problem.output_shape[:-1])
        call = _call(problem, scores, mask)
        call.weights, call.logarithms = weights.pointer, logarithms.pointer
        _queue(f"softmax_{problem.dtype}", scores, call.rows * _LANES, call)
        out = groups.along(weights, value, precision)
    return out, logarithms


def differentiate(
    problem: "AttentionProblem", arrays: "Mapping[str, DeviceArray]"
) -> "tuple[DeviceArray | None, ...]":
    """Return the gradients of query, key and value, and of the mask where it requires one, else None.

    arrays: what `attend` takes and, as "out" and "logsumexp", returns, and grad_out, all by name. What is
    shared by heads or batches is summed within one product, a mask's gradient in the order of batch, head,
    row and key.
    """
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    mask = arrays.get("mask")
    with on_device(query.device):
        groups, precision = _Groups(problem, key), _precision(problem)
        out, logarithms, grad_out = (
            packed(arrays[name]) for name in ("out", "logsumexp", "grad_out")
        )
        scores = groups.across(query, key, precision)
        products = groups.across(grad_out, value, precision)
        wants_mask = problem.mask is not None and problem.mask.requires_grad
        is_same = scores.dtype == problem.dtype
        weights = scores if is_same else empty_like(scores, dtype=problem.dtype)
        in_place = is_same and not wants_mask
        slopes = products if in_place else empty_like(products, dtype=problem.dtype)
        call = _call(problem, scores, mask)
        call.weights, call.logarithms = weights.pointer, logarithms.pointer
        call.products, call.slopes = products.pointer, slopes.pointer
        call.out, call.grad_out = out.pointer, grad_out.pointer
        call.value_dim, call.keeps_products = problem.value_dim, wants_mask
        _queue(f"differentiate_{problem.dtype}", scores, call.rows * _LANES, call)
        of_mask = _summed(products, mask) if mask is not None and wants_mask else None
        return (
            groups.of_query(slopes, query, key, precision),
            groups.of_keys(slopes, query, key, precision),
            groups.of_keys(weights, grad_out, value, precision),
            of_mask,
        )


def _precision(problem: "AttentionProblem") -> Precision:
    return precision_of(problem.dtype)._replace(accumulate_in_half=False)


class _Groups:
    """Products of a problem's tensors, where heads of query are groups that share heads of key and value."""

    def __init__(self, problem: "AttentionProblem", key: DeviceArray) -> None:
        self.batch, self.heads = problem.leading_shape
        is_grouped = problem.enable_gqa and key.shape[1] != 1
        self.shared = key.shape[1] if is_grouped else self.heads
        self.group = self.heads // max(self.shared, 1)
        self.inner = "float64" if problem.dtype == "float64" else "float32"

    def across(self, rows: DeviceArray, keys: DeviceArray, precision: Precision) -> DeviceArray:
        """Return the product of each row (B, H, L, width) and each key (B, Hkv, S, width): (B, H, L, S)."""
        length, count = rows.shape[2], keys.shape[2]
        right = self._beside(keys).permuted((0, 1, 2, 4, 3))
        shape = (self.batch, self.shared, self.group, length, count)
        found = multiply(self._split(rows), right, shape, precision, self.inner)
        return found.viewed((self.batch, self.heads, length, count))

    def along(self, weights: DeviceArray, keys: DeviceArray, precision: Precision) -> DeviceArray:
        """Return keys (B, Hkv, S, width) summed by weights (B, H, L, S): (B, H, L, width)."""
        length, width = weights.shape[2], keys.shape[3]
        shape = (self.batch, self.shared, self.group, length, width)
        found = multiply(self._split(weights), self._beside(keys), shape, precision)
        return found.viewed((self.batch, self.heads, length, width))

    def of_query(
        self, slopes: DeviceArray, query: DeviceArray, key: DeviceArray, precision: Precision
    ) -> DeviceArray:
        """Return keys summed by slopes (B, H, L, S), and over the batches and heads that share the query."""
        if query.shape[:2] == (self.batch, self.heads):
            return self.along(slopes, key, precision)
        own, beside = query.shape[:2], self._beside(key)
        shape = (self.batch, self.shared, self.group, *key.shape[2:])
        each = packed(beside.viewed(shape, (*beside.strides[:2], 0, *beside.strides[3:])))
        right = self._gathered(each.viewed((self.batch, self.heads, *key.shape[2:])), own)
        left = self._gathered(slopes.permuted((0, 1, 3, 2)), own).permuted((0, 1, 3, 2))
        return multiply(left, right, query.shape, precision)

    def of_keys(
        self, weights: DeviceArray, rows: DeviceArray, keys: DeviceArray, precision: Precision
    ) -> DeviceArray:
        """Return rows summed by weights (B, H, L, S) for each key, and over what shares it."""
        own = keys.shape[:2]
        steps = rows.steps((self.batch, self.heads, *rows.shape[2:]))
        each = rows.viewed((self.batch, self.heads, *rows.shape[2:]), steps)
        left = self._gathered(weights, own).permuted((0, 1, 3, 2))
        return multiply(left, self._gathered(each, own), keys.shape, precision)

    @staticmethod
    def _gathered(array: DeviceArray, own: tuple[int, ...]) -> DeviceArray:
        """Return (B, H, rows, width) with the rows of what shares a batch and head of `own` in line."""
        (batch, heads, rows, width), (b, h, row, column) = array.shape, array.strides
        batches, group = batch // max(own[0], 1), heads // max(own[1], 1)
        shape = (own[0], own[1], batches, group, rows, width)
        lined = array.viewed(shape, (b * batches, h * group, b, h, row, column))
        return packed(lined).viewed((*own, batches * group * rows, width))

    def _split(self, rows: DeviceArray) -> DeviceArray:
        """Return (B, H, L, width) as (B, Hkv, group, L, width)."""
        b, h, row, column = rows.steps((self.batch, self.heads, *rows.shape[2:]))
        shape = (self.batch, self.shared, self.group, *rows.shape[2:])
        return rows.viewed(shape, (b, h * self.group, h, row, column))

    def _beside(self, keys: DeviceArray) -> DeviceArray:
        """Return key or value as (B, Hkv, 1, S, width), with what is broadcast repeated by strides of 0."""
        shape = (self.batch, self.shared, *keys.shape[2:])
        b, h, *rest = keys.steps(shape)
        return keys.viewed((*shape[:2], 1, *shape[2:]), (b, h, 0, *rest))


def _call(problem: "AttentionProblem", scores: DeviceArray, mask: DeviceArray | None) -> _Call:
    _, heads, length, keys = scores.shape
    call = _Call(
        scores=scores.pointer,
        mask=mask.pointer if mask else None,
        rows=product(scores.shape[:3]),
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
    return call


def _summed(slopes: DeviceArray, mask: DeviceArray) -> DeviceArray:
    """Return slopes (B, H, L, S) summed to the shape of a mask that broadcasts to theirs."""
    result = empty_like(mask, mask.shape)
    own = (*[1] * (4 - mask.ndim), *mask.shape)
    count = product(own)
    pairs = zip(slopes.shape, own, strict=True)
    shared = [whole // max(part, 1) for whole, part in pairs]
    lanes = 1 if count >= product(shared) else _LANES
    call = _Sum(
        of=slopes.pointer,
        to=result.pointer,
        own=own,
        shared=tuple(shared),
        is_wide=slopes.dtype == "float64",
        lanes=lanes,
    )
    _queue(f"sum_{mask.dtype}", slopes, count * lanes, call)
    return result


def _queue(name: str, beside: DeviceArray, threads: int, call: ctypes.Structure) -> None:
    if threads:
        kernel = from_source(_SOURCE, name, beside.device, (_THREADS, 1, 1))
        grid = (math.ceil(threads / _THREADS), 1, 1)
        kernel(beside.device, beside.stream, grid, call)
