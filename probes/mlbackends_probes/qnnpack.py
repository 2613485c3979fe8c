"""QNNPACK: arithmetic with 8-bit integers on processors, built into torch.

Finds:    libqnnpack and libpytorch_qnnpack, and the copy inside torch.
Usable:   it initialises, and clamping four numbers is right.
Caveats:  it has no version. PyTorch's own fork has other function names than the original.
Source:   pytorch_qnnpack.h and qnnpack.h: the status and the clamp operator.
"""

from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, Library

LIBRARY = SharedLibrary(
    "qnnpack",
    ("libqnnpack", "libpytorch_qnnpack"),
    symbols=("pytorch_qnnp_initialize",),
    missing="libqnnpack, nor it inside torch,",
)
find = LIBRARY.find

_UNSUPPORTED_HARDWARE = 4


def use(opened: CDLL, library: Library) -> Answer:
    """Clamp numbers to a range, on the calling thread."""
    prefix = "qnnp" if hasattr(opened, "qnnp_initialize") else "pytorch_qnnp"
    calls = Calls(opened, "qnnpack", unnamed="unknown")

    def call(name: str, *arguments: object) -> None:
        if status := calls.status(f"{prefix}_{name}", *arguments):
            code = "unsupported-hardware" if status == _UNSUPPORTED_HARDWARE else "call-failed"
            raise calls.failed(f"{prefix}_{name}", status, code)

    numbers = (ctypes.c_uint8 * 4)(0, 10, 100, 255)
    clamped = (ctypes.c_uint8 * 4)()
    operator = ctypes.c_void_p()
    one, count = ctypes.c_size_t(1), ctypes.c_size_t(len(numbers))
    limits, flags = (ctypes.c_uint8(5), ctypes.c_uint8(200)), ctypes.c_uint32(0)
    call("initialize")
    call("create_clamp_nc_u8", count, *limits, flags, ctypes.byref(operator))
    call("setup_clamp_nc_u8", operator, one, numbers, count, clamped, count)
    call("run_operator", operator, None)
    right = [5.0, 10.0, 100.0, 200.0]
    require_equal(f"{prefix}_run_operator", [float(one) for one in clamped], right)
    return Answer(library)
