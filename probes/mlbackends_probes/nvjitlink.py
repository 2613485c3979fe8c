"""nvJitLink: NVIDIA's linker of device code, at run time.

Finds:    every libnvJitLink, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   it links a kernel given as PTX to machine code; that needs neither a driver nor a GPU.
Caveats:  before CUDA 12.3 it does not tell its version; then the package's is given.
Source:   nvJitLink documentation, nvJitLinkVersion, nvJitLinkCreate, nvJitLinkComplete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.libraries.cuda.libraries import COPY_FACTS, answered, find_libraries
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Finding, Library

if TYPE_CHECKING:
    import ctypes

    from mlbackends.host.host import Host

GROUP = "library"
FACTS = COPY_FACTS

PTX = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n"
INPUT_PTX = 2
STATUSES = {
    1: "NVJITLINK_ERROR_UNRECOGNIZED_OPTION",
    2: "NVJITLINK_ERROR_MISSING_ARCH",
    3: "NVJITLINK_ERROR_INVALID_INPUT",
    4: "NVJITLINK_ERROR_PTX_COMPILE",
    5: "NVJITLINK_ERROR_NVVM_COMPILE",
    6: "NVJITLINK_ERROR_INTERNAL",
}


def find(host: Host) -> Finding:
    """Look for every libnvJitLink."""
    windows = ("nvJitLink_130_0", "nvJitLink_120_0")
    return find_libraries(host, "nvjitlink", "libnvJitLink", *windows, parts=2)


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask the CUDA version."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls

    if not hasattr(opened, "nvJitLinkVersion"):
        return Answer(library)
    major, minor = ctypes.c_uint(), ctypes.c_uint()
    Calls(opened, names=STATUSES)("nvJitLinkVersion", ctypes.byref(major), ctypes.byref(minor))
    return answered(library, f"{major.value}.{minor.value}")


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Link PTX and look whether an ELF file comes of it."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls

    call = Calls(opened, names=STATUSES)
    linker, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(b"-arch=sm_90")
    call("nvJitLinkCreate", ctypes.byref(linker), ctypes.c_uint32(1), options)
    text, name = ctypes.create_string_buffer(PTX), ctypes.c_char_p(b"nothing")
    length = ctypes.c_size_t(len(PTX) + 1)
    call("nvJitLinkAddData", linker, ctypes.c_int(INPUT_PTX), text, length, name)
    call("nvJitLinkComplete", linker)
    call("nvJitLinkGetLinkedCubinSize", linker, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value + 1)
    call("nvJitLinkGetLinkedCubin", linker, cubin)
    if cubin.raw[:4] != b"\x7fELF":
        raise NotUsable("wrong-result", "what it linked is no ELF file")
    return Answer(library)
