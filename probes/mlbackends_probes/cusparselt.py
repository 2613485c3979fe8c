"""cuSPARSELt: NVIDIA's products of matrices of which two in four numbers are zero.

Finds:    every libcusparseLt, in wheels, conda, CUDA_HOME, customary folders and the loader's
          cache.
Usable:   cusparseLtInit accepts device 0.
Caveats:  it needs compute capability 8.0. torch calls version 0.8.1 "801".
Source:   cuSPARSELt documentation, cusparseLtGetProperty, cusparseLtInit.
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
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Finding, Library

if TYPE_CHECKING:
    import ctypes

    from mlbackends.host.host import Host

GROUP = "library"
FACTS = (*COPY_FACTS, ENVIRONMENT)

ARCH_MISMATCH = 4
HANDLE_BYTES = 8192
"""The caller brings the handle, a struct of 512 bytes in 0.10; more does no harm."""


def find(host: Host) -> Finding:
    """Look for every libcusparseLt."""
    found = find_libraries(
        host,
        "cusparselt",
        *("libcusparseLt", "cusparseLt"),
        headers=("cusparseLt.h",),
        macros=tuple(f"CUSPARSELT_VER_{part}" for part in ("MAJOR", "MINOR", "PATCH", "BUILD")),
        homes=("CUSPARSELT_PATH", "CUSPARSELT_ROOT"),
        wheels=("cusparselt/lib",),  # before 0.7 the wheel lay beside nvidia's folder
    )
    return replace(found, facts=environment(host, "CUSPARSELT_LOG_LEVEL", "CUSPARSELT_LOG_MASK"))


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask the version; unlike cusparseLtGetVersion this needs no handle."""
    from mlbackends.libraries.cuda.calls import Calls, property_version

    call = Calls(opened, "cusparseLtGetErrorName")
    return answered(library, property_version(call, "cusparseLtGetProperty"))


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Let it look at the device."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls, first_device

    call = Calls(opened, "cusparseLtGetErrorName")
    first_device()
    handle = (ctypes.c_longdouble * (HANDLE_BYTES // ctypes.sizeof(ctypes.c_longdouble)))()
    status = call.status("cusparseLtInit", ctypes.byref(handle))
    if status:
        code = "unsupported-hardware" if status == ARCH_MISMATCH else "call-failed"
        raise NotUsable(code, f"cusparseLtInit returned {status} ({call.name_of(status)})")
    return Answer(library)
