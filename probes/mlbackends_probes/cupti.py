"""CUPTI: NVIDIA's interface for profilers, which torch.profiler uses.

Finds:    every libcupti, in wheels, conda, CUDA_HOME and its extras/CUPTI, customary folders and
          the loader's cache.
Usable:   it starts to record kernels on device 0.
Caveats:  it reports its version only with a driver, so that of its header or package is given.
Source:   CUPTI documentation, cuptiGetVersion, cuptiActivityEnable.
"""

from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL
from mlbackends.libraries.cuda.device import first_device
from mlbackends.libraries.cuda.libraries import CudaLibrary, versioned
from mlbackends.model.records import Answer, Finding, Library

KERNELS = 3


def decoded(number: str) -> str:
    """Return a version as text: 130500 is 13.5. Before CUDA 13 it was a running number: ""."""
    value = int(number or 0)
    return f"{value // 10000}.{value % 10000 // 100}" if value >= 130000 else ""


LIBRARY = CudaLibrary(
    "cupti",
    ("libcupti",),
    headers=("cupti_version.h",),
    macros=("CUPTI_API_VERSION",),
    decode=decoded,
    parts=2,
)


def find(host: Host) -> Finding:
    """Look for every libcupti."""
    homes = [home for name in ("CUDA_HOME", "CUDA_PATH") if (home := host.env(name).rstrip("/"))]
    return LIBRARY.find(host, [f"{home}/extras/CUPTI/lib64" for home in homes])


def use(opened: CDLL, library: Library) -> Answer:
    """Start to record kernels."""
    first_device()
    call = LIBRARY.calls(opened)
    (number,) = call.numbers("cuptiGetVersion", 1)
    call("cuptiActivityEnable", KERNELS)
    version = decoded(str(number))
    return versioned(library, version) if version else Answer(library)
