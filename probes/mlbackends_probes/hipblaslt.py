"""hipBLASLt: AMD's matrix products with fused epilogues.

Finds:    every libhipblaslt, and for which instruction sets its folder holds GPU code.
Loadable: it opens; it tells its version only through a handle.
Usable:   hipblasLtCreate succeeds on the first GPU.
Source:   hipBLASLt API reference, hipblasLtCreate, hipblasLtGetVersion.
"""

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.amd import call_failed, library_finding
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.model.records import Answer, Fact, Finding, Library

GROUP = "library"
FACTS = (
    Fact("targets", list[str], "The instruction sets for which GPU code lies beside it."),
    Fact("environment", dict[str, str], "The variables that steer hipBLASLt and are set."),
)

_VARIABLES = (
    "HIPBLASLT_TENSILE_LIBPATH",
    "HIPBLASLT_LOG_LEVEL",
    "HIPBLASLT_LOG_MASK",
    "TORCH_BLAS_PREFER_HIPBLASLT",
)


def find(host: Host) -> Finding:
    """Look for every copy of hipBLASLt and the GPU code beside the first."""
    return library_finding(host, "hipBLASLt", "libhipblaslt", _VARIABLES, "hipblaslt/library")


def use(opened: CDLL, library: Library) -> Answer:
    """Make a handle on the first GPU, ask it for the version, and give it back."""
    handle, version = ctypes.c_void_p(), ctypes.c_int()
    if (status := opened.hipblasLtCreate(ctypes.byref(handle))) or not handle.value:
        raise call_failed("hipblasLtCreate", status)
    opened.hipblasLtGetVersion.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    opened.hipblasLtDestroy.argtypes = [ctypes.c_void_p]
    if status := opened.hipblasLtGetVersion(handle, ctypes.byref(version)):
        raise call_failed("hipblasLtGetVersion", status)
    if status := opened.hipblasLtDestroy(handle):
        raise call_failed("hipblasLtDestroy", status)
    major, rest = divmod(version.value, 100_000)
    return Answer(replace(library, version=f"{major}.{rest // 100}.{rest % 100}"))
