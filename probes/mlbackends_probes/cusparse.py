"""cuSPARSE: NVIDIA's sparse linear algebra.

Finds:    every libcusparse, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   it gathers two of four numbers into a sparse vector on device 0.
Caveats:  cuSPARSELt, for structured sparsity, is another library: see cusparselt.
Source:   cuSPARSE documentation, cusparseGetProperty, cusparseCreateSpVec, cusparseGather.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.libraries.cuda.libraries import COPY_FACTS, answered, find_libraries
from mlbackends.model.records import Answer, Finding, Library

if TYPE_CHECKING:
    import ctypes

    from mlbackends.host.host import Host

GROUP = "library"
FACTS = COPY_FACTS

INDEX_32 = 2
FROM_ZERO = 0
REAL_32F = 0


def find(host: Host) -> Finding:
    """Look for every libcusparse."""
    return find_libraries(
        host,
        "cusparse",
        *("libcusparse", "cusparse64_12", "cusparse64_11"),
        headers=("cusparse.h",),
        macros=tuple(f"CUSPARSE_VER_{part}" for part in ("MAJOR", "MINOR", "PATCH", "BUILD")),
    )


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask the version; unlike cusparseGetVersion this needs no handle."""
    from mlbackends.libraries.cuda.calls import Calls, property_version

    call = Calls(opened, "cusparseGetErrorName")
    return answered(library, property_version(call, "cusparseGetProperty"))


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Gather numbers 1 and 3 of 10, 20, 30, 40 on the device."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls, expect, first_device

    call = Calls(opened, "cusparseGetErrorName")
    device = first_device()
    dense, values = device.floats(10, 20, 30, 40), device.floats(0, 0)
    places = device.integers(1, 3)
    handle, long, short = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    four, two, kind = ctypes.c_int64(4), ctypes.c_int64(2), ctypes.c_int(REAL_32F)
    call("cusparseCreate", ctypes.byref(handle))
    call("cusparseCreateDnVec", ctypes.byref(long), four, dense, kind)
    index = (ctypes.c_int(INDEX_32), ctypes.c_int(FROM_ZERO))
    call("cusparseCreateSpVec", ctypes.byref(short), four, two, places, values, *index, kind)
    call("cusparseGather", handle, long, short)
    expect("a gather", device.read_floats(values, 2), (20, 40))
    return Answer(library)
