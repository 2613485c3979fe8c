"""hipBLASLt: AMD's matrix products with fused epilogues.

Finds:    every libhipblaslt, and for which instruction sets its folder holds GPU code.
Loadable: it opens; it reports its version only through a handle.
Usable:   hipblasLtCreate succeeds on the first GPU.
Source:   hipBLASLt API reference, hipblasLtCreate, hipblasLtGetVersion.
"""

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.amd import library_finding, rocm_calls
from mlbackends.libraries.c_calls import CDLL, ctypes, decimal_version
from mlbackends.model.records import Answer, Finding, Library


def find(host: Host) -> Finding:
    """Look for every copy of hipBLASLt and the GPU code next to the first."""
    return library_finding(host, "hipBLASLt", "libhipblaslt", "hipblaslt/library")


def use(opened: CDLL, library: Library) -> Answer:
    """Make a handle on the first GPU, ask it for the version, and give it back."""
    call, version = rocm_calls(opened), ctypes.c_int()
    handle = call.create("hipblasLtCreate")
    if not handle.value:
        raise call.failed("hipblasLtCreate", 0)
    call("hipblasLtGetVersion", handle, ctypes.byref(version))
    call("hipblasLtDestroy", handle)
    return Answer(replace(library, version=decimal_version(version.value, 100_000)))
