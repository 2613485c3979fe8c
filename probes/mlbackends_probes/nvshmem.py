"""NVSHMEM: NVIDIA's memory shared by GPUs of several processes and nodes.

Finds:    every libnvshmem_host, in wheels, conda, NVSHMEM_HOME, CUDA_HOME, customary folders and
          the loader's cache.
Usable:   nothing is claimed: it needs a job of several processes.
Caveats:  versions before 3 do not tell theirs; then the header's or the package's is given.
Source:   NVSHMEM documentation, nvshmemx_vendor_get_version_info, environment variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlbackends.libraries.cuda.libraries import (
    COPY_FACTS,
    ENVIRONMENT,
    answered,
    environment,
    find_libraries,
)
from mlbackends.model.records import Answer, Finding, Library

if TYPE_CHECKING:
    import ctypes

    from mlbackends.host.host import Host

GROUP = "library"
FACTS = (*COPY_FACTS, ENVIRONMENT)

VARIABLES = (
    *("NVSHMEM_SYMMETRIC_SIZE", "NVSHMEM_BOOTSTRAP", "NVSHMEM_REMOTE_TRANSPORT", "NVSHMEM_DEBUG"),
    *("NVSHMEM_IB_ENABLE_IBGDA", "NVSHMEM_DISABLE_P2P", "NVSHMEM_DISABLE_CUDA_VMM"),
)


def find(host: Host) -> Finding:
    """Look for every libnvshmem_host, and at the variables that steer it."""
    parts = ("MAJOR", "MINOR", "PATCH")
    found = find_libraries(
        host,
        "nvshmem",
        "libnvshmem_host",
        headers=("non_abi/nvshmem_version.h", "common/nvshmem_version.h"),
        macros=tuple(f"NVSHMEM_VENDOR_{part}_VERSION" for part in parts),
        homes=("NVSHMEM_HOME", "NVSHMEM_PREFIX"),
    )
    return replace(found, facts=environment(host, *VARIABLES))


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask the version."""
    import ctypes

    if not hasattr(opened, "nvshmemx_vendor_get_version_info"):
        return Answer(library)
    numbers = [ctypes.c_int(-1) for _ in range(3)]
    opened.nvshmemx_vendor_get_version_info.restype = None
    opened.nvshmemx_vendor_get_version_info(*map(ctypes.byref, numbers))
    return answered(library, ".".join(str(number.value) for number in numbers))
