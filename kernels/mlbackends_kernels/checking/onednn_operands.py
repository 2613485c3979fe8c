"""Tensors of an attention problem for oneDNN: their memory, shapes and strides, masks made into numbers.

It imports the standard library alone, since other interpreters run it too, from Python 3.8 on.
"""

from __future__ import annotations

import ctypes
import os
from math import prod
from typing import Any, NamedTuple

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
_MINUS_INFINITY = {"float32": b"\0\0\x80\xff", "bfloat16": b"\x80\xff", "float16": b"\0\xfc"}
_ALIGNMENT = 64


class Room:
    """Memory of the C library, aligned as other libraries have it, given back with the object."""

    _c = ctypes.CDLL(None)

    def __init__(self, size: int) -> None:
        self.size, self.address = size, ctypes.c_void_p()
        wanted = ctypes.c_size_t(max(size, 1)), ctypes.c_size_t(_ALIGNMENT)
        if self._c.posix_memalign(ctypes.byref(self.address), wanted[1], wanted[0]):
            raise MemoryError(f"no {size} bytes are free")

    @property
    def content(self) -> memoryview:
        """Its bytes, as long as the room is there."""
        return memoryview((ctypes.c_char * self.size).from_address(self.address.value or 0)).cast(
            "B"
        )

    def __del__(self) -> None:
        self._c.free(self.address)


class Operand(NamedTuple):
    """A tensor in memory. element: its type. strides: in elements."""

    element: str
    shape: list[int]
    strides: list[int]
    room: Room

    def grouped(self, groups: int) -> Operand:
        """Return it with its heads as two dimensions, of which the first has so many, or one."""
        batch, heads, *rows = self.shape
        over_batch, over_heads, *within = self.strides
        first = min(groups, heads)
        each = heads // first
        strides = [over_batch, over_heads * each, over_heads, *within]
        return self._replace(shape=[batch, first, each, *rows], strides=strides)


def dense_strides(shape: list[int]) -> list[int]:
    """Return the strides of a contiguous tensor."""
    return [prod(shape[at + 1 :]) for at in range(len(shape))]


def dense(element: str, shape: list[int], content: Any = None) -> Operand:
    """Return a contiguous tensor, of zeros where no content is given."""
    room = Room(prod(shape) * BYTES[element])
    room.content[:] = bytes(room.size) if content is None else bytes(content)
    return Operand(element, shape, dense_strides(shape), room)


def read(path: str, spec: dict[str, Any]) -> Operand:
    """Return the tensor of a file, lying in memory as the record says."""
    room = Room(os.path.getsize(path))
    with open(path, "rb") as file:
        file.readinto(room.content)
    return Operand(spec["dtype"], list(spec["shape"]), list(spec["strides"]), room)


def mask_of(problem: dict[str, Any], files: dict[str, str]) -> Operand | None:
    """Return a problem's mask as numbers to add to the scores, of four dimensions; None without one.

    What a mask of bits or a causal one hides is -inf, in the type of the query.
    """
    query, key, mask = problem["query"], problem["key"], problem["mask"]
    element = query["dtype"]
    if problem["is_causal"]:
        rows, columns = query["shape"][-2], key["shape"][-2]
        offset = columns - rows if problem["lower_right"] else 0
        return dense(element, [1, 1, rows, columns], _staircase(element, rows, columns, offset))
    if not mask:
        return None
    missing = 4 - len(mask["shape"])
    shape, strides = [1] * missing + list(mask["shape"]), [0] * missing + list(mask["strides"])
    if mask["dtype"] != "bool":
        return read(files["mask"], {**mask, "shape": shape, "strides": strides})
    with open(files["mask"], "rb") as file:
        content = _hiding(element, file.read())
    room = Room(len(content))
    room.content[:] = content
    return Operand(element, shape, strides, room)


def _staircase(element: str, rows: int, columns: int, offset: int) -> bytes:
    """Return the numbers of a causal mask: row i shows the first i + 1 + offset keys."""
    hidden, shown = _MINUS_INFINITY[element], bytes(BYTES[element])
    seen = [min(max(row + 1 + offset, 0), columns) for row in range(rows)]
    return b"".join(shown * each + hidden * (columns - each) for each in seen)


def _hiding(element: str, bits: bytes) -> bytes:
    """Return 0 for each byte that is not 0, and -inf for each that is."""
    width = BYTES[element]
    numbers = bytearray(len(bits) * width)
    for at, byte in enumerate(_MINUS_INFINITY[element]):
        numbers[at::width] = bits.translate(bytes([byte, *[0] * 255]))
    return bytes(numbers)
