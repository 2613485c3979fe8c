"""cuSPARSE: NVIDIA's sparse linear algebra.

Finds:    every libcusparse, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   it gathers two of four numbers into a sparse vector on device 0.
Caveats:  cuSPARSELt, for structured sparsity, is another library: see cusparselt.
Source:   cuSPARSE documentation, cusparseGetProperty, cusparseCreateSpVec, cusparseGather.
"""

from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.device import expect, first_device
from mlbackends.libraries.cuda.libraries import CudaLibrary, version_macros
from mlbackends.model.records import Answer, Library

LIBRARY = CudaLibrary(
    "cusparse",
    ("libcusparse",),
    headers=("cusparse.h",),
    macros=version_macros("CUSPARSE_VER"),
    property_function="cusparseGetProperty",
    namer="cusparseGetErrorName",
)
find, load = LIBRARY.find, LIBRARY.load

INDEX_32 = 2
FROM_ZERO = 0
REAL_32F = 0


def use(opened: CDLL, library: Library) -> Answer:
    """Gather numbers 1 and 3 of 10, 20, 30, 40 on the device."""
    call, device = LIBRARY.calls(opened), first_device()
    dense, values = device.floats(10, 20, 30, 40), device.floats(0, 0)
    four, two, places = ctypes.c_int64(4), ctypes.c_int64(2), device.integers(1, 3)
    kinds = (INDEX_32, FROM_ZERO, REAL_32F)
    long = call.create("cusparseCreateDnVec", four, dense, REAL_32F)
    short = call.create("cusparseCreateSpVec", four, two, places, values, *kinds)
    call("cusparseGather", call.create("cusparseCreate"), long, short)
    expect("a gather", device.read_floats(values, 2), (20, 40))
    return Answer(library)
