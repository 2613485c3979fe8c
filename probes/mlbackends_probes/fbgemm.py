"""FBGEMM: arithmetic with small numbers on x86 servers, built into torch.

Finds:    libfbgemm, and the copy inside torch.
Usable:   it supports this processor, and turning four numbers into bfloat16 is right.
Caveats:  it has no version that a program could ask for.
Source:   fbgemm/Utils.h and fbgemm/FbgemmConvert.h: fbgemmSupportedCPU, FloatToBfloat16_simd.
"""

from mlbackends.host.host import Host
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, inside, libraries_named
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Finding, Library

GROUP = "library"
FACTS = ()

# C++ functions of the namespace fbgemm, as the Itanium ABI writes them.
_SUPPORTED = "_ZN6fbgemm18fbgemmSupportedCPUEv"
_CONVERT = "_ZN6fbgemm20FloatToBfloat16_simdEPKfPtm"


def find(host: Host) -> Finding:
    """Look for it by itself and inside torch."""
    libraries = libraries_named(host, "fbgemm", "libfbgemm")
    libraries += inside(host, "fbgemm", "libtorch_cpu", (_SUPPORTED,))
    if not libraries:
        return Finding(reasons=(absent(host, "libfbgemm, nor it inside torch,"),))
    return Finding(libraries=tuple(libraries))


def use(opened: CDLL, library: Library) -> Answer:
    """Ask whether the processor is good enough, and round numbers to bfloat16."""
    for name in (_SUPPORTED, _CONVERT):
        if not hasattr(opened, name):
            raise NotUsable("missing-symbol", f"{library.path} has no function {name}")
    supported = getattr(opened, _SUPPORTED)
    supported.restype = ctypes.c_bool
    if not supported():
        message = "fbgemmSupportedCPU says no: this processor has no AVX2"
        raise NotUsable("unsupported-hardware", message)
    numbers = (ctypes.c_float * 4)(1.0, -2.5, 0.0, 3.0)
    rounded = (ctypes.c_uint16 * 4)()
    getattr(opened, _CONVERT)(numbers, rounded, ctypes.c_size_t(4))
    require_equal(
        "FloatToBfloat16_simd", [float(one) for one in rounded], [0x3F80, 0xC020, 0.0, 0x4040]
    )
    return Answer(library)
