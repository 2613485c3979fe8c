"""Tensor maps: every field as the driver is asked for it, through cuda-python to a stand-in."""

from __future__ import annotations

import struct
from typing import Any

PROGRAM = """
from mlbackends_kernels.cuda.tensor_maps import Map, encoded
def words(*fields): return [f"{word:x}" for word in encoded(Map(*fields))]
fields = 0x7000, "bfloat16", (96, 70, 3, 2), (576, 192, 40320), (64, 128, 1, 1)
tell(words(*fields))
tell(error_of(lambda: encoded(Map(0x7008, *fields[1:]))))
tell(error_of(lambda: encoded(Map(0x7000, "float16", (96, 70), (24,), (64, 8)))))
from cuda.bindings import driver
kinds = driver.CUtensorMapDataType, driver.CUtensorMapSwizzle, driver.CUtensorMapL2promotion
names = "DATA_TYPE_FLOAT16", "DATA_TYPE_BFLOAT16", "SWIZZLE_128B", "L2_PROMOTION_L2_256B"
tell([int(getattr(kinds[k], f"CU_TENSOR_MAP_{name}")) for k, name in zip((0, 0, 1, 2), names)])
"""

REPEATED = """
import ctypes
from mlbackends_kernels.cuda.launching import Kernel, PreparedLaunches
from mlbackends_kernels.cuda.tensor_maps import Map
class Argument(ctypes.Structure):
    _fields_ = ("map", ctypes.c_uint64 * 16), ("at", ctypes.c_void_p)
kernel = Kernel(bytes(64), "nothing", (1, 1, 1))
each = Map(0, "float16", (8, 8), (16,), (8, 8))
launch = PreparedLaunches([(kernel, (1, 1, 1))], 0, Argument(), [(0, 128)], [(1, 0, each)])
for address in (0x7000, 0x7000, 0x8000, 0x7000):
    launch(1, [0x10, address])
"""


def test_a_map_is_encoded_with_every_field(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(PROGRAM)
    words, unaligned, uneven, constants = told.values
    packed = struct.pack("=16Q", *(int(word, 16) for word in words))
    address, *rest = struct.unpack("=Q4Q5I5H5B53x", packed)
    assert address == 0x7000
    assert rest[:4] == [576, 192, 40320, 0]
    assert rest[4:9] == [96, 70, 3, 2, 0]
    assert rest[9:14] == [64, 128, 1, 1, 0]
    rank, swizzle, kind, fill, interleave = rest[14:]
    assert (rank, swizzle, kind, fill, interleave) == (4, 3, 9, 0, 0)  # 128 bytes, bfloat16, zeros
    assert constants == [6, 9, 3, 3]
    for error in (unaligned, uneven):
        assert error[0] == "CudaError" and "cuTensorMapEncodeTiled" in error[1]


def test_launches_that_repeat_encode_each_address_once(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(REPEATED, FAKE_KERNELS="/nothing")
    assert told.lines("cuTensorMapEncodeTiled") == 2 * ["cuTensorMapEncodeTiled 6 2"]
    assert len(told.lines("launch nothing")) == 4
