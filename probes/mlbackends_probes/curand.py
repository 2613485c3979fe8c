"""cuRAND: NVIDIA's random numbers.

Finds:    every libcurand, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   its generator on the host gives the first numbers of Sobol's sequence, and if there is a
          device, the one on device 0 gives the same.
Caveats:  the generator on the host needs no driver: without a device, usable says nothing of one.
          `checked_on` tells which it was.
Source:   cuRAND documentation, curandGetProperty, curandCreateGeneratorHost, curandGenerateUniform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.libraries.cuda.libraries import COPY_FACTS, answered, find_libraries
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Fact, Finding, Library

if TYPE_CHECKING:
    import ctypes

    from mlbackends.host.host import Host
    from mlbackends.libraries.cuda.calls import Calls

GROUP = "library"
FACTS = (
    *COPY_FACTS,
    Fact("checked_on", str, "Where its numbers were seen to be right: host, or host and device."),
)

STATUSES = {
    100: "CURAND_STATUS_VERSION_MISMATCH",
    101: "CURAND_STATUS_NOT_INITIALIZED",
    102: "CURAND_STATUS_ALLOCATION_FAILED",
    103: "CURAND_STATUS_TYPE_ERROR",
    104: "CURAND_STATUS_OUT_OF_RANGE",
    105: "CURAND_STATUS_LENGTH_NOT_MULTIPLE",
    106: "CURAND_STATUS_DOUBLE_PRECISION_REQUIRED",
    201: "CURAND_STATUS_LAUNCH_FAILURE",
    202: "CURAND_STATUS_PREEXISTING_FAILURE",
    203: "CURAND_STATUS_INITIALIZATION_FAILED",
    204: "CURAND_STATUS_ARCH_MISMATCH",
    999: "CURAND_STATUS_INTERNAL_ERROR",
}
SOBOL32 = 201
# The sequence is defined by mathematics; only 0 is replaced, by the smallest number above it.
SEQUENCE = (0, 0.5, 0.75, 0.25, 0.375, 0.875, 0.625, 0.125)


def find(host: Host) -> Finding:
    """Look for every libcurand."""
    return find_libraries(
        host,
        "curand",
        *("libcurand", "curand64_10"),
        headers=("curand.h",),
        macros=("CURAND_VER_MAJOR", "CURAND_VER_MINOR", "CURAND_VER_PATCH", "CURAND_VER_BUILD"),
    )


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask the version."""
    from mlbackends.libraries.cuda.calls import Calls, property_version

    return answered(library, property_version(Calls(opened, names=STATUSES), "curandGetProperty"))


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Draw numbers of a known sequence, on the host and then on the device."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls, expect, first_device

    call = Calls(opened, names=STATUSES)
    count = len(SEQUENCE)
    numbers = (ctypes.c_float * count)()
    _draw(call, "curandCreateGeneratorHost", numbers, count)
    expect("Sobol's sequence on the host", list(numbers), SEQUENCE)
    try:
        device = first_device()
    except NotUsable as stop:
        if stop.reason.code not in ("no-driver", "no-device"):
            raise
        return Answer(library, facts={"checked_on": "host"})
    result = device.floats(*[0] * count)
    _draw(call, "curandCreateGenerator", result, count)
    expect("Sobol's sequence on the device", device.read_floats(result, count), SEQUENCE)
    return Answer(library, facts={"checked_on": "host and device"})


def _draw(call: Calls, create: str, numbers: object, count: int) -> None:
    import ctypes

    generator = ctypes.c_void_p()
    call(create, ctypes.byref(generator), ctypes.c_int(SOBOL32))
    call("curandGenerateUniform", generator, numbers, ctypes.c_size_t(count))
