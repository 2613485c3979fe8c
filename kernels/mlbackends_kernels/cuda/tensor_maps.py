"""Tensor maps: what the bulk copies (TMA) of Hopper and later chips read tensors by.

The driver is called by ctypes: it wants a map at a multiple of 64 bytes, and that of cuda.bindings 13.5
lies at one only by chance.

Source: CUDA Driver API, cuTensorMapEncodeTiled.
"""

import ctypes
from functools import cache
from typing import Any, NamedTuple

from mlbackends_kernels.cuda.devices import call, driver
from mlbackends_kernels.cuda.errors import CudaError

_ALIGNMENT = 64
#: Of a map.
WORDS = 16
#: The version of CUDA that has the function.
_SINCE = 12000
_TYPES = {"float16": 6, "bfloat16": 9}
_SWIZZLE_128B, _PROMOTION_256B = 3, 3


class Map(NamedTuple):
    """A tensor and the box that one copy takes of it, swizzled by 128 bytes; zeros are outside the tensor.

    dtype: float16 or bfloat16. sizes and box: in elements, the fastest dimension first. strides: in
    bytes, of the others.
    """

    pointer: int
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


def encoded(each: Map) -> tuple[int, ...]:
    """Return a tensor map as the driver encodes it: 16 words. Raises CudaError where it refuses."""
    rank = len(each.sizes)
    room = ctypes.create_string_buffer(_ALIGNMENT + 8 * WORDS)
    at = -(-ctypes.addressof(room) // _ALIGNMENT) * _ALIGNMENT
    boxes = ctypes.c_uint32 * rank
    status = _encoder()(
        at,
        _TYPES[each.dtype],
        rank,
        each.pointer,
        (ctypes.c_uint64 * rank)(*each.sizes),
        (ctypes.c_uint64 * rank)(*each.strides),
        boxes(*each.box),
        boxes(*[1] * rank),
        *(0, _SWIZZLE_128B, _PROMOTION_256B, 0),
    )
    if status:
        raise CudaError("cuTensorMapEncodeTiled", status, driver().CUresult(status).name)
    return tuple((ctypes.c_uint64 * WORDS).from_address(at))


@cache
def _encoder() -> Any:
    """Return the driver's function."""
    address, _ = call("cuGetProcAddress", b"cuTensorMapEncodeTiled", _SINCE, 0)
    integer, pointer = ctypes.c_int, ctypes.c_void_p
    kinds = [pointer, integer, ctypes.c_uint32, *[pointer] * 5, *[integer] * 4]
    return ctypes.CFUNCTYPE(integer, *kinds)(int(address))
