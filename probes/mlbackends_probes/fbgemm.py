"""FBGEMM: arithmetic with small numbers on x86 servers, built into torch.

Finds:    libfbgemm, and the copy inside torch.
Usable:   it supports this processor, and turning four numbers into bfloat16 is right.
Caveats:  it has no version that a program could ask for.
Source:   fbgemm/Utils.h and fbgemm/FbgemmConvert.h: fbgemmSupportedCPU, FloatToBfloat16_simd.
"""

from mlbackends.base.reasons import NotUsable
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, Library

# C++ functions of the namespace fbgemm, as the Itanium ABI writes them.
_SUPPORTED = "_ZN6fbgemm18fbgemmSupportedCPUEv"
_CONVERT = "_ZN6fbgemm20FloatToBfloat16_simdEPKfPtm"

LIBRARY = SharedLibrary(
    "fbgemm",
    ("libfbgemm",),
    symbols=(_SUPPORTED,),
    missing="libfbgemm, nor it inside torch,",
)
find = LIBRARY.find


def use(opened: CDLL, library: Library) -> Answer:
    """Ask whether the processor is good enough, and round numbers to bfloat16."""
    convert = opened[_CONVERT]
    supported = getattr(opened, _SUPPORTED)
    supported.restype = ctypes.c_bool
    if not supported():
        message = "fbgemmSupportedCPU returned false: this processor has no AVX2"
        raise NotUsable("unsupported-hardware", message)
    numbers = (ctypes.c_float * 4)(1.0, -2.5, 0.0, 3.0)
    rounded = (ctypes.c_uint16 * 4)()
    convert(numbers, rounded, ctypes.c_size_t(4))
    right = [0x3F80, 0xC020, 0.0, 0x4040]
    require_equal("FloatToBfloat16_simd", [float(number) for number in rounded], right)
    return Answer(library)
