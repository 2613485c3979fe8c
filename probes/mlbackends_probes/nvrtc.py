"""NVRTC: NVIDIA's compiler from CUDA C++ to PTX and machine code, at run time.

Finds:    every libnvrtc, in wheels, conda, CUDA_HOME, customary folders and the loader's cache.
Usable:   it compiles a kernel of one line to PTX; that needs neither a driver nor a GPU.
Caveats:  it opens libnvrtc-builtins of exactly its own version; without that it compiles nothing.
Source:   NVRTC documentation, nvrtcVersion, nvrtcGetSupportedArchs, nvrtcCompileProgram.
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
    Fact("compute_capabilities", list[str], "The compute capabilities it compiles for."),
)

KERNEL = b'extern "C" __global__ void seven(float *x) { x[threadIdx.x] = 7.0f; }'

NO_BUILTINS = 7
"""NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: libnvrtc-builtins does not open."""


def find(host: Host) -> Finding:
    """Look for every libnvrtc."""
    windows = ("nvrtc64_130_0", "nvrtc64_120_0", "nvrtc64_112_0")
    return find_libraries(host, "nvrtc", "libnvrtc", *windows, parts=2)


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask the CUDA version and the architectures it knows."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls

    call = Calls(opened, "nvrtcGetErrorString")
    major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    version = f"{major.value}.{minor.value}"
    if not hasattr(opened, "nvrtcGetSupportedArchs"):  # it came with 11.2
        return answered(library, version)
    call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    known = (ctypes.c_int * max(count.value, 1))()
    call("nvrtcGetSupportedArchs", known)
    capabilities = [f"{one // 10}.{one % 10}" for one in list(known)[: count.value]]
    return answered(library, version, compute_capabilities=capabilities)


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Compile a kernel and look for its entry in the PTX."""
    import ctypes

    from mlbackends.libraries.cuda.calls import Calls

    call = Calls(opened, "nvrtcGetErrorString")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    none = ctypes.c_void_p()
    source, name = ctypes.c_char_p(KERNEL), ctypes.c_char_p(b"seven.cu")
    call("nvrtcCreateProgram", ctypes.byref(program), source, name, ctypes.c_int(0), none, none)
    if status := call.status("nvrtcCompileProgram", program, ctypes.c_int(0), none):
        said = f"nvrtcCompileProgram returned {status} ({call.name_of(status)})"
        code = "missing-dependency" if status == NO_BUILTINS else "call-failed"
        raise NotUsable(code, f"{said}: {_log(call, program)}")
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, ptx)
    if b".entry seven" not in ptx.value:
        raise NotUsable("wrong-result", "the PTX of a kernel named seven has no entry of that name")
    return Answer(library)


def _log(call: Calls, program: ctypes.c_void_p) -> str:
    import ctypes

    size = ctypes.c_size_t()
    call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
    log = ctypes.create_string_buffer(max(size.value, 1))
    call("nvrtcGetProgramLog", program, log)
    return " ".join(log.value.decode(errors="replace").split())
