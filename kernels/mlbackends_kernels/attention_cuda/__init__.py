"""Attention kernels in CUDA C++, and what this machine lacks to compile and launch them."""

from functools import cache

from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.python.packages import module_location
from mlbackends.libraries.cuda.driver import driver_libraries
from mlbackends.libraries.cuda.libraries import CudaLibrary
from mlbackends_kernels.cuda.devices import install

_NVRTC = CudaLibrary("nvrtc", ("libnvrtc",), parts=2)


@cache
def missing_parts(host: Host | None = None) -> tuple[Reason, ...]:
    """Return a reason for each of cuda.core, NVRTC and the driver that is missing, by reading files alone."""
    host = host or Host()
    reasons = []
    if not module_location(host, "cuda/core"):
        reasons.append(("it launches by cuda.core, which is not installed", install()))
    if not any(library.wins for library in _NVRTC.find(host).libraries):
        reasons.append(("it compiles by NVRTC (libnvrtc.so), which is not installed", install()))
    if not any(library.wins for library in driver_libraries(host, "cuda_driver", "libcuda")):
        reasons.append(("there is no CUDA driver library (libcuda.so.1)", ""))
    return tuple(Reason("missing-part", message, hint) for message, hint in reasons)
