"""NVRTC: NVIDIA's compiler from CUDA C++ to PTX and machine code, at run time.

Finds:    every libnvrtc, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   it compiles a kernel of one line to PTX; that needs neither a driver nor a GPU.
Caveats:  it opens libnvrtc-builtins of exactly its own version; without that it compiles nothing.
Source:   NVRTC documentation, nvrtcVersion, nvrtcGetSupportedArchs, nvrtcCompileProgram.
"""

from mlbackends.base.reasons import NotUsable
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.libraries import CudaLibrary, versioned
from mlbackends.model.records import Answer, Library

LIBRARY = CudaLibrary(
    "nvrtc",
    ("libnvrtc",),
    parts=2,
    namer="nvrtcGetErrorString",
)
find = LIBRARY.find

KERNEL = b'extern "C" __global__ void seven(float *x) { x[threadIdx.x] = 7.0f; }'
#: NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: libnvrtc-builtins does not open.
NO_BUILTINS = 7


def load(opened: CDLL, library: Library) -> Answer:
    """Ask the CUDA version and the architectures it knows."""
    call = LIBRARY.calls(opened)
    major, minor = call.numbers("nvrtcVersion", 2)
    version = f"{major}.{minor}"
    if not hasattr(opened, "nvrtcGetSupportedArchs"):  # it came with 11.2
        return versioned(library, version)
    (count,) = call.numbers("nvrtcGetNumSupportedArchs", 1)
    architectures = (ctypes.c_int * max(count, 1))()
    call("nvrtcGetSupportedArchs", architectures)
    capabilities = [f"{number // 10}.{number % 10}" for number in list(architectures)[:count]]
    return versioned(library, version, compute_capabilities=capabilities)


def use(opened: CDLL, library: Library) -> Answer:
    """Compile a kernel and look for its entry in the PTX."""
    call, size = LIBRARY.calls(opened), ctypes.c_size_t()
    program = call.create("nvrtcCreateProgram", KERNEL, b"seven.cu", 0, None, None)
    if status := call.status("nvrtcCompileProgram", program, 0, None):
        call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
        log = ctypes.create_string_buffer(max(size.value, 1))
        call("nvrtcGetProgramLog", program, log)
        code = "missing-dependency" if status == NO_BUILTINS else "call-failed"
        about = " ".join(log.value.decode(errors="replace").split())
        raise call.failed("nvrtcCompileProgram", status, code, about)
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, ptx)
    if b".entry seven" not in ptx.value:
        raise NotUsable("wrong-result", "the PTX of a kernel named seven has no entry of that name")
    return Answer(library)
