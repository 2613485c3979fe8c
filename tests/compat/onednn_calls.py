"""A few primitives of oneDNN through its C functions: products, a convolution, what comes around them.

Source: oneDNN developer guide, C API of version 3; of version 2, products and reorders alone.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_F32 = 3
_FORWARD_INFERENCE = 96
_CONVOLUTION_DIRECT = 1
_RELU = 0x20
_SOFTMAX = 0x30000
_ANY_FORMAT, _AB, _NCHW = 1, 3, 5
_SOURCE, _DESTINATION, _WEIGHTS = 1, 17, 33
_QUERIES = {_SOURCE: 129, _WEIGHTS: 131, _DESTINATION: 133}
_MOST_DIMENSIONS = 12
_TIMES = 5


class Failed(RuntimeError):
    """A function of oneDNN returned an error."""


class _Operand(ctypes.Structure):
    _fields_ = (("which", ctypes.c_int), ("memory", ctypes.c_void_p))


class OneDnn:
    """The functions of one copy, and an engine and a stream on the processor."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self.is_old = not hasattr(self.library, "dnnl_matmul_primitive_desc_create")
        self.engine = self.created("dnnl_engine_create", 1, ctypes.c_size_t(0))
        self.stream = self.created("dnnl_stream_create", self.engine, ctypes.c_uint(1))
        self._buffers: list[object] = []  # memory lives as long as this

    def call(self, function: str, *arguments: object) -> None:
        """Call a function; raises Failed with its status."""
        status = getattr(self.library, function)(*arguments)
        if status:
            raise Failed(f"{function} returned {status}")

    def created(self, function: str, *arguments: object) -> ctypes.c_void_p:
        """Return what a function makes."""
        handle = ctypes.c_void_p()
        self.call(function, ctypes.byref(handle), *arguments)
        return handle

    def planned(self, primitive: str, *arguments: object) -> ctypes.c_void_p:
        """Return the description of a primitive, as version 3 makes it."""
        return self.created(f"dnnl_{primitive}_primitive_desc_create", self.engine, *arguments)

    def described(self, shape: Sequence[int], layout: int | Sequence[int]) -> object:
        """Describe numbers in memory. layout: a format, or the strides."""
        kind = "tag" if isinstance(layout, int) else "strides"
        last = layout if isinstance(layout, int) else _dimensions(layout)
        rest = (len(shape), _dimensions(shape), _F32, last)
        if not self.is_old:
            return self.created(f"dnnl_memory_desc_create_with_{kind}", *rest)
        structure = ctypes.create_string_buffer(16384)
        self.call(f"dnnl_memory_desc_init_by_{kind}", structure, *rest)
        return structure

    def memory(self, description: object) -> ctypes.c_void_p:
        """Return memory of oneDNN's own, filled with zeros: numbers that take unlike long are none."""
        size = self.library.dnnl_memory_desc_get_size(description)
        buffer = ctypes.create_string_buffer(size + 64)
        self._buffers.append(buffer)
        place = ctypes.cast(buffer, ctypes.c_void_p)
        return self.created("dnnl_memory_create", description, self.engine, place)

    def run(self, plan: ctypes.c_void_p, operands: dict[int, ctypes.c_void_p]) -> None:
        """Run what is planned some times."""
        primitive = self.created("dnnl_primitive_create", plan)
        passed = (_Operand * len(operands))(*map(_Operand, operands, operands.values()))
        for _ in range(_TIMES):
            self.call("dnnl_primitive_execute", primitive, self.stream, len(operands), passed)
        self.call("dnnl_stream_wait", self.stream)


def _dimensions(numbers: Sequence[int]) -> object:
    return (ctypes.c_int64 * _MOST_DIMENSIONS)(*numbers)


def main(path: str) -> None:
    """Run all of them. Raises OSError where the file cannot be loaded, Failed where a call fails."""
    dnn = OneDnn(path)
    for size in (64, 256, 512):
        plain = dnn.described((size, size), _AB)
        if dnn.is_old:
            how = ctypes.create_string_buffer(65536)
            dnn.call("dnnl_matmul_desc_init", how, plain, plain, None, plain)
            plan = dnn.created("dnnl_primitive_desc_create", how, None, dnn.engine, None)
        else:
            plan = dnn.planned("matmul", plain, plain, None, plain, None)
        dnn.run(plan, {operand: dnn.memory(plain) for operand in (_SOURCE, _WEIGHTS, _DESTINATION)})
    if not dnn.is_old:
        _convolution(dnn)
        rows = dnn.described((256, 1000), _AB)
        plan = dnn.planned("softmax_forward", _FORWARD_INFERENCE, _SOFTMAX, rows, rows, 1, None)
        dnn.run(plan, {_SOURCE: dnn.memory(rows), _DESTINATION: dnn.memory(rows)})
    transposed = dnn.described((512, 512), (1, 512))
    _reorder(dnn, dnn.described((512, 512), _AB), transposed, dnn.memory(transposed))


def _convolution(dnn: OneDnn) -> None:
    """Convolve in the format that oneDNN likes best, with the reorders that this takes; then relu."""
    shapes = {_SOURCE: (8, 16, 56, 56), _WEIGHTS: (32, 16, 3, 3), _DESTINATION: (8, 32, 56, 56)}
    source, weights, destination = (dnn.described(shape, _ANY_FORMAT) for shape in shapes.values())
    ones, zeros = _dimensions((1, 1)), _dimensions((0, 0))
    plan = dnn.planned(
        "convolution_forward",
        *(_FORWARD_INFERENCE, _CONVOLUTION_DIRECT, source, weights, None, destination),
        *(ones, zeros, ones, ones, None),
    )
    query = dnn.library.dnnl_primitive_desc_query_md
    query.restype = ctypes.c_void_p
    chosen = {operand: ctypes.c_void_p(query(plan, _QUERIES[operand], 0)) for operand in shapes}
    memories = {operand: dnn.memory(shape) for operand, shape in chosen.items()}
    for operand in (_SOURCE, _WEIGHTS):
        plain = dnn.described(shapes[operand], _NCHW)
        _reorder(dnn, plain, chosen[operand], memories[operand])
    dnn.run(plan, memories)
    result = chosen[_DESTINATION]
    slope = ctypes.c_float(0)
    relu = dnn.planned("eltwise_forward", _FORWARD_INFERENCE, _RELU, result, result, slope, slope, None)
    dnn.run(relu, dict.fromkeys((_SOURCE, _DESTINATION), memories[_DESTINATION]))


def _reorder(dnn: OneDnn, source: object, into: object, memory: ctypes.c_void_p) -> None:
    arguments = (source, dnn.engine, into, dnn.engine, None)
    plan = dnn.created("dnnl_reorder_primitive_desc_create", *arguments)
    dnn.run(plan, {_SOURCE: dnn.memory(source), _DESTINATION: memory})


if __name__ == "__main__":
    main(sys.argv[1])
