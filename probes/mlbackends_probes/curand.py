"""cuRAND: NVIDIA's random numbers.

Finds:    every libcurand, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   its generator on the host gives the first numbers of Sobol's sequence, and if there is a
          device, the one on device 0 gives the same.
Caveats:  the generator on the host needs no driver: without a device, "usable" does not cover one.
          `checked_on` has the places that were checked.
Source:   cuRAND documentation, curandGetProperty, curandCreateGeneratorHost, curandGenerateUniform.
"""

from mlbackends.base.reasons import NotUsable
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.device import expect, first_device
from mlbackends.libraries.cuda.libraries import CudaLibrary, version_macros
from mlbackends.model.records import Answer, Library

LIBRARY = CudaLibrary(
    "curand",
    ("libcurand",),
    headers=("curand.h",),
    macros=version_macros("CURAND_VER"),
    property_function="curandGetProperty",
)
find, load = LIBRARY.find, LIBRARY.load

SOBOL32 = 201
# The sequence is defined by mathematics; only 0 is replaced, by the smallest number above it.
SEQUENCE = (0, 0.5, 0.75, 0.25, 0.375, 0.875, 0.625, 0.125)


def use(opened: CDLL, library: Library) -> Answer:
    """Draw numbers of a known sequence, on the host and then on the device."""
    call, count = LIBRARY.calls(opened), ctypes.c_size_t(len(SEQUENCE))
    numbers = (ctypes.c_float * len(SEQUENCE))()
    on_host = call.create("curandCreateGeneratorHost", SOBOL32)
    call("curandGenerateUniform", on_host, numbers, count)
    expect("Sobol's sequence on the host", list(numbers), SEQUENCE)
    try:
        device = first_device()
    except NotUsable as stop:
        if stop.reason.code not in ("no-driver", "no-device"):
            raise
        return Answer(library, facts={"checked_on": "host"})
    result = device.floats(*[0] * len(SEQUENCE))
    call("curandGenerateUniform", call.create("curandCreateGenerator", SOBOL32), result, count)
    numbers_found = device.read_floats(result, len(SEQUENCE))
    expect("Sobol's sequence on the device", numbers_found, SEQUENCE)
    return Answer(library, facts={"checked_on": "host and device"})
