"""cuTENSOR: NVIDIA's contractions of tensors.

Finds:    every libcutensor, in wheels, conda, CUTENSOR_PATH, CUDA_HOME, customary folders and the
          loader's cache.
Usable:   cutensorCreate succeeds on device 0.
Caveats:  it needs cuBLASLt where the loader finds it.
Source:   cuTENSOR documentation, cutensorGetVersion, cutensorGetCudartVersion, cutensorCreate.
"""

from mlbackends.libraries.c_calls import CDLL, decimal_version
from mlbackends.libraries.cuda.device import first_device
from mlbackends.libraries.cuda.libraries import CudaLibrary, runtime_version, versioned
from mlbackends.model.records import Answer, Library

LIBRARY = CudaLibrary(
    "cutensor",
    ("libcutensor",),
    headers=("cutensor.h", "cutensor/types.h"),
    macros=("CUTENSOR_MAJOR", "CUTENSOR_MINOR", "CUTENSOR_PATCH"),
    homes=("CUTENSOR_PATH", "CUTENSOR_ROOT"),
    wheels=("cutensor/lib",),
    namer="cutensorGetErrorString",
)
find = LIBRARY.find


def load(opened: CDLL, library: Library) -> Answer:
    """Ask its version, and that of the CUDA runtime it was built with."""
    call = LIBRARY.calls(opened)
    version = decimal_version(call.number("cutensorGetVersion"), 10_000)
    runtime = call.number("cutensorGetCudartVersion")
    return versioned(library, version, cuda_version=runtime_version(runtime))


def use(opened: CDLL, library: Library) -> Answer:
    """Create a handle on the device."""
    call = LIBRARY.calls(opened)
    first_device(call.number("cutensorGetCudartVersion") // 1000)
    # cuTENSOR 1 had cutensorInit, which filled a struct that the caller brought.
    call.create("cutensorCreate")
    return Answer(library)
