"""cuSOLVER: NVIDIA's factorisations and eigenvalues of dense and sparse matrices.

Finds:    every libcusolver, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   the Cholesky factor of a matrix of 2 by 2 on device 0 is right.
Caveats:  it needs cuBLAS, cuBLASLt, cuSPARSE and nvJitLink where the loader finds them; opening all
          takes 280 MB. libcusolverMg, for several devices, is not looked at.
Source:   cuSOLVER documentation, cusolverGetProperty, cusolverDnSpotrf.
"""

from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.device import expect, first_device
from mlbackends.libraries.cuda.libraries import CudaLibrary, version_macros
from mlbackends.model.records import Answer, Library

LIBRARY = CudaLibrary(
    "cusolver",
    ("libcusolver",),
    headers=("cusolver_common.h",),
    macros=version_macros("CUSOLVER_VER"),
    property_function="cusolverGetProperty",
)
find, load = LIBRARY.find, LIBRARY.load

LOWER = 0


def use(opened: CDLL, library: Library) -> Answer:
    """Factor [[4, 2], [2, 5]] on the device; the factor is [[2, 0], [1, 2]]."""
    call, device = LIBRARY.calls(opened), first_device()
    matrix, info, size = device.floats(4, 2, 2, 5), device.integers(0), ctypes.c_int()
    operand = (call.create("cusolverDnCreate"), LOWER, 2, matrix, 2)
    call("cusolverDnSpotrf_bufferSize", *operand, ctypes.byref(size))
    workspace = device.memory(size.value * ctypes.sizeof(ctypes.c_float))
    call("cusolverDnSpotrf", *operand, workspace, size, info)
    factor = device.read_floats(matrix, 4)
    # The third number is above the diagonal, and is not changed.
    expect("a Cholesky factor", (factor[0], factor[1], factor[3]), (2, 1, 2))
    return Answer(library)
