"""cuFFT: NVIDIA's fast Fourier transforms.

Finds:    every libcufft, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   the transform of four numbers on device 0 is right.
Caveats:  libcufftw, the interface of FFTW on top of it, is not looked at.
Source:   cuFFT documentation, cufftGetProperty, cufftPlan1d, cufftExecC2C.
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
    0x1: "CUFFT_INVALID_PLAN",
    0x2: "CUFFT_ALLOC_FAILED",
    0x3: "CUFFT_INVALID_TYPE",
    0x4: "CUFFT_INVALID_VALUE",
    0x5: "CUFFT_INTERNAL_ERROR",
    0x6: "CUFFT_EXEC_FAILED",
    0x7: "CUFFT_SETUP_FAILED",
    0x8: "CUFFT_INVALID_SIZE",
    0x9: "CUFFT_UNALIGNED_DATA",
    0xB: "CUFFT_INVALID_DEVICE",
    0xD: "CUFFT_NO_WORKSPACE",
    0xE: "CUFFT_NOT_IMPLEMENTED",
    0x10: "CUFFT_NOT_SUPPORTED",
    0x11: "CUFFT_MISSING_DEPENDENCY",
}
COMPLEX_TO_COMPLEX = 0x29
FORWARD = -1
# Real and imaginary parts by turns.
NUMBERS = (1, 0, 2, 0, 3, 0, 4, 0)
TRANSFORMED = (10, 0, -2, 2, -2, 0, -2, -2)


def find(host: Host) -> Finding:
    """Look for every libcufft."""
    return find_libraries(
        host,
        "cufft",
        *("libcufft", "cufft64_12", "cufft64_11", "cufft64_10"),
        headers=("cufft.h",),
        macros=("CUFFT_VER_MAJOR", "CUFFT_VER_MINOR", "CUFFT_VER_PATCH", "CUFFT_VER_BUILD"),
    )


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask the version."""
    from mlbackends.libraries.cuda.calls import Calls, property_version

    return answered(library, property_version(Calls(opened, names=STATUSES), "cufftGetProperty"))


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Transform four numbers on the device."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls, expect, first_device

    call = Calls(opened, names=STATUSES)
    device = first_device()
    numbers, result = device.floats(*NUMBERS), device.floats(*[0] * 8)
    plan, kind = ctypes.c_int(), ctypes.c_int(COMPLEX_TO_COMPLEX)
    call("cufftPlan1d", ctypes.byref(plan), ctypes.c_int(4), kind, ctypes.c_int(1))
    call("cufftExecC2C", plan, numbers, result, ctypes.c_int(FORWARD))
    expect("the transform of 1, 2, 3, 4", device.read_floats(result, 8), TRANSFORMED)
    return Answer(library)
