"""cuSPARSELt: NVIDIA's products of matrices of which two in four numbers are zero.

Finds:    every libcusparseLt, in wheels, conda, CUDA_HOME, customary folders and the loader's
          cache.
Usable:   cusparseLtInit accepts device 0.
Caveats:  it needs compute capability 8.0. torch calls version 0.8.1 "801".
Source:   cuSPARSELt documentation, cusparseLtGetProperty, cusparseLtInit.
"""

from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.device import first_device
from mlbackends.libraries.cuda.libraries import CudaLibrary, version_macros
from mlbackends.model.records import Answer, Library

LIBRARY = CudaLibrary(
    "cusparselt",
    ("libcusparseLt",),
    headers=("cusparseLt.h",),
    macros=version_macros("CUSPARSELT_VER"),
    homes=("CUSPARSELT_PATH", "CUSPARSELT_ROOT"),
    wheels=("cusparselt/lib",),  # before 0.7 the wheel was next to nvidia's folder
    property_function="cusparseLtGetProperty",
    namer="cusparseLtGetErrorName",
)
find, load = LIBRARY.find, LIBRARY.load

ARCH_MISMATCH = 4
#: The caller brings the handle, a struct of 512 bytes in 0.10; more does no harm.
HANDLE_BYTES = 8192


def use(opened: CDLL, library: Library) -> Answer:
    """Let it look at the device."""
    call = LIBRARY.calls(opened)
    first_device()
    handle = (ctypes.c_longdouble * (HANDLE_BYTES // ctypes.sizeof(ctypes.c_longdouble)))()
    if status := call.status("cusparseLtInit", ctypes.byref(handle)):
        code = "unsupported-hardware" if status == ARCH_MISMATCH else "call-failed"
        raise call.failed("cusparseLtInit", status, code)
    return Answer(library)
