"""nvJitLink: NVIDIA's linker of device code, at run time.

Finds:    every libnvJitLink, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   it links a kernel given as PTX to machine code; that needs neither a driver nor a GPU.
Caveats:  before CUDA 12.3 it does not report its version; then the package's is given.
Source:   nvJitLink documentation, nvJitLinkVersion, nvJitLinkCreate, nvJitLinkComplete.
"""

from mlbackends.base.reasons import NotUsable
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.libraries import CudaLibrary, versioned
from mlbackends.model.records import Answer, Library

LIBRARY = CudaLibrary("nvjitlink", ("libnvJitLink",), parts=2)
find = LIBRARY.find

PTX = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n"
INPUT_PTX = 2


def load(opened: CDLL, library: Library) -> Answer:
    """Ask the CUDA version."""
    if not hasattr(opened, "nvJitLinkVersion"):
        return Answer(library)
    major, minor = LIBRARY.calls(opened).numbers("nvJitLinkVersion", 2)
    return versioned(library, f"{major}.{minor}")


def use(opened: CDLL, library: Library) -> Answer:
    """Link PTX and look whether an ELF file comes of it."""
    call, options = LIBRARY.calls(opened), (ctypes.c_char_p * 1)(b"-arch=sm_90")
    linker, size = call.create("nvJitLinkCreate", 1, options), ctypes.c_size_t()
    call("nvJitLinkAddData", linker, INPUT_PTX, PTX, ctypes.c_size_t(len(PTX) + 1), b"nothing")
    call("nvJitLinkComplete", linker)
    call("nvJitLinkGetLinkedCubinSize", linker, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value + 1)
    call("nvJitLinkGetLinkedCubin", linker, cubin)
    if cubin.raw[:4] != b"\x7fELF":
        raise NotUsable("wrong-result", "what it linked is not an ELF file")
    return Answer(library)
