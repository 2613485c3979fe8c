"""cuTENSOR: NVIDIA's contractions of tensors.

Finds:    every libcutensor, in wheels, conda, CUTENSOR_PATH, CUDA_HOME, customary folders and the
          loader's cache.
Usable:   cutensorCreate succeeds on device 0.
Caveats:  it needs cuBLASLt where the loader finds it.
Source:   cuTENSOR documentation, cutensorGetVersion, cutensorGetCudartVersion, cutensorCreate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.libraries.cuda.libraries import COPY_FACTS, answered, find_libraries
from mlbackends.model.records import Answer, Fact, Finding, Library

if TYPE_CHECKING:
    import ctypes

    from mlbackends.host.host import Host

GROUP = "library"
FACTS = (*COPY_FACTS, Fact("cuda_version", str, "The CUDA runtime that it was built with."))


def find(host: Host) -> Finding:
    """Look for every libcutensor."""
    return find_libraries(
        host,
        "cutensor",
        *("libcutensor", "cutensor"),
        headers=("cutensor.h", "cutensor/types.h"),
        macros=("CUTENSOR_MAJOR", "CUTENSOR_MINOR", "CUTENSOR_PATCH"),
        homes=("CUTENSOR_PATH", "CUTENSOR_ROOT"),
        wheels=("cutensor/lib",),
    )


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask its version, and that of the CUDA runtime it was built with."""
    import ctypes

    opened.cutensorGetVersion.restype = ctypes.c_size_t
    opened.cutensorGetCudartVersion.restype = ctypes.c_size_t
    number = int(opened.cutensorGetVersion())
    runtime = int(opened.cutensorGetCudartVersion())
    version = f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    return answered(library, version, cuda_version=f"{runtime // 1000}.{runtime % 1000 // 10}")


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Create a handle on the device."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls, first_device

    device_needed = int(opened.cutensorGetCudartVersion()) // 1000
    first_device(device_needed)
    handle = ctypes.c_void_p()
    call = Calls(opened, "cutensorGetErrorString")
    # cuTENSOR 1 had cutensorInit, which filled a struct that the caller brought.
    call("cutensorCreate", ctypes.byref(handle))
    return Answer(library)
