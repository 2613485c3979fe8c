"""cuFFT: NVIDIA's fast Fourier transforms.

Finds:    every libcufft, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   the transform of four numbers on device 0 is right.
Caveats:  libcufftw, the interface of FFTW on top of it, is not looked at.
Source:   cuFFT documentation, cufftGetProperty, cufftPlan1d, cufftExecC2C.
"""

from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.device import expect, first_device
from mlbackends.libraries.cuda.libraries import CudaLibrary, version_macros
from mlbackends.model.records import Answer, Library

LIBRARY = CudaLibrary(
    "cufft",
    ("libcufft",),
    headers=("cufft.h",),
    macros=version_macros("CUFFT_VER"),
    property_function="cufftGetProperty",
)
find, load = LIBRARY.find, LIBRARY.load

COMPLEX_TO_COMPLEX = 0x29
FORWARD = -1
# Real and imaginary parts by turns.
NUMBERS = (1, 0, 2, 0, 3, 0, 4, 0)
TRANSFORMED = (10, 0, -2, 2, -2, 0, -2, -2)


def use(opened: CDLL, library: Library) -> Answer:
    """Transform four numbers on the device."""
    call, device = LIBRARY.calls(opened), first_device()
    numbers, result, plan = device.floats(*NUMBERS), device.floats(*[0] * 8), ctypes.c_int()
    call("cufftPlan1d", ctypes.byref(plan), 4, COMPLEX_TO_COMPLEX, 1)
    call("cufftExecC2C", plan, numbers, result, FORWARD)
    expect("the transform of 1, 2, 3, 4", device.read_floats(result, 8), TRANSFORMED)
    return Answer(library)
