"""cuSOLVER: NVIDIA's factorisations and eigenvalues of dense and sparse matrices.

Finds:    every libcusolver, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   the Cholesky factor of a matrix of 2 by 2 on device 0 is right.
Caveats:  it needs cuBLAS, cuBLASLt, cuSPARSE and nvJitLink where the loader finds them; opening all
          takes 280 MB. libcusolverMg, for several devices, is not looked at.
Source:   cuSOLVER documentation, cusolverGetProperty, cusolverDnSpotrf.
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

STATUSES = {
    1: "CUSOLVER_STATUS_NOT_INITIALIZED",
    2: "CUSOLVER_STATUS_ALLOC_FAILED",
    3: "CUSOLVER_STATUS_INVALID_VALUE",
    4: "CUSOLVER_STATUS_ARCH_MISMATCH",
    5: "CUSOLVER_STATUS_MAPPING_ERROR",
    6: "CUSOLVER_STATUS_EXECUTION_FAILED",
    7: "CUSOLVER_STATUS_INTERNAL_ERROR",
    8: "CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
    9: "CUSOLVER_STATUS_NOT_SUPPORTED",
    10: "CUSOLVER_STATUS_ZERO_PIVOT",
    11: "CUSOLVER_STATUS_INVALID_LICENSE",
}
LOWER = 0


def find(host: Host) -> Finding:
    """Look for every libcusolver."""
    return find_libraries(
        host,
        "cusolver",
        *("libcusolver", "cusolver64_12", "cusolver64_11"),
        headers=("cusolver_common.h",),
        macros=tuple(f"CUSOLVER_VER_{part}" for part in ("MAJOR", "MINOR", "PATCH", "BUILD")),
    )


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask the version."""
    from mlbackends.libraries.cuda.calls import Calls, property_version

    call = Calls(opened, names=STATUSES)
    return answered(library, property_version(call, "cusolverGetProperty"))


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Factor [[4, 2], [2, 5]] on the device; the factor is [[2, 0], [1, 2]]."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls, expect, first_device

    call = Calls(opened, names=STATUSES)
    device = first_device()
    matrix, told = device.floats(4, 2, 2, 5), device.integers(0)
    handle, size = ctypes.c_void_p(), ctypes.c_int()
    two, lower = ctypes.c_int(2), ctypes.c_int(LOWER)
    call("cusolverDnCreate", ctypes.byref(handle))
    operand = (handle, lower, two, matrix, two)
    call("cusolverDnSpotrf_bufferSize", *operand, ctypes.byref(size))
    workspace = device.memory(size.value * ctypes.sizeof(ctypes.c_float))
    call("cusolverDnSpotrf", *operand, workspace, size, told)
    factor = device.read_floats(matrix, 4)
    # The third number lies above the diagonal, and is left as it was.
    expect("a Cholesky factor", (factor[0], factor[1], factor[3]), (2, 1, 2))
    return Answer(library)
