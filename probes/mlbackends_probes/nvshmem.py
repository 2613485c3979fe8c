"""NVSHMEM: NVIDIA's memory shared by GPUs of several processes and nodes.

Finds:    every libnvshmem_host, in wheels, conda, NVSHMEM_HOME, CUDA_HOME, customary folders and
          the loader's cache.
Usable:   nothing is claimed: it needs a job of several processes.
Caveats:  releases before 3 do not report their version; then the header's or the package's is given.
Source:   NVSHMEM documentation, nvshmemx_vendor_get_version_info, environment variables.
"""

from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.libraries import CudaLibrary, versioned
from mlbackends.model.records import Answer, Library

LIBRARY = CudaLibrary(
    "nvshmem",
    ("libnvshmem_host",),
    headers=("non_abi/nvshmem_version.h", "common/nvshmem_version.h"),
    macros=tuple(f"NVSHMEM_VENDOR_{part}_VERSION" for part in ("MAJOR", "MINOR", "PATCH")),
    homes=("NVSHMEM_HOME", "NVSHMEM_PREFIX"),
)
find = LIBRARY.find


def load(opened: CDLL, library: Library) -> Answer:
    """Ask the version."""
    if not hasattr(opened, "nvshmemx_vendor_get_version_info"):
        return Answer(library)
    numbers = [ctypes.c_int(-1) for _ in range(3)]
    opened.nvshmemx_vendor_get_version_info.restype = None
    opened.nvshmemx_vendor_get_version_info(*map(ctypes.byref, numbers))
    return versioned(library, ".".join(str(number.value) for number in numbers))
